"""What a privacy bound is: a theorem that turns a mechanism's noise into ε, and ε back into noise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from skelmix.accounting import calibration

if TYPE_CHECKING:
    from skelmix.accounting.gaussian import GaussianCertificate
    from skelmix.accounting.participations import Participations
    from skelmix.accounting.schedule import Schedule
    from skelmix.mechanisms.base import Mechanism

#: share of δ that pays for the total variation between a mechanism and its Gaussian certificate
SLACK_SHARE = 0.02

_MOST_SLACK = 0.01  # largest slack of one round: more would no longer be a small correction


@dataclass(frozen=True)
class ProvedEpsilon:
    """The ε that one bound proves, with its Rényi order or Gaussian certificate."""

    epsilon: float
    bound: Bound
    order: int | None = None
    certificate: GaussianCertificate | None = None


class Bound(ABC):
    """A theorem about the sums that a mechanism releases.

    name: how users call it. statement: what it is, in one line of a privacy report. certified: proved here,
    numerical error included, rather than a closed form of the literature. assumed: in words, what its numbers
    for sampled rounds assume without proof; empty when nothing. states_gdp: it proves the Gaussian
    differential privacy of a round; quick_certificate: within a second. renyi: it is accounted for by Rényi
    divergences. needs_every_coordinate: no subset may be sent. amplifies_fixed_cohorts: sampling cohorts of a
    fixed size lowers its ε.
    """

    name: ClassVar[str]
    statement: ClassVar[str]
    certified: ClassVar[bool] = True
    assumed: ClassVar[str] = ""
    states_gdp: ClassVar[bool] = False
    quick_certificate: ClassVar[bool] = False
    renyi: ClassVar[bool] = False
    needs_every_coordinate: ClassVar[bool] = False
    amplifies_fixed_cohorts: ClassVar[bool] = True

    def serves(self, schedule: Schedule, delta: float) -> bool:
        """Whether the theorem covers how cohorts are drawn, with numbers good enough for δ."""
        return True

    @abstractmethod
    def epsilon(
        self, mechanism: Mechanism, schedule: Schedule, delta: float, slack: float | None = None
    ) -> ProvedEpsilon:
        """ε of all rounds at δ for observers of the released sums; infinite when the bound says nothing.

        slack: the total variation that a Gaussian certificate may leave out per round; a good one is chosen
        when it is not given.
        """

    @abstractmethod
    def epsilon_aggregator(
        self,
        proved: ProvedEpsilon,
        mechanism: Mechanism,
        participations: Participations,
        contribute: float,
        delta: float,
    ) -> float:
        """ε for an adversary who sees in which rounds the participant takes part.

        proved: what `epsilon` found, its certificate included. participations: the law of the number of
        rounds in which the participant takes part. contribute: the probability with which it then secretly
        sends its vector rather than zero.
        """

    def against_aggregator(
        self, proved: ProvedEpsilon, mechanism: Mechanism, schedule: Schedule, delta: float
    ) -> tuple[float, float]:
        """Both ε against the aggregator: cohorts drawn as agreed, and the participant picked for every round.

        With a cap the first covers an aggregator that picks cohorts at will. Infinite for a trusted
        aggregator, who sees the vectors themselves.
        """
        if not mechanism.distributed:
            return math.inf, math.inf

        def epsilon(participations: Participations) -> float:
            by_bound = self.epsilon_aggregator(proved, mechanism, participations, schedule.contribute, delta)
            return max(proved.epsilon, by_bound)

        every_round = epsilon(schedule.at_will)
        if schedule.secret:  # it sees no more than observers do
            return proved.epsilon, every_round
        if schedule.seen_by_aggregator == schedule.at_will:
            return every_round, every_round
        return min(every_round, epsilon(schedule.seen_by_aggregator)), every_round

    def least_noise(
        self,
        build: Callable[[float], Mechanism],
        schedule: Schedule,
        epsilon: float,
        delta: float,
        *,
        multiplier: float,
        below: float = math.inf,
    ) -> float | None:
        """Least total noise with which `build(total_noise)` meets (ε, δ), on the private side.

        multiplier: noise multiplier of a Gaussian that meets the target; the search starts there. Returns
        None when it is not below `below`; raises `PrivacyUnattainable` when no noise meets the target.
        """

        def cost(noise: float) -> float:
            return self.epsilon(build(noise), schedule, delta).epsilon

        if below < math.inf:
            rival = build(below * (1 - 1e-4))
            if self.hopeless(rival, schedule, epsilon, delta) or cost(rival.total_noise) > epsilon:
                return None
        start = build(1.0).starting_noise(multiplier)
        # even a tiny radius may need some noise under this bound
        return calibration.least_noise(
            cost, epsilon, start * 1e-4, max(start, 1.0) * 1e8, guess=start, step=1.1
        )

    def hopeless(self, mechanism: Mechanism, schedule: Schedule, epsilon: float, delta: float) -> bool:
        """Whether a cheap lower bound on ε already exceeds the target."""
        return False


def slack_budget(epsilon: float, delta: float, schedule: Schedule) -> float:
    """The slack of one round's Gaussian certificate, such that all rounds together use `SLACK_SHARE` of δ."""
    budget = SLACK_SHARE * delta / (math.exp(min(epsilon, 500.0)) * schedule.rounds * schedule.rate)
    return min(budget, _MOST_SLACK)
