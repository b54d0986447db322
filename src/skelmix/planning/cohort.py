"""Cohorts of participants with one vector each: the guarantee protects participants."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from skelmix.accounting.participations import smallest_cap
from skelmix.accounting.schedule import Schedule
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.planning.contributors import Contributors
from skelmix.validation import cohort_within, one_of, positive, whole

SAMPLINGS = ("poisson", "fixed", "none")

#: least share of δ that pays for rounds whose success reveals who was sampled
MEMBERSHIP_SHARE = 1e-9


@dataclass(frozen=True)
class Cohort(Contributors):
    """Who takes part in a round, how they are drawn, and how many must survive.

    expected: participants expected in a round; population: participants in all. sampling: "poisson" (each
    joins independently with probability expected/population), "fixed" (exactly `expected`, without
    replacement) or "none" (everyone, always). dropout_tolerance: the fraction of a cohort that may drop
    out. colluding: participants of a round whose noise the adversary may know.

    contribute: a coin of the participant's own. Everyone in a cohort runs the protocol and adds noise; with
    this probability, secretly, it sends its vector, else zero: the aggregator's ε falls, cohorts must grow.
    max_participations: rounds of a run that a participant contributes to at most; it joins later ones with
    the zero vector, so ε holds against an aggregator that picks cohorts at will.

    Example:

        >>> cohort = Cohort(expected=40, population=1_000, dropout_tolerance=0.1, colluding=6)
        >>> cohort.sampling_probability, cohort.min_survivors(40), int(cohort.shares(40))
        (0.04, 36, 30)
    """

    expected: int
    population: int
    dropout_tolerance: float = 0.0
    colluding: int = 0
    sampling: str = "poisson"
    contribute: float = 1.0
    max_participations: int | None = None

    unit: ClassVar[str] = "participant"

    def __post_init__(self) -> None:
        cohort_within(self.expected, self.population)
        positive(contribute=self.contribute)
        if self.contribute > 1:
            raise InvalidInput(f"contribute = {self.contribute!r}: must be a probability in (0, 1]")
        if self.max_participations is not None:
            whole(1, max_participations=self.max_participations)
        one_of(SAMPLINGS, sampling=self.sampling)
        if self.sampling == "none" and self.expected != self.population:
            raise InvalidInput(
                f"sampling = 'none' with expected = {self.expected} of {self.population}: everyone takes "
                "part, "
                "so make them equal or choose poisson or fixed sampling"
            )
        self._check_uploads()

    def __str__(self) -> str:
        return f"{self.expected:,} of {self.population:,} ({self.sampling})"

    def summary(self) -> dict[str, Any]:
        return {
            "cohort": self.expected,
            "population": self.population,
            "contribute": self.contribute,
            "max_participations": self.max_participations,
            "silos": None,
            "records": None,
            "batch": None,
        }

    @property
    def neighbours(self) -> str:
        return "one participant's vector replaced by the zero vector"

    @property
    def roster(self) -> Cohort:
        return self

    @property
    def uploads(self) -> int:
        return self.expected

    @property
    def divisor(self) -> float:
        return self.expected * self.contribute

    @property
    def members(self) -> int:
        return self.population

    @property
    def sampling_probability(self) -> float:
        """Probability that a given participant is in a given round."""
        return self.expected / self.population

    def membership_leak_probability(self, rounds: int, *, nodes: int | None = None, least: int = 3) -> float:
        """Upper bound on the probability that an opened round reveals that a given participant was in it.

        That happens when, in one of `rounds` rounds, the participant was sampled and made the cohort just
        large enough to be opened.

        Without the participant it was one short: of the first cohort, or of any up to `least`, since some
        refuse sums over one or two, or of what adds noise beside the colluders. nodes: how many there are to
        sample from, if not the whole population. 0 unless cohorts are Poisson samples: the size of any
        other is known beforehand.
        """
        if self.sampling != "poisson" or self.expected == self.population:
            return 0.0
        others = (self.population if nodes is None else nodes) - 1
        short = math.floor(self.colluding / self._kept)
        likely = max(self._log_size(size, others) for size in range(short, max(short + 1, least)))
        mass = math.exp(min(0.0, likely))
        return min(1.0, 1.001 * rounds * self.sampling_probability * mass)  # 1.001: rounding

    def _log_size(self, size: int, nodes: int) -> float:
        """The logarithm of the probability that a Poisson sample of so many nodes has this size."""
        q = self.sampling_probability
        if size > nodes:
            return -math.inf
        ways = math.fsum(math.log((nodes - one) * q / (one + 1)) for one in range(size))
        return ways + (nodes - size) * math.log1p(-q)

    def delta_for_small_cohorts(self, delta: float, rounds: int) -> float:
        """The part of δ that pays for rounds whose success reveals who was sampled.

        There is a little to spare: not everybody may be there to be sampled from.
        """
        need = self.membership_leak_probability(rounds)
        return max(need, MEMBERSHIP_SHARE * delta) if need else 0.0

    def delta_left_for_noise(self, delta: float, rounds: int) -> float:
        """What is left of δ for the noise: in all other rounds amplification holds.

        Raises `PrivacyUnattainable` when nothing is left.
        """
        paid = self.delta_for_small_cohorts(delta, rounds)
        if paid >= delta:
            raise PrivacyUnattainable(
                f"cohorts of {self.expected} of {self.population} on average, {self.colluding} colluding: "
                f"with probability {paid:.2g}, above delta = {delta:g}, a round opens only because one "
                "participant was sampled, which reveals it; expect more participants, or take sampling "
                "'fixed' or 'none'"
            )
        return delta - paid

    def schedule(self, rounds: int) -> Schedule:
        """How often a participant's vector enters `rounds` rounds, as the accountant sees it."""
        return Schedule(
            rounds, self.sampling, self.expected, self.population, self.contribute, self.max_participations
        )

    def with_smallest_cap(self, rounds: int, exceeded: float = 1e-6) -> Self:
        """The same cohort with the smallest cap that a participant would rarely exceed.

        The probability to exceed it is below `exceeded`, in a run of `rounds` rounds with cohorts drawn as
        agreed.

        Example:

            >>> Cohort(2_400, 60_000, contribute=0.1).with_smallest_cap(1_000).max_participations
            73
        """
        return replace(self, max_participations=smallest_cap(rounds, self.sampling_probability, exceeded))

    @classmethod
    def everyone(cls, participants: int, **options: Any) -> Self:
        """A cohort that is not sampled: all participants, in every round. Options as for `Cohort`.

        Example:

            >>> Cohort.everyone(500).sampling_probability
            1.0
        """
        return cls(participants, participants, sampling="none", **options)
