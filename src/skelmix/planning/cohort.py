"""Cohorts of participants with one vector each: the guarantee protects participants."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from skelmix.accounting.binomial_bounds import binomial
from skelmix.accounting.openings import (
    Dropouts,
    FixedSizeDropouts,
    PoissonDropouts,
    choose_least_survivors,
    opening_delta,
)
from skelmix.accounting.participations import smallest_cap
from skelmix.accounting.schedule import Schedule
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.planning.contributors import Contributors
from skelmix.validation import cohort_within, one_of, positive, whole

SAMPLINGS = ("poisson", "fixed", "none")

#: least share of δ that pays for rounds whose success reveals who was sampled
MEMBERSHIP_SHARE = 1e-9

#: the same where noise is drawn in pieces: then only colluders make a lower threshold cost more noise
OPENING_SHARE, LARGEST_OPENING_SHARE = 0.01, 0.5
#: shares of δ tried in turn; where the first suffices the second is still paid, in case some people are away
_BUDGETS = (0.001, OPENING_SHARE, 0.05, LARGEST_OPENING_SHARE)
_UNLIKELY = 1e-15  # cohort sizes with a smaller probability are left out


@dataclass(frozen=True)
class Cohort(Contributors):
    """Who takes part in a round, how they are drawn, and how many must survive.

    expected: participants expected in a round; population: participants in all. sampling: "poisson" (each
    joins independently with probability expected/population), "fixed" (exactly `expected`, without
    replacement) or "none" (everyone, always). dropout_tolerance: the fraction of a cohort that may drop
    out. colluding: participants of a round whose noise the adversary may know.

    dropout_rate: the largest probability with which a participant that was asked drops out of a round,
    independently of the others, of who was asked and of the order of a sparse graph; by default the
    tolerance. With sampled cohorts ε for observers is proved under this law, and a plan predicts from a
    stated rate how many rounds fail.
    least_survivors: chosen by `plan` for mechanisms whose noise comes in pieces: the fewest survivors that
    open a round of any size. Every opened sum then has the same noise. The tolerance then only says how many
    answers a round waits for: a round with more dropouts still opens, if it has `min_survivors`.

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
    dropout_rate: float | None = None
    least_survivors: int | None = None

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
        drawn = "not sampled" if self.sampling == "none" else self.sampling
        return f"{self.expected:,} of {self.population:,} ({drawn})"

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

    @property
    def divides_noise_into_pieces(self) -> bool:
        return super().divides_noise_into_pieces or (self._size_is_secret and self.colluding > 0)

    @property
    def _size_is_secret(self) -> bool:
        return self.sampling == "poisson" and self.expected < self.population

    @property
    def sampled(self) -> bool:
        """Whether cohorts are drawn at random, so that who is in them is a secret."""
        return self.expected < self.population

    @property
    def assumed_dropout_rate(self) -> float | None:
        """The dropout rate that amplified ε rests on; None where it rests on none."""
        if self.least_survivors is None or not (self.sampled and self.dropout_tolerance):
            return None
        return self.dropout_tolerance if self.dropout_rate is None else self.dropout_rate

    def _dropouts(self, nodes: int | None = None) -> Dropouts:
        """The law of a round's cohort and dropouts, drawn from this many nodes (by default the population).

        Where nobody may drop out, dropouts are left out of the law: any of them fails the round, with or
        without a given participant. Cohorts of a fixed size are drawn from the whole population only.
        """
        rate = self.assumed_dropout_rate or 0.0
        if self.sampling == "fixed":
            return FixedSizeDropouts(self.population, self.expected, rate)
        return PoissonDropouts(self.population if nodes is None else nodes, self.sampling_probability, rate)

    @property
    def _opening_reveals(self) -> bool:
        """Whether one participant's having been drawn may decide if a round opens or fails.

        It does not when all of a fixed number must survive, whoever they are.
        """
        dropouts = self.least_survivors is not None and self.dropout_tolerance > 0
        return self._size_is_secret or (self.sampled and dropouts)

    def with_least_survivors(self, delta: float, rounds: int) -> Self:
        plain = replace(self, least_survivors=None)
        tolerated = plain.min_survivors(self.expected)
        if not self.sampled:
            return replace(plain, least_survivors=tolerated)
        law = replace(plain, least_survivors=tolerated)._dropouts()
        reason: PrivacyUnattainable | None = None
        for malicious, budget in product((True, False), _BUDGETS):
            try:
                least = choose_least_survivors(
                    law, rounds, budget * delta, colluding=self.colluding, malicious=malicious
                )
            except PrivacyUnattainable as error:
                reason = reason or error
            else:
                return replace(plain, least_survivors=max(2, min(least, tolerated)))
        raise PrivacyUnattainable(
            f"{reason}. Whether a round opens would reveal who was sampled; with sampling 'none' it does not"
        )

    def membership_leak_probability(
        self, rounds: int, *, nodes: int | None = None, least: int = 3, malicious: bool = False
    ) -> float:
        """Upper bound on the probability that an opened round reveals that a given participant was in it.

        That happens when, in one of `rounds` rounds, the participant was sampled and made the cohort just
        large enough to be opened.

        least: every threshold up to this one is covered, since some nodes refuse sums over one or two
        participants, and at least the threshold that leaves noise beside the colluders'. With
        `least_survivors` the threshold is that number, and with malicious=True a majority. nodes: how many
        there are to sample from, by default the whole population; of more than that, a cohort may be larger
        than any that the plan knows, and not open either. The result is 0 unless cohorts are sampled; for
        cohorts of a fixed size also if nobody may drop out.
        """
        if not self._opening_reveals:
            return 0.0
        too_many = self._larger_than_population(rounds, nodes)
        if self.least_survivors is not None:
            least = max(self.least_survivors, least)
            law = self._dropouts(nodes)
            reveals = opening_delta(law, rounds, least, colluding=self.colluding, malicious=malicious)
            return min(1.0, too_many + reveals)
        others = (self.population if nodes is None else nodes) - 1
        short = math.floor(self.colluding / self._kept)
        likely = max(self._log_size(size, others) for size in range(short, max(short + 1, least)))
        mass = math.exp(min(0.0, likely))
        return min(1.0, too_many + 1.001 * rounds * self.sampling_probability * mass)  # 1.001: rounding

    def _larger_than_population(self, rounds: int, nodes: int | None) -> float:
        """Upper bound on the probability that a participant is drawn with `population` others or more."""
        if nodes is None or nodes <= self.population or not self._size_is_secret:
            return 0.0
        mass = binomial(nodes - 1, self.sampling_probability).at_least(self.population)
        return rounds * self.sampling_probability * mass

    def _log_size(self, size: int, nodes: int) -> float:
        """The logarithm of the probability that a Poisson sample of this many nodes has this size."""
        q = self.sampling_probability
        if size > nodes:
            return -math.inf
        ways = math.fsum(math.log((nodes - number) * q / (number + 1)) for number in range(size))
        return ways + (nodes - size) * math.log1p(-q)

    def opens_by_majority(self, delta: float, rounds: int) -> bool:
        """Whether δ pays for rounds that need a majority too, as those against a malicious server do."""
        if self.least_survivors is None or not self._opening_reveals:
            return True
        return self.membership_leak_probability(rounds, malicious=True) <= LARGEST_OPENING_SHARE * delta

    def delta_for_small_cohorts(self, delta: float, rounds: int) -> float:
        """The part of δ that pays for rounds whose success reveals who was sampled.

        It is a little more than the whole population needs, in case fewer people are there to sample from.
        """
        share = MEMBERSHIP_SHARE if self.least_survivors is None else OPENING_SHARE
        majority = self.opens_by_majority(delta, rounds)
        need = self.membership_leak_probability(rounds, malicious=majority)
        return max(need, share * delta) if need else 0.0

    def delta_left_for_noise(self, delta: float, rounds: int) -> float:
        """The rest of δ, which pays for the noise of all other rounds, where amplification holds.

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

    def _upload_counts(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        if not self._size_is_secret:
            return np.array([self.expected]), np.ones(1)
        sizes = binomial(self.population, self.sampling_probability)
        likely = np.flatnonzero(sizes.mass > _UNLIKELY)
        return sizes.first + likely, sizes.mass[likely]

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
