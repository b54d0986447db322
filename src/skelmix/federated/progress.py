"""Lines about a run while it goes on, for logs and programs without a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from skelmix.wording import up

if TYPE_CHECKING:
    from skelmix.federated.round_record import RoundRecord
    from skelmix.federated.trainer import Trainer


def print_progress(trainer: Trainer, record: RoundRecord) -> None:
    """A callback for `Trainer` that prints a line after the first, each evaluated and the last round.

    It goes to stderr and states the accuracy, if it was measured, and upper bounds on ε so far, for observers
    and for the aggregator.

    Example: `Trainer(..., callbacks=[print_progress])`.
    """
    last = record.round == trainer.plan.rounds
    if record.accuracy is None and record.round > 1 and not last and record.round % trainer.evaluate_every:
        return
    spent = trainer.spent_by_round.at(record.round)
    accuracy = "" if record.accuracy is None else f"accuracy {record.accuracy:.4f}, "
    print(
        f"round {record.round:,} of {trainer.plan.rounds:,}: {accuracy}ε ≤ {up(spent.epsilon)} "
        f"(aggregator {up(spent.epsilon_aggregator)})",
        file=sys.stderr,
        flush=True,
    )
