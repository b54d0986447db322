"""Record-level privacy over ten silos, beside central DP-SGD and beside noise that each silo adds alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from skelmix.planning import Cohort, Plan, PrivacyTarget, Silos, account, plan
from skelmix.studies import training, training_rows
from skelmix.studies.drawing import canvas, finish, panel
from skelmix.studies.grid import Grid, number
from skelmix.studies.rows import Row
from skelmix.studies.study import Study
from skelmix.studies.verdicts import Claim, judged

COUNT = 10
SKEW = 0.5
MEASURES = (*training.MEASURES, "mse", "epsilon_observers", "epsilon_aggregator")


@dataclass(frozen=True)
class _Line:
    """One way to protect the records: its name in tables, its bits, and how the silos' labels are mixed."""

    label: str
    bits: int | None
    skew: float | None = None


#: central DP-SGD first; "per-site" is the same with the noise of ten silos that trust nobody
LINES = {
    "gaussian-pld": _Line("central DP-SGD (PLD): a trusted server sees every record", None),
    "silos": _Line("ten silos, records shuffled", 8),
    "silos-skew": _Line(f"ten silos, label skew {SKEW:g}", 8, SKEW),
    "per-site": _Line("per-site DP-SGD: each silo adds all the noise itself", None),
}


def cells(quick: bool, seeds: int | None) -> list[Row]:
    """MNIST, ε = 3, batch 240, 1,000 rounds, three seeds. quick: a few rounds, one seed."""
    return [
        training.cell(
            "mnist", name, line.bits, None, 3.0, seed, rounds=training.QUICK_ROUNDS if quick else None
        )
        for seed in range(seeds or (1 if quick else 3))
        for name, line in LINES.items()
    ]


def measure(cell: Row) -> Row:
    """Plan and train once. Repeatable from the seed, so not private: for experiments only."""
    from skelmix.datasets.catalogue import load
    from skelmix.datasets.partition import Partition, equal_shares, label_skew
    from skelmix.studies.training_run import model_dimension, train_once

    names = ("line", "epsilon", "delta", "batch", "rounds", "alignment")
    plan = _plan(model_dimension(cell["dataset"]), **{name: cell[name] for name in names})
    silos: Partition | None = None
    if isinstance(plan.cohort, Silos):
        labels, skew = load(cell["dataset"]).train_labels, LINES[cell["line"]].skew
        share = len(labels) // COUNT
        silos = equal_shares(len(labels), share) if skew is None else label_skew(labels, COUNT, skew)
    result = train_once(plan, dataset=cell["dataset"], seed=cell["seed"], silos=silos, diagnostics=True)
    notes = result.history[-1].diagnostics
    return training.measures_of(plan, result) | {
        "mse": None if notes is None else notes.mse,
        "epsilon_observers": plan.report.epsilon,
        "epsilon_aggregator": plan.report.epsilon_aggregator,
    }


@lru_cache(maxsize=8)
def _plan(
    dimension: int, *, line: str, epsilon: float, delta: float, batch: int, rounds: int, alignment: float
) -> Plan:
    """The plan of one line.

    Per-site noise is the central Gaussian's, once for each silo: the sum of what the silos would send, each
    protected on its own, has just this law.
    """
    target = PrivacyTarget(epsilon, delta)
    shared: dict[str, Any] = {"dimension": dimension, "rounds": rounds, "alignment": alignment}
    if (bits := LINES[line].bits) is not None:
        return plan(target, cohort=Silos(COUNT, training.POPULATION, batch), bits=bits, **shared)
    shared |= {"cohort": Cohort(batch, training.POPULATION), "bits": 32, "mechanism": "gaussian"}
    central = plan(target, **shared)
    if line == "gaussian-pld":
        return central
    noise, scale = central.mechanism.noise * COUNT**0.5, central.mechanism.scale
    return account(noise=noise, delta=delta, scale=scale, **shared)


def _accuracies(rows: Sequence[Row], line: str) -> list[float]:
    return [100 * row["accuracy"] for row in rows if row["line"] == line and row["accuracy"] is not None]


