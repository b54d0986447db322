"""Who shares masks with whom: the full graph, or a random ring lattice after Bell et al. (CCS 2020).

In the ring lattice the participants stand on a circle in a public random order and each is joined to the
`degree / 2` nearest on either side (the Harary graph of Bell et al., section 3). Degree and Shamir threshold
are the smallest and the largest for which all three events below have a total probability under 2^-40, given
at most `participants - threshold` dropouts and `colluding` colluders, chosen without regard to the order on
the circle:

1. some participant has `share_threshold` or more colluders among its neighbours (they could open its masks),
2. some participant has fewer than `share_threshold` neighbours who answer (its masks could not be removed),
3. `degree / 2` places in a row are all colluders or dropouts (without such a row the graph of the honest
   survivors is connected, so that only the sum over all of them can be learnt).

The neighbours of a participant are a uniform subset of the others, so 1 and 2 are hypergeometric tails; 3 is
n · Π_{i < degree/2} (bad - i)/(n - i); each is multiplied by n (union bound) and held under 2^-42. The tails
are compared as exact integers.

The sparse graph is always dimensioned for at least one colluder in twenty, so that a round whose plan names
none does not end up on a bare ring; under 100 participants it saves nothing worth the weaker guarantee, and
the full graph is taken.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from math import comb

from skelmix.errors import InvalidInput
from skelmix.validation import whole

FAILURE_BITS = 40
LEAST_SPARSE = 100
_EACH_BITS = FAILURE_BITS + 2  # three events under 2^-42 each stay under 2^-40 together


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


def _under_target(favourable: int, total: int, events: int) -> bool:
    """Whether events · favourable / total < 2^-42, in exact arithmetic."""
    return (events * favourable) << _EACH_BITS < total


def _row_is_unlikely(participants: int, bad: int, half: int) -> bool:
    """Event 3: n · C(bad, half)/C(n, half) < 2^-42."""
    return _under_target(comb(bad, half), comb(participants, half), participants)


def _least_secret_threshold(participants: int, colluding: int, degree: int) -> int:
    """Event 1: the smallest t that `colluding` colluders reach around nobody."""
    total = comb(participants - 1, degree)
    reached = 0
    for t in range(min(colluding, degree), 0, -1):
        reached += comb(colluding, t) * comb(participants - 1 - colluding, degree - t)
        if not _under_target(reached, total, participants):
            return t + 1
    return 1


def _largest_recoverable_threshold(participants: int, threshold: int, degree: int) -> int:
    """Event 2: the largest t that the answering neighbours of everyone reach, with `threshold` who answer."""
    total = comb(participants - 1, degree)
    others = threshold - 1  # worst case: the participant in question is one of those who answer
    missed = 0
    for t in range(degree + 1):
        missed += comb(others, t) * comb(participants - 1 - others, degree - t)
        if not _under_target(missed, total, participants):
            return t
    return degree


@lru_cache(maxsize=256)
def sparse(participants: int, threshold: int, colluding: int) -> Graph | None:
    """The ring lattice of least degree that meets the three conditions; None when there is none up to n/2."""
    colluding = max(colluding, -(-participants // 20))
    if participants < LEAST_SPARSE or threshold <= colluding:
        return None
    bad = min(participants, participants - threshold + colluding)
    for half in range(1, participants // 4 + 1):
        if not _row_is_unlikely(participants, bad, half):
            continue
        degree = 2 * half
        low = max(2, _least_secret_threshold(participants, colluding, degree))
        high = _largest_recoverable_threshold(participants, threshold, degree)
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


def meets(graph: Graph, threshold: int, colluding: int) -> bool:
    """Whether a ring lattice keeps the three conditions, at its own degree and Shamir threshold.

    For whoever is shown a graph: nothing is searched, and the work grows with the degree alone. More
    neighbours than `sparse` would take are as good; a graph that `sparse` gives always meets.
    """
    n, degree, t = graph.participants, graph.degree, graph.share_threshold
    colluding = max(colluding, -(-n // 20))
    shaped = n >= LEAST_SPARSE and degree % 2 == 0 and 2 <= t <= degree <= n // 2
    if not shaped or not colluding < threshold <= n:
        return False
    total = comb(n - 1, degree)
    exposed = _subsets_with(n - 1, colluding, degree, t)
    lost = total - _subsets_with(n - 1, threshold - 1, degree, t)
    return (
        _row_is_unlikely(n, min(n, n - threshold + colluding), degree // 2)
        and _under_target(exposed, total, n)
        and _under_target(lost, total, n)
    )


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


def choose(participants: int, threshold: int, *, colluding: int = 0, full: bool = False) -> Graph:
    """The sparse graph when it pays (degree at most half of the others), else the full graph.

    `threshold` participants must survive and answer; any smaller number ends the round without a sum.
    Raises `InvalidInput` when colluders alone reach the threshold.
    """
    check(participants, threshold, colluding)
    if not full and (graph := sparse(participants, threshold, colluding)) is not None:
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
