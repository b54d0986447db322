"""Who shares masks with whom: the full graph, or a random ring lattice after Bell et al. (CCS 2020).

In the ring lattice the participants stand on a circle in a public random order and each is joined to the
`degree / 2` nearest on either side (the Harary graph of Bell et al., section 3). Degree and Shamir threshold
are the smallest and the largest for which each of three events has a probability under 2^-42, given at most
`participants - threshold` dropouts and `colluding` colluders, chosen without regard to the order on the
circle:

1. some participant has `share_threshold` or more colluders among its neighbours (they could open its masks),
2. some participant has fewer than `share_threshold` neighbours who answer (its masks could not be removed),
3. the graph of the honest survivors is not connected (sums over parts of them could be learnt).

1 and 3 are what secrecy rests on; 2 decides only whether the sum opens.

1: the neighbours of a participant are a uniform subset of the others, so the colluders among them have a
hypergeometric law. The tail is multiplied by n (union bound).

2: if exactly `threshold` participants answer, those among the neighbours have such a law, too. A plan may
state a law instead: everybody answers independently of the others and of the order, with probability 1 -
`dropout_rate` at least. Then n times the tail of Bin(degree - 1, 1 - dropout_rate) is under 2^-42: one
neighbour is left out, whose answer need not follow any law. A degree that rests on the law opens all but one
in a million rounds in which `threshold` answer, however unlikely that is under the law.

3: let h = degree / 2, and let every colluder and dropout be a bad place. An honest survivor is joined to the
next one along the circle unless h or more bad places lie between them. Where this is so at most once, the
survivors are joined one after the other to a path or a cycle. So a graph that is not connected has two
disjoint rows of h bad places. There are n(n - 2h + 1)/2 pairs of disjoint rows; each pair is 2h = degree
places, which are all bad with probability C(bad, degree)/C(n, degree).

All tails are compared as exact integers.

The sparse graph is always dimensioned for at least one colluder in twenty, so that a round whose plan names
none does not end up on a bare ring; below 100 participants it saves too little for its weaker guarantee, so
the full graph is taken.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, comb

from skelmix.errors import InvalidInput
from skelmix.validation import fraction, whole

FAILURE_BITS = 40  # a bad graph has a probability below 2^-40
LEAST_SPARSE = 100  # participants
_EACH_BITS = FAILURE_BITS + 2  # three events under 2^-42 each stay under 2^-40 together
_SELDOM_BITS = 20  # for event 2 with exactly `threshold` answers, where the degree rests on a law
_LAW_BITS = 20  # dropout rates are rounded up to this many binary places


@dataclass(frozen=True, slots=True)
class Graph:
    """A neighbourhood graph on the indices 0..participants-1.

    `degree == participants - 1` is the full graph, in which `share_threshold` is the threshold of the round
    itself.
    """

    participants: int
    degree: int
    share_threshold: int

    @property
    def full(self) -> bool:
        return self.degree == self.participants - 1


def _under_target(favourable: int, total: int, events: int, bits: int = _EACH_BITS) -> bool:
    """Whether events · favourable / total < 2^-bits, in exact arithmetic."""
    return (events * favourable) << bits < total


def _cut_is_unlikely(participants: int, bad: int, degree: int) -> bool:
    """Event 3: n(n - k + 1)/2 · C(bad, k)/C(n, k) < 2^-42, k being the degree."""
    pairs = participants * (participants - degree + 1) // 2  # an even product
    return _under_target(comb(bad, degree), comb(participants, degree), pairs)


def _least_secret_threshold(participants: int, colluding: int, degree: int) -> int:
    """Event 1: the smallest t that `colluding` colluders reach around nobody."""
    total = comb(participants - 1, degree)
    reached = 0
    for t in range(min(colluding, degree), 0, -1):
        reached += comb(colluding, t) * comb(participants - 1 - colluding, degree - t)
        if not _under_target(reached, total, participants):
            return t + 1
    return 1


def _largest_recoverable_threshold(
    participants: int, threshold: int, degree: int, low: int, dropout_rate: float | None
) -> int:
    """Event 2: the largest t from `low` on with which a ring lattice `opens`; `low` - 1 if none does."""

    def fails(t: int) -> bool:
        return not opens(Graph(participants, degree, t), threshold, dropout_rate)

    if fails(low):
        return low - 1
    return low + bisect_left(range(low + 1, degree + 1), True, key=fails)


@lru_cache(maxsize=256)
def sparse(
    participants: int, threshold: int, colluding: int, dropout_rate: float | None = None
) -> Graph | None:
    """The ring lattice of least degree that meets the three conditions; None when there is none up to n/2.

    dropout_rate: the law on which event 2 may rest.
    """
    colluding = max(colluding, -(-participants // 20))
    if participants < LEAST_SPARSE or threshold <= colluding:
        return None
    bad = min(participants, participants - threshold + colluding)
    for degree in range(2, participants // 2 + 1, 2):
        if not _cut_is_unlikely(participants, bad, degree):
            continue
        low = max(2, _least_secret_threshold(participants, colluding, degree))
        high = _largest_recoverable_threshold(participants, threshold, degree, low, dropout_rate)
        if low <= high:
            return Graph(participants, degree, high)
    return None


def _subsets_with(population: int, marked: int, size: int, least: int) -> int:
    """How many `size`-subsets of `population` hold `least` marked members or more; exact.

    Each term follows from the one before by two small factors, so that the cost is at most `size` steps.
    """
    t = min(marked, size)
    term = comb(marked, t) * comb(population - marked, size - t)
    subsets = 0
    while t >= least:
        subsets += term
        term = term * t * (population - marked - size + t) // ((marked - t + 1) * (size - t + 1))
        t -= 1
    return subsets


def _law_suffices(graph: Graph, dropout_rate: float) -> bool:
    """Whether n · P(Bin(degree - 1, 1 - dropout_rate) < t) < 2^-42; the rate is rounded up to 2^-20.

    Summed from above, each term from the one before.
    """
    neighbours, unit = graph.degree - 1, 1 << _LAW_BITS
    missing = ceil(Fraction(dropout_rate) * unit)
    answering = unit - missing
    if not answering:
        return False
    term, enough = answering**neighbours, 0
    for answers in range(neighbours, graph.share_threshold - 1, -1):
        enough += term
        term = term * answers * missing // ((neighbours - answers + 1) * answering)
    total = unit**neighbours
    return _under_target(total - enough, total, graph.participants)


def meets(graph: Graph, threshold: int, colluding: int) -> bool:
    """Whether a ring lattice keeps secret what it must (events 1 and 3), at its own degree and threshold.

    It judges a graph that somebody else chose: nothing is searched, and the work grows with the degree alone.
    More neighbours than `sparse` would take are accepted; a graph that `sparse` gives always passes. Event 2
    is not judged here: it may rest on a law of dropouts, which a plan states and a request does not, and a
    graph that fails it only keeps the sum closed. Whoever knows the plan asks `opens`.
    """
    n, degree, t = graph.participants, graph.degree, graph.share_threshold
    colluding = max(colluding, -(-n // 20))
    shaped = n >= LEAST_SPARSE and degree % 2 == 0 and 2 <= t <= degree <= n // 2
    if not shaped or not colluding < threshold <= n:
        return False
    exposed = _subsets_with(n - 1, colluding, degree, t)
    return _cut_is_unlikely(n, min(n, n - threshold + colluding), degree) and _under_target(
        exposed, comb(n - 1, degree), n
    )


def opens(graph: Graph, threshold: int, dropout_rate: float | None = None) -> bool:
    """Whether enough neighbours of everyone answer, practically always (event 2).

    Either whenever `threshold` of all answer; or under the law of `dropout_rate`, and then in all but one in
    a million rounds in which `threshold` answer. The full graph needs no more than these. Like `meets`, it
    judges a graph that somebody else chose; a graph that `sparse` gives always opens.
    """
    n, degree, t = graph.participants, graph.degree, graph.share_threshold
    if graph.full or not 1 <= threshold <= n:
        return graph.full and t <= threshold
    total = comb(n - 1, degree)
    others = threshold - 1  # worst case: the participant in question is one of those who answer
    lost = total - _subsets_with(n - 1, others, degree, t)
    if dropout_rate is None or not _under_target(lost, total, n, _SELDOM_BITS):
        return _under_target(lost, total, n)
    return _under_target(lost, total, n) or _law_suffices(graph, dropout_rate)


def check(participants: int, threshold: int, colluding: int) -> None:
    """`InvalidInput` unless colluding < threshold <= participants."""
    whole(1, participants=participants)
    whole(1, participants, threshold=threshold)
    whole(0, participants, colluding=colluding)
    if threshold <= colluding:
        raise InvalidInput(
            f"threshold = {threshold}: must exceed the {colluding} who may collude; "
            "raise it or lower colluding"
        )


def choose(
    participants: int,
    threshold: int,
    *,
    colluding: int = 0,
    full: bool = False,
    dropout_rate: float | None = None,
) -> Graph:
    """The sparse graph when it pays (degree at most half of the others), else the full graph.

    `threshold` participants must survive and answer; any smaller number ends the round without a sum.
    dropout_rate: the largest probability with which a participant drops out, independently of the others,
    where a plan states it: fewer neighbours are then enough. None: so many that any `threshold` who answer
    open the sum.
    Raises `InvalidInput` when colluders alone reach the threshold.
    """
    check(participants, threshold, colluding)
    if dropout_rate is not None:
        fraction(dropout_rate=dropout_rate)
    if not full and (graph := sparse(participants, threshold, colluding, dropout_rate)) is not None:
        return graph
    return Graph(participants, participants - 1, threshold)


@lru_cache(maxsize=8)
def circle(participants: int, seed: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The public order on the circle, by a SHAKE-256 expansion of `seed`, 16 bytes each; and its inverse."""
    stream = hashlib.shake_256(b"skelmix secagg v1 circle" + seed).digest(16 * participants)
    order = sorted(range(participants), key=lambda i: (stream[16 * i : 16 * i + 16], i))
    place = [0] * participants
    for at, index in enumerate(order):
        place[index] = at
    return tuple(order), tuple(place)


def neighbourhood(graph: Graph, seed: bytes, index: int) -> list[int]:
    """The closed neighbourhood of `index` (itself included), in the order that numbers its Shamir shares.

    Full graph: 0..n-1. Ring lattice: along the circle from `degree/2` before to `degree/2` after. It is
    mutual.
    """
    n = graph.participants
    if graph.full:
        return list(range(n))
    order, place = circle(n, seed)
    half = graph.degree // 2
    return [order[(place[index] + step) % n] for step in range(-half, half + 1)]