def _errors(rows: Sequence[Row], line: str) -> list[float]:
    """Measured squared errors of a line's sums; the predicted one stands in for borrowed rows."""
    own = [row for row in rows if row["line"] == line and row["accuracy"] is not None]
    return [row["mse"] if row.get("mse") is not None else row["predicted_mse"] for row in own]


def _predicted(rows: Sequence[Row], line: str) -> float:
    """The squared error that the plan of a line predicts."""
    return fmean(row["predicted_mse"] for row in rows if row["line"] == line)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """What silos promise: central DP-SGD's accuracy, one ε for all, a tenth of the noise of single sites."""
    source, silos = "Silos", ("silos", "silos-skew")
    central, alone = _accuracies(rows, "gaussian-pld"), _errors(rows, "per-site")
    near, factor = [], []
    for line in silos:
        if central and (own := _accuracies(rows, line)):
            gap = fmean(central) - fmean(own)
            near.append((line, gap, gap <= 0.3))
        if alone and (errors := _errors(rows, line)):
            ratio = fmean(alone) / fmean(errors)
            factor.append((line, ratio, ratio >= _predicted(rows, "per-site") / _predicted(rows, line)))
    same = [
        (f"{row['line']}, seed {row['seed']}", row["epsilon_aggregator"], _same_epsilon(row))
        for row in rows
        if row["line"] in silos and row.get("epsilon_aggregator") is not None
    ]
    return [
        judged("Silos are within 0.3 points of central DP-SGD", source, near, "points, central over silos"),
        judged("One ε holds for observers and aggregator", source, same, "ε of the aggregator"),
        judged(
            "Single sites have the predicted multiple of the error: ten times the noise, less the rounding",
            source,
            factor,
            "squared error, sites over silos",
        ),
    ]


def _same_epsilon(row: Row) -> bool:
    return bool(row["epsilon_aggregator"] == row["epsilon_observers"] <= row["epsilon"])


def tables(rows: Sequence[Row]) -> list[Grid]:
    body = []
    for line, look in LINES.items():
        if own := _accuracies(rows, line):
            spread = f" ± {stdev(own):.2f}" if len(own) > 1 else ""
            error = number(fmean(_errors(rows, line)))
            predicted = number(_predicted(rows, line))
            body.append([look.label, f"{fmean(own):.2f}{spread}", error, predicted, str(len(own))])
    columns = ["how records are protected", "accuracy in %", "squared error", "predicted", "seeds"]
    return [Grid("mnist: ε = 3 per record, δ = 1e-5, 240 of 60,000 records per round", columns, body)]


def words(rows: Sequence[Row]) -> list[str]:
    return [
        *training_rows.words(rows),
        "The squared error is that of the sum of a round's clipped gradients, measured in the last round, "
        "per coordinate and in units of the clip norm; rows borrowed from Figure 2 give the predicted one. "
        "That of silos counts the rounding to integers, too. One round's measurement has a standard "
        "error of 0.6 %, and runs with one seed share their noise.",
    ]


def draw(rows: Sequence[Row], path: Path) -> list[Path]:
    """A point per run, a column per way of protection."""
    figure, axes = canvas(1, 1, width=6.0, height=3.4)
    at = axes[0][0]
    panel(at, "mnist, ε = 3, |B| = 240", x="", y="accuracy (%)")
    for place, line in enumerate(LINES):
        own = _accuracies(rows, line)
        at.plot([place] * len(own), own, "o", color="#D55E00" if line.startswith("silos") else "#000000")
    at.set_xticks(range(len(LINES)), ["central", "silos", f"silos, skew {SKEW:g}", "per-site"])
    at.set_xlim(-0.5, len(LINES) - 0.5)
    return finish(figure, path)


STUDY = Study(
    name="silos",
    title="Silos: record-level privacy without a trusted server",
    revision=1,
    settings=training.SETTINGS,
    measures=MEASURES,
    cells=cells,
    measure=measure,
    draw=draw,
    claims=claims,
    tables=tables,
    words=words,
    borrow=("figure2",),
    seconds_per_setting=90.0,
)
