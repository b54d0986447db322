"""What a run has spent so far: ε for observers, and ε for the aggregator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skelmix.planning import privacy_report
from skelmix.wording import counted, up

if TYPE_CHECKING:
    from skelmix.planning import Plan


@dataclass(frozen=True)
class PrivacySpent:
    """The privacy that the charged rounds of a plan have cost: all of it zero before the first.

    epsilon: for observers of the released models. epsilon_aggregator: for the aggregator, who sees who takes
    part; infinity where no claim is made. Both at `delta`, over `rounds` rounds.

    Example:

        >>> str(PrivacySpent(rounds=2, epsilon=0.5, epsilon_aggregator=1.25, delta=1e-5))
        'ε = 0.5 (aggregator 1.25), δ = 1e-05, after 2 rounds'
    """

    rounds: int
    epsilon: float
    epsilon_aggregator: float
    delta: float

    def __str__(self) -> str:
        return (
            f"ε = {up(self.epsilon)} (aggregator {up(self.epsilon_aggregator)}), δ = {self.delta:g}, after "
            f"{counted(self.rounds, 'round')}"
        )


def privacy_spent(plan: Plan, rounds: int) -> PrivacySpent:
    """What this many rounds of the plan cost, by the plan's own bound: never more than the plan states."""
    whole = plan.report
    if rounds == 0:
        return PrivacySpent(0, 0.0, 0.0, whole.delta)
    if rounds == plan.rounds:
        return PrivacySpent(rounds, whole.epsilon, whole.epsilon_aggregator, whole.delta)
    part = privacy_report(
        plan.mechanism, bound=whole.bound, cohort=plan.cohort, rounds=rounds, delta=plan.target.delta
    )
    return PrivacySpent(
        rounds,
        min(part.epsilon, whole.epsilon),
        min(part.epsilon_aggregator, whole.epsilon_aggregator),
        whole.delta,
    )
