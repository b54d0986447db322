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
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skelmix.errors import MissingExtra
from skelmix.planning import privacy_report
from skelmix.rounds.files import storing, write_atomically

if TYPE_CHECKING:
    from skelmix.federated.trainer import Record, RunResult, Trainer
    from skelmix.planning import Plan

DIAGNOSTICS = "diagnostics-not-private"
COLUMNS = ("round", "private", "opened", "accuracy", "epsilon")
DIAGNOSTIC_COLUMNS = (
    "round", "private", "sampled", "survivors", "rms_norm", "clipped_fraction", "wrapped_fraction", "mse",
    "seconds", "broken",
)  # fmt: skip
UNPROTECTED = (
    "Cohort sizes, times, norms, clipping, wrapping and measured error are diagnostics of this simulation, "
    "computed from the sample and the participants' data without noise. The guarantee does not cover them: "
    "they were asked for with --diagnostics; do not keep or publish them for real data."
)
NOT_PRIVATE = "NOT PRIVATE: this run used a seed. Whoever knows the seed can subtract all the noise."


class Spent:
    """An upper bound on the ε after each round of a plan, from a few points proved beforehand.

    Between two points the later one is given.
    """

    def __init__(self, plan: Plan, points: int = 8) -> None:
        marks = {max(1, math.ceil(plan.rounds * (step / points) ** 2)) for step in range(1, points)}
        self._known = {plan.rounds: plan.report.epsilon}
        for rounds in sorted(marks - {plan.rounds}):
            part = privacy_report(
                plan.mechanism,
                bound=plan.report.bound,
                cohort=plan.cohort,
                rounds=rounds,
                delta=plan.target.delta,
            )
            self._known[rounds] = min(part.epsilon, plan.report.epsilon)

    def after(self, rounds: int) -> float:
        """An upper bound on ε after this many rounds; 0 before the first."""
        return 0.0 if rounds == 0 else self._known[min(mark for mark in self._known if mark >= rounds)]


def statement(plan: Plan, result: RunResult) -> str:
    """The privacy statement in plain words."""
    lines = [str(result.report)]
    if not result.private:
        lines.insert(0, NOT_PRIVATE + "\n")
    lines.append(
        f"  {result.rounds} of {plan.rounds} rounds were charged, {result.failed_rounds} gave no sum."
    )
    if result.lost_rounds:
        lines.append(
            f"  {result.lost_rounds} of the charged rounds were interrupted, and what they did to the model "
            "is lost; their sums may have been seen."
        )
    return "\n".join(lines)


def metrics_csv(history: Sequence[Record], spent: Spent, private: bool, *, header: bool = True) -> str:
    """One line per round, of what the guarantee covers; cells that were not measured are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    for record in history:
        writer.writerow(record | {"epsilon": spent.after(record["round"]), "private": private})
    return text.getvalue()


def diagnostics_csv(history: Sequence[Record]) -> str:
    """One line per round with diagnostics, each marked as not private; empty where there are none."""
    rows = [
        {"round": record["round"]} | record["diagnostics"] for record in history if "diagnostics" in record
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

        def add(records: Sequence[Record], header: bool = False) -> None:
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


def write(directory: Path, plan: Plan, result: RunResult, config: dict[str, Any], spent: Spent) -> Path:
    """Write metrics.csv, privacy.json and report.html into the run's directory; returns the report's path."""
    content = metrics_csv(result.history, spent, result.private)
    write_atomically(directory / "metrics.csv", content.encode())
    if notes := diagnostics_csv(result.history):
        write_atomically(directory / f"{DIAGNOSTICS}.csv", notes.encode())
    claimed = result.report.to_dict() | {"private": result.private, "statement": statement(plan, result)}
    write_atomically(directory / "privacy.json", json.dumps(claimed, indent=1).encode())
    path = directory / "report.html"
    write_atomically(path, html(plan, result, config, spent).encode())
    return path


def script() -> str:
    """What draws the figures, to be put into the page. Raises `MissingExtra` where it is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtra("the HTML report needs plotly: pip install 'skelmix[plot]'") from error
    return str(get_plotlyjs())


