"""When a sum may be opened, what opening it may reveal, and how its noise is divided among participants.

Rounds with fewer than an agreed number of survivors are not opened. Whether a round opens may then depend on
one participant, if it was sampled and the others are just one short. That probability is paid from δ; in all
other rounds the sum carries the same noise with the participant and without, and amplification by sampling
holds as it stands. Dropouts are assumed to be independent of each other, of who was sampled and of the
order of a sparse graph, each with at most the stated probability. Proofs: docs/explanation/exact-noise.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from skelmix.accounting.binomial_bounds import binomial
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.validation import fraction, non_negative, positive, probability, whole

UNITS_PER_PARTICIPANT = 32
"""Where some may collude, the noise of a sum is divided into this many equal units per participant."""

SPARSE_GRAPH_FAILURE = 2.0**-40
"""What a round on the sparse graph of secure aggregation may add to the probability that opening reveals.

Its masks cannot be removed, with the participant or without it, or there are fewer survivors than
`likely_survivors`: three events, each under 2^-42.
"""

_NEGLIGIBLE = 1e-25  # probabilities below it are bounded coarsely


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
        return _at_most_ahead(self, colluding + 1)

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


@dataclass(frozen=True)
class FixedSizeDropouts:
    """Cohorts of exactly `size`, drawn without replacement, from which participants drop out independently.

    A participant takes somebody else's place: `size` - 1 others are in its round either way. dropout_rate: as
    in `PoissonDropouts`.
    """

    population: int
    size: int
    dropout_rate: float

    def __post_init__(self) -> None:
        whole(1, population=self.population)
        whole(1, self.population, size=self.size)
        fraction(dropout_rate=self.dropout_rate)

    @property
    def sampling_probability(self) -> float:
        """Probability that a given participant is in a given cohort."""
        return self.size / self.population

    def fewer_survivors_than(self, count: int) -> float:
        """P(fewer than `count` of the others survive), from above: P(Bin(size - 1, 1-τ) <= count - 1)."""
        return binomial(self.size - 1, (1 - self.dropout_rate) * (1 - 2.0**-50)).at_most(count - 1)

    def no_majority(self, colluding: int) -> float:
        """P(the others alone are no majority of the cohort), from above."""
        return self.fewer_survivors_than((self.size + colluding) // 2 + 1)


Dropouts = PoissonDropouts | FixedSizeDropouts


@lru_cache(maxsize=256)
def _at_most_ahead(cohorts: PoissonDropouts, lead: int) -> float:
    """P(S - D <= lead), from above; kept, since a plan asks several times and the sum may take a second."""
    chernoff = cohorts._chernoff(lead)
    return chernoff if chernoff < _NEGLIGIBLE else min(chernoff, cohorts._summed(lead))


def survivors_to_open(
    least_survivors: int, sampled: int, colluding: int = 0, *, malicious: bool = True
) -> int:
    """How many answers the last phase of a round of `sampled` participants needs before the sum is opened.

    max(t₀, ⌊(sampled + colluding)/2⌋ + 1): with the second term, which the malicious model needs, two sets
    that both open share an honest participant.
    """
    whole(1, least_survivors=least_survivors)
    whole(0, sampled=sampled, colluding=colluding)
    return max(least_survivors, (sampled + colluding) // 2 + 1) if malicious else least_survivors


@lru_cache(maxsize=4096)
def likely_survivors(sampled: int, dropout_rate: float) -> int:
    """The most survivors T with P(Bin(sampled, 1 - dropout_rate) <= T) <= 2^-42; 0 if there is no such T.

    A round with this threshold needs far fewer neighbours in the sparse graph. Whether it opens depends on
    one participant only if fewer of the others survive, and `opening_delta` pays for that. It covers every
    lower threshold, too.
    """
    whole(0, sampled=sampled)
    fraction(dropout_rate=dropout_rate)
    survivors = binomial(sampled, (1 - dropout_rate) * (1 - 2.0**-50))
    likely = bisect_left(range(sampled + 1), True, key=lambda count: survivors.at_most(count) > 2.0**-42)
    return max(0, likely - 1)


def opening_delta(
    cohorts: Dropouts,
    rounds: int,
    least_survivors: int,
    *,
    colluding: int = 0,
    malicious: bool = True,
    graph_failure: float = SPARSE_GRAPH_FAILURE,
) -> float:
    """The part of δ that pays for rounds whose opening may reveal that a participant was sampled.

    T·q·(P(fewer than t₀ of the others survive) + the same for the majority + graph_failure), from above. T
    is the number of cohorts that are drawn. 0 when everyone takes part: then there is nothing to reveal.
    """
    whole(1, rounds=rounds, least_survivors=least_survivors)
    whole(0, colluding=colluding)
    non_negative(graph_failure=graph_failure)
    if cohorts.sampling_probability == 1:
        return 0.0
    others = graph_failure + (cohorts.no_majority(colluding) if malicious else 0.0)
    return _over_rounds(cohorts, rounds, cohorts.fewer_survivors_than(least_survivors) + others)


def _over_rounds(cohorts: Dropouts, rounds: int, per_round: float) -> float:
    """Probability that in some round the participant is sampled and an event of this probability happens."""
    return min(1.0, rounds * cohorts.sampling_probability * per_round * (1 + 1e-12))


def choose_least_survivors(
    cohorts: Dropouts,
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
    larger = range(smallest + 1, cohorts.population + 1)
    return smallest + bisect_left(larger, True, key=lambda count: paid(count) > budget)


def honest_share(least_survivors: int, colluding: int = 0) -> Fraction:
    """The share of a sum's noise that k colluders certainly do not know: 1 - k·(1/t₀ + 1/(32·t₀)).

    A survivor keeps at most M/s + 1 of the M = 32·sampled units; s >= t₀ and sampled >= t₀.
    """
    whole(1, least_survivors=least_survivors)
    whole(0, colluding=colluding)
    known = colluding * (Fraction(1) + Fraction(1, UNITS_PER_PARTICIPANT)) / least_survivors
    if known >= 1:
        raise InvalidInput(
            f"colluding = {colluding} of at least {least_survivors} survivors: they may know all of the "
            "noise; plan for fewer colluders or more survivors"
        )
    return 1 - known


def total_noise(noise: float, least_survivors: int, colluding: int = 0) -> float:
    """The noise K = Λ/(1 - k·(1/t₀ + 1/(32·t₀))) of a sum, so that Λ is left without k colluders' shares.

    Rounded up; Λ itself without colluders.
    """
    non_negative(noise=noise)
    honest = honest_share(least_survivors, colluding)
    return math.nextafter(float(Fraction(noise) / honest), math.inf) if colluding else float(noise)


def units_per_participant(colluding: int) -> int:
    """How many units per participant the noise of a sum is divided into: 32, or 1 without colluders.

    The survivors keep all units between them, whatever their size: the noise of the sum is the same. With
    small units the survivors' shares of it are nearly equal, within one unit, which matters only if some of
    them reveal theirs. Large units make fewer pieces: without colluders one per participant, unless more than
    half may drop out.
    """
    return UNITS_PER_PARTICIPANT if colluding else 1


@dataclass(frozen=True)
class NoisePieces:
    """How a cohort of `sampled` participants divides the noise of its sum, so that the excess can be removed.

    The noise is M = base·sampled equal units. Each participant draws a base, which is never removed, and
    pieces of 1, 2, 4, … units, as many as the fewest survivors that open a round may have to keep.
    base: its units, as `units_per_participant` says.

    Example:

        >>> pieces = NoisePieces(sampled=240, fewest=141)
        >>> pieces.units, pieces.base, pieces.sizes, pieces.kept(216, 0), pieces.kept(216, 215)
        (7680, 32, (1, 2, 4, 8, 16), 36, 35)
    """

    sampled: int
    fewest: int
    base: int = UNITS_PER_PARTICIPANT

    def __post_init__(self) -> None:
        whole(1, sampled=self.sampled, base=self.base)
        whole(1, self.sampled, fewest=self.fewest)

    @property
    def units(self) -> int:
        """M, the units that the survivors keep between them."""
        return self.base * self.sampled

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
