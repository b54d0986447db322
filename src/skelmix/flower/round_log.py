"""What the server's log says about each round: its number in Flower, its outcome and its cost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from skelmix.rounds.spent import privacy_spent
from skelmix.wording import counted, figure, up

if TYPE_CHECKING:
    from flwr.app import Message, MetricRecord

    from skelmix.flower.grid import RoundRecord
    from skelmix.planning import Plan

log = logging.getLogger("flwr.skelmix")

_OF_PEOPLE = (
    "make one public on the nodes, if it may be known of each: "
    'make_mod(ClientPolicy(public_metrics=("loss",)))'
)
_OF_SILOS = "under a plan for silos none leaves a node: evaluate on public data"


def server_round(message: Message, otherwise: int) -> int:
    """The number that Flower's strategy gives to the round of a train message."""
    for record in message.content.config_records.values():
        number = record.get("server-round")
        if isinstance(number, int):
            return number
    return otherwise


class RoundLog:
    """Lines about the rounds of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._withheld_said = plan, False

    def opened(self, record: RoundRecord, rounds_charged: int, metrics: MetricRecord) -> None:
        """Say what went into the sum, what is spent and left, and once that metrics are withheld."""
        line = (
            f"sum of {record.survivors} of {counted(record.cohort, 'node')} in "
            f"{counted(record.waves, 'wave')}, {record.seconds:.1f} s"
        )
        if record.within is not None:
            line += f", {record.within:.0%} of updates within the clip norm of {record.clip_norm:.3g}"
        log.info("round %d: %s; %s", record.server_round, line, self._spent(rounds_charged))
        if len(metrics) == 1 and not self._withheld_said:  # the weight alone
            self._withheld_said = True
            people = self._plan.cohort.unit == "participant"
            log.info("metrics of training: withheld (%s)", _OF_PEOPLE if people else _OF_SILOS)

    def skipped(self, record: RoundRecord, rounds_charged: int, *, charged: bool) -> None:
        """Say why there is no sum, and whether the round cost anything."""
        cost = "charged" if charged else "not charged"
        log.warning(
            "round %d: skipped, %s: %s; %s",
            record.server_round, cost, record.reason, self._spent(rounds_charged),
        )  # fmt: skip

    def _spent(self, rounds: int) -> str:
        """ε so far and what is left of the plan's, for observers and the aggregator."""
        plan, spent = self._plan, privacy_spent(self._plan, rounds)
        whole = plan.report
        pairs = (
            ("ε", spent.epsilon, whole.epsilon),
            ("aggregator", spent.epsilon_aggregator, whole.epsilon_aggregator),
        )
        parts = [f"{name} {up(used)} spent, {figure(total - used)} left" for name, used, total in pairs]
        return f"{'; '.join(parts)}; {counted(plan.rounds - rounds, 'round')} left"
