"""The files that a run leaves behind for people.

metrics.csv, privacy.json and a self-contained report.html; and diagnostics.csv, where diagnostics were asked
for.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skelmix.display import card_text
from skelmix.federated.report_page import run_page, run_sections
from skelmix.rounds.files import storing, write_atomically
from skelmix.rounds.spent import PrivacySpent, privacy_spent

if TYPE_CHECKING:
    from skelmix.federated.round_record import RoundRecord
    from skelmix.federated.run_result import RunResult
    from skelmix.federated.trainer import Trainer
    from skelmix.planning import Plan

DIAGNOSTICS = "diagnostics-not-private"
COLUMNS = ("round", "private", "opened", "accuracy", "epsilon", "clip_norm", "within")
DIAGNOSTIC_COLUMNS = (
    "round", "private", "sampled", "survivors", "rms_norm", "clipped_fraction", "wrapped_fraction", "mse",
    "seconds", "broken",
)  # fmt: skip
NOT_PRIVATE = "NOT PRIVATE: this run used a seed. Whoever knows the seed can subtract all the noise."


class Spent:
    """An upper bound on the ε after each round of a plan, from a few points proved beforehand.

    Between two points the later one is given.
    """

    def __init__(self, plan: Plan, points: int = 8) -> None:
        marks = {max(1, math.ceil(plan.rounds * (step / points) ** 2)) for step in range(1, points)}
        self._known = {rounds: privacy_spent(plan, rounds) for rounds in (0, *sorted(marks | {plan.rounds}))}

    def after(self, rounds: int) -> float:
        """An upper bound on the observers' ε after this many rounds; 0 before the first."""
        return self.at(rounds).epsilon

    def at(self, rounds: int) -> PrivacySpent:
        """An upper bound on what this many rounds spend, for observers and for the aggregator."""
        known = self._known[min(mark for mark in self._known if mark >= rounds)]
        return replace(known, rounds=rounds)


def statement(plan: Plan, result: RunResult) -> str:
    """The privacy card of the run as text."""
    text = card_text(result.report.headline, run_sections(plan, result))
    return text if result.private else f"{NOT_PRIVATE}\n\n{text}"


def metrics_csv(history: Sequence[RoundRecord], spent: Spent, private: bool, *, header: bool = True) -> str:
    """One line per round, of what the guarantee covers; cells that were not measured are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    for record in history:
        writer.writerow(record.to_dict() | {"epsilon": spent.after(record.round), "private": private})
    return text.getvalue()


def diagnostics_csv(history: Sequence[RoundRecord]) -> str:
    """One line per round with diagnostics, each marked as not private; empty where there are none."""
    rows = [
        {"round": record.round} | record.diagnostics.to_dict() for record in history if record.diagnostics
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, DIAGNOSTIC_COLUMNS, extrasaction="ignore", lineterminator="\n")
    if rows:
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


@contextmanager
def live_metrics(path: Path, trainer: Trainer, spent: Spent) -> Iterator[None]:
    """Within the block, every round that the trainer finishes adds its line to the file."""
    with storing(path):
        file = path.open("w")
    with file:

        def add(records: Sequence[RoundRecord], header: bool = False) -> None:
            with storing(path):
                file.write(metrics_csv(records, spent, trainer.private, header=header))
                file.flush()

        add(trainer.history, header=True)
        before = trainer.callbacks
        trainer.callbacks += (lambda _, record: add([record]),)
        try:
            yield
        finally:
            trainer.callbacks = before


def write(
    directory: Path,
    plan: Plan,
    result: RunResult,
    config: dict[str, Any],
    spent: Spent,
    baseline: Path | None = None,
) -> Path:
    """Write metrics.csv, privacy.json and report.html into the run's directory; returns the report's path.

    baseline: the directory of a run of the central Gaussian, whose accuracy is drawn in if it is there.
    """
    content = metrics_csv(result.history, spent, result.private)
    write_atomically(directory / "metrics.csv", content.encode())
    if notes := diagnostics_csv(result.history):
        write_atomically(directory / f"{DIAGNOSTICS}.csv", notes.encode())
    claimed = result.report.to_dict() | {"private": result.private, "statement": statement(plan, result)}
    write_atomically(directory / "privacy.json", json.dumps(claimed, indent=1).encode())
    path = directory / "report.html"
    page = run_page(plan, result, config, spent, [] if baseline is None else accuracy_curve(baseline))
    write_atomically(path, page.encode())
    return path


def accuracy_curve(directory: Path) -> list[tuple[int, float]]:
    """(round, accuracy) where a run measured it, from its metrics.csv; nothing where there is none."""
    path = directory / "metrics.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            (int(row["round"]), float(row["accuracy"])) for row in csv.DictReader(file) if row["accuracy"]
        ]
