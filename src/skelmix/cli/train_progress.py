"""What `skelmix train` says while it runs, and when it has finished."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from skelmix.cli.console import err
from skelmix.wording import counted, up

if TYPE_CHECKING:
    from skelmix.federated.report import Spent
    from skelmix.federated.round_record import RoundRecord


class Live:
    """The note beside the progress bar, what matters most first: a narrow terminal has no room for all.

    ε so far, last accuracy, speed, ε for the aggregator, wrapped and clipped fractions.
    """

    def __init__(self, spent: Spent) -> None:
        self.spent, self.accuracy = spent, ""
        self.rounds, self.start = 0, time.perf_counter()

    def __call__(self, record: RoundRecord) -> str:
        if record.accuracy is not None:
            self.accuracy = f"acc {record.accuracy:.4f}"
        self.rounds += 1
        spent = self.spent.at(record.round)
        parts = [f"ε≤{up(spent.epsilon)}", *([self.accuracy] if self.accuracy else [])]
        parts.append(f"{self.rounds / (time.perf_counter() - self.start):.1f} rounds/s")
        parts.append(f"aggregator ε≤{up(spent.epsilon_aggregator)}")
        for name, label in (("wrapped_fraction", "wrapped"), ("clipped_fraction", "clipped")):
            if (value := getattr(record.diagnostics, name, None)) is not None:
                parts.append(f"{label} {value:.2%}")
        return "  ".join(parts)


def readable(rows: list[dict[str, Any]]) -> str:
    """The results of some runs, three lines each."""
    lines = []
    for row in rows:
        mark = "" if row["private"] else f"  NOT PRIVATE (seed {row['seed']})"
        other = [f"{up(e)} by {b}" for b, e in row.get("epsilon_by_bound", {}).items() if b != row["bound"]]
        also = f" ({', '.join(other)})" if other else ""
        failed = f" ({row['failed_rounds']} without a sum)" if row["failed_rounds"] else ""
        score = f", perplexity {row['perplexity']:.2f} per character" if "perplexity" in row else ""
        speed = f", {row['seconds_per_round']:.3f} s each" if row["seconds_per_round"] else ""
        lines += [
            f"{row['mechanism']} ({row['bound']}): accuracy {row['accuracy']:.4f}{score} "
            f"at ε = {up(row['epsilon'])}{also}, δ = {row['delta']:g}; "
            f"{counted(row['rounds'], 'round')}{failed}{speed}{mark}",
            f"  {row['report']}",
            f"  {row['model']} (the trained weights, a state_dict)",
        ]
    return "\n".join(lines)


@contextmanager
def after_the_round() -> Iterator[Callable[[Any, Any], None]]:
    """A callback that ends a run between two rounds once Ctrl-C was pressed. A second one ends it at once.

    An interrupt in the middle of a round would lose the round, or be taken for an error of the data.
    """
    pressed = False

    def press(*_: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        err.print("stopping after this round; Ctrl-C again stops at once")

    def stop(*_: object) -> None:
        if pressed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