def html(plan: Plan, result: RunResult, config: dict[str, Any], spent: Spent) -> str:
    """The report as one page without any reference to the network.

    Figures, the predicted and the measured error, the statement.
    """
    rows = [("accuracy", "—" if result.accuracy is None else f"{result.accuracy:.4f}")]
    rows += [(name, f"{value:.6g}") for name, value in _errors(plan, result)]
    rows += [(str(key), str(value)) for key, value in config.items()]
    table = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    banner = "" if result.private else "<p class='warn'>NOT PRIVATE: made with a seed.</p>"
    unprotected = UNPROTECTED if any("diagnostics" in record for record in result.history) else ""
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>skelmix training run</title>
    <style>body{{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}
    th{{text-align:left;padding-right:2rem;font-weight:500}}pre{{background:#f4f4f4;padding:1rem;white-space:pre-wrap}}
    .warn{{background:#b00;color:#fff;padding:.5rem 1rem;font-weight:700}}</style>
    <script>{script()}</script></head><body><h1>Training run</h1>{banner}
    <h2>Privacy</h2><pre>{escape(statement(plan, result))}</pre> {_figures(plan, result.history, spent)}
    <p>{escape(unprotected)}</p><h2>Numbers</h2><table>{table}</table></body></html>"""


def _errors(plan: Plan, result: RunResult) -> list[tuple[str, float]]:
    notes = [record.get("diagnostics", {}) for record in result.history]
    measured = [note["mse"] for note in notes if "mse" in note]
    rows = [("predicted error per coordinate of the sum", plan.predicted.mse)]
    if measured:
        rows.append(
            ("measured error, mean over evaluated rounds (not private)", sum(measured) / len(measured))
        )
    return rows


def _figures(plan: Plan, history: list[Record], spent: Spent) -> str:
    evaluated = [record for record in history if "accuracy" in record]
    rounds = [record["round"] for record in history]
    accuracy = [record["round"] for record in evaluated], [record["accuracy"] for record in evaluated]
    panels = [
        ("Test accuracy", [("accuracy", *accuracy)]),
        ("ε spent (upper bound)", [("ε", rounds, [spent.after(count) for count in rounds])]),
    ]
    if any("diagnostics" in record for record in history):
        panels += _diagnostic_panels(plan, history)
    return "\n".join(_panel(f"figure{place}", title, lines) for place, (title, lines) in enumerate(panels))


Lines = list[tuple[str, list[int], list[float]]]


def _diagnostic_panels(plan: Plan, history: list[Record]) -> list[tuple[str, Lines]]:
    notes = [{"round": record["round"]} | record.get("diagnostics", {}) for record in history]

    def series(key: str) -> tuple[list[int], list[float]]:
        chosen = [note for note in notes if key in note]
        return [note["round"] for note in chosen], [note[key] for note in chosen]

    rounds = [note["round"] for note in notes]
    panels: list[tuple[str, Lines]] = [
        ("Norm of participants' vectors, root mean square", [("norm", *series("rms_norm"))]),
        ("Fraction of vectors clipped", [("clipped", *series("clipped_fraction"))]),
        ("Fraction of coordinates wrapped", [("wrapped", *series("wrapped_fraction"))]),
        (
            "Error of the sum, per coordinate",
            [("measured", *series("mse")), ("predicted", rounds, [plan.predicted.mse] * len(rounds))],
        ),
    ]
    return [(f"{title} (not private)", lines) for title, lines in panels]


def _panel(name: str, title: str, lines: Lines) -> str:
    data = [{"x": x, "y": y, "name": label, "mode": "lines"} for label, x, y in lines]
    layout = {
        "title": {"text": title},
        "height": 320,
        "xaxis": {"title": {"text": "round"}},
        "showlegend": len(lines) > 1,
    }
    content = json.dumps([data, layout]).replace("</", "<\\/")
    draw = f'(([d,l])=>Plotly.newPlot("{name}",d,l,{{displaylogo:false,responsive:true}}))'
    return f'<div id="{name}"></div><script>{draw}({content})</script>'
