"""When a sum may be opened, what opening it may reveal, and how its noise is divided among participants.

Rounds with fewer than an agreed number of survivors are not opened. Whether a round opens may then depend on
one participant, if it was sampled and the others are just one short. That probability is paid from δ; in all
other rounds the sum carries the same noise with the participant and without, and amplification by Poisson
sampling holds as it stands. Dropouts are assumed to be independent of each other and of who was sampled, each
with at most the stated probability. Proofs: docs/explanation/aggregator.md, section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from skelmix.accounting.binomial import binomial
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.validation import fraction, non_negative, positive, probability, whole

UNITS_PER_PARTICIPANT = 32
"""The noise of a sum is divided into this many equal units per participant of its cohort."""

SPARSE_GRAPH_FAILURE = 2.0**-40
"""Probability that the sparse graph of secure aggregation fails in a round."""

_NEGLIGIBLE = 1e-25


@dataclass(frozen=True)
class PoissonDropouts:
    """Cohorts drawn by Poisson sampling, from which participants drop out independently.

    dropout_rate: the largest probability with which a sampled participant fails to answer in the last phase.
    """

    population: int
    sampling_probability: float
    dropout_rate: float

    def __post_init__(self) -> None:
        whole(1, population=self.population)
        positive(sampling_probability=self.sampling_probability)
        fraction(dropout_rate=self.dropout_rate)
        if self.sampling_probability > 1:
            raise InvalidInput(f"sampling_probability = {self.sampling_probability!r}: must be in (0, 1]")

    def fewer_survivors_than(self, count: int) -> float:
        """P(fewer than `count` of the others survive), from above: P(Bin(N-1, q(1-τ)) <= count - 1)."""
        survival = self.sampling_probability * (1 - self.dropout_rate) * (1 - 2.0**-50)
        return binomial(self.population - 1, survival).at_most(count - 1)

    def no_majority(self, colluding: int) -> float:
        """P(2·survivors <= sampled + colluding + 1) among the others, from above.

        Survivors S and dropouts D are parts of a trinomial law, and the event is S - D <= colluding + 1.
        Summed over D; where a Chernoff bound shows that it is negligible, that bound.
        """
        chernoff = self._chernoff(colluding + 1)
        return chernoff if chernoff < _NEGLIGIBLE else min(chernoff, self._summed(colluding + 1))

    def _chernoff(self, lead: int) -> float:
        """P(S - D <= lead) <= z^lead·(1 - q + q(1-τ)/z + qτz)^(N-1) for any z >= 1; here a good one."""
        q, drop = float(self.sampling_probability), max(float(self.dropout_rate), 1e-6)
        z = max(1.0, math.sqrt((1 - drop) / drop))
        change = q * ((1 - drop) / z + drop * z - 1)
        exponent = lead * math.log(z) + (self.population - 1) * math.log1p(change)
        return math.exp(min(0.0, exponent)) * (1 + 1e-9)

    def _summed(self, lead: int) -> float:
        q, drop, others = float(self.sampling_probability), float(self.dropout_rate), self.population - 1
        dropouts = binomial(others, q * drop * (1 + 2.0**-50))
        survival = min(1.0, q * (1 - drop) / (1 - q * drop)) * (1 - 2.0**-49)
        total = dropouts.below + dropouts.above
        for count, mass in zip(range(dropouts.first, dropouts.last + 1), dropouts.mass.tolist(), strict=True):
            survivors = (
                binomial(others - count, survival).at_most(lead + count) if mass > _NEGLIGIBLE else 1.0
            )
            total += mass * survivors
        return min(1.0, total * (1 + 1e-12))


def survivors_to_open(
    least_survivors: int, sampled: int, colluding: int = 0, *, malicious: bool = True
) -> int:
    """Answers in the last phase without which a round of `sampled` participants is not opened.

    max(t₀, ⌊(sampled + colluding)/2⌋ + 1): with the second term, which the malicious model needs, two sets
    that both open share an honest participant.
    """
    whole(1, least_survivors=least_survivors)
    whole(0, sampled=sampled, colluding=colluding)
    return max(least_survivors, (sampled + colluding) // 2 + 1) if malicious else least_survivors


def opening_delta(
    cohorts: PoissonDropouts,
    rounds: int,
    least_survivors: int,
    *,
    colluding: int = 0,
    malicious: bool = True,
    graph_failure: float = SPARSE_GRAPH_FAILURE,
) -> float:
    """The part of δ that pays for rounds whose opening may reveal that a participant was sampled.

    T·q·(P(Bin(N-1, q(1-τ)) <= t₀ - 1) + the same for the majority + graph_failure), from above. 0 when
    everyone takes part: then there is nothing to reveal.
    """
    whole(1, rounds=rounds, least_survivors=least_survivors)
    whole(0, colluding=colluding)
    non_negative(graph_failure=graph_failure)
    if cohorts.sampling_probability == 1:
        return 0.0
    others = graph_failure + (cohorts.no_majority(colluding) if malicious else 0.0)
    return _over_rounds(cohorts, rounds, cohorts.fewer_survivors_than(least_survivors) + others)


def _over_rounds(cohorts: PoissonDropouts, rounds: int, per_round: float) -> float:
    """Probability that in some round the participant is sampled and an event of this probability happens."""
    return min(1.0, rounds * cohorts.sampling_probability * per_round * (1 + 1e-12))


def choose_least_survivors(
    cohorts: PoissonDropouts,
    rounds: int,
    budget: float,
    *,
    colluding: int = 0,
    malicious: bool = True,
    graph_failure: float = SPARSE_GRAPH_FAILURE,
) -> int:
    """t₀: the largest "least number of survivors" whose `opening_delta` is within this budget of δ.

    Raises `PrivacyUnattainable` when none is, or none that outnumbers the colluders.

    Example:

        >>> choose_least_survivors(PoissonDropouts(60_000, 0.004, 0.1), rounds=1_000, budget=1e-7)
        141
    """
    probability(budget=budget)
    if cohorts.sampling_probability == 1:
        raise InvalidInput(
            "sampling_probability = 1: opening reveals nothing when everyone takes part; take the least "
            "number of survivors from the dropout tolerance"
        )
    whole(1, rounds=rounds)
    whole(0, colluding=colluding)
    others = graph_failure + (cohorts.no_majority(colluding) if malicious else 0.0)

    def paid(count: int) -> float:
        return _over_rounds(cohorts, rounds, cohorts.fewer_survivors_than(count) + others)

    smallest = colluding * (UNITS_PER_PARTICIPANT + 1) // UNITS_PER_PARTICIPANT + 1
    if paid(smallest) > budget:
        expected = cohorts.population * cohorts.sampling_probability
        raise PrivacyUnattainable(
            f"cohorts of {expected:.4g} on average, a dropout rate of {cohorts.dropout_rate:.3g}, "
            f"{colluding} colluding: opening costs a δ of {paid(smallest):.2g}, above its "
            f"budget of {budget:.2g}; expect more participants, fewer dropouts or fewer colluders"
        )
    low, high = smallest, max(smallest, cohorts.population)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if paid(middle) <= budget else (low, middle - 1)
    return low


def total_noise(noise: float, least_survivors: int, colluding: int = 0) -> float:
    """K = Λ/(1 - k·(1/t₀ + 1/(32·t₀))): noise of a sum of which all but k colluders' shares are at least Λ.

    A survivor keeps at most M/s + 1 of the M = 32·sampled units; s >= t₀ and sampled >= t₀. Rounded up.
    """
    non_negative(noise=noise)
    whole(1, least_survivors=least_survivors)
    whole(0, colluding=colluding)
    known = colluding * (Fraction(1) + Fraction(1, UNITS_PER_PARTICIPANT)) / least_survivors
    if known >= 1:
        raise InvalidInput(
            f"colluding = {colluding} of at least {least_survivors} survivors: they may know all of the "
            "noise; plan for fewer colluders or more survivors"
        )
    return math.nextafter(float(Fraction(noise) / (1 - known)), math.inf) if colluding else float(noise)


@dataclass(frozen=True)
class NoisePieces:
    """How a cohort of `sampled` participants divides the noise of its sum, so that the excess can be removed.

    The noise is M = 32·sampled equal units. Each participant draws a base of ⌊M/sampled⌋ units and pieces of
    1, 2, 4, … units, as many as the fewest survivors that open a round may have to keep.

    Example:

        >>> pieces = NoisePieces(sampled=240, fewest=141)
        >>> pieces.units, pieces.base, pieces.sizes, pieces.kept(216, 0), pieces.kept(216, 215)
        (7680, 32, (1, 2, 4, 8, 16), 36, 35)
    """

    sampled: int
    fewest: int

    def __post_init__(self) -> None:
        whole(1, sampled=self.sampled)
        whole(1, self.sampled, fewest=self.fewest)

    @property
    def units(self) -> int:
        """M, the units that the survivors keep between them."""
        return UNITS_PER_PARTICIPANT * self.sampled

    @property
    def base(self) -> int:
        """Units in the piece that is never removed."""
        return self.units // self.sampled

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of the other pieces: 1, 2, …, 2^(w-1) with 2^w > ⌈M/fewest⌉ - base."""
        most = -(-self.units // self.fewest) - self.base
        return tuple(2**i for i in range(most.bit_length()))

    def kept(self, survivors: int, rank: int) -> int:
        """Units that the survivor with this rank (0 first) in the roster keeps: ⌊M/s⌋, or one more."""
        whole(self.fewest, self.sampled, survivors=survivors)
        whole(0, survivors - 1, rank=rank)
        return self.units // survivors + (rank < self.units % survivors)
