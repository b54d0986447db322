"""What a run leaves behind for people: metrics.csv, privacy.json and a self-contained report.html."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skelmix.claim import claim
from skelmix.errors import MissingExtra
from skelmix.federated.ledger import write_atomically

if TYPE_CHECKING:
    from skelmix.federated.trainer import Record, RunResult
    from skelmix.plan import Plan

COLUMNS = (
    "round", "opened", "sampled", "survivors", "accuracy", "epsilon", "rms_norm", "clipped_fraction",
    "wrapped_fraction", "mse", "seconds",
)  # fmt: skip
UNPROTECTED = (
    "Norms, clipping, wrapping and measured error are diagnostics of this simulation, computed from the "
    "participants' data without noise. The guarantee does not cover them: do not publish them for real data."
)


class Spent:
    """ε after so many rounds of a plan, from a few points proved beforehand; never less than what was spent.

    Between two points the later one is given, so the number is an upper bound.
    """

    def __init__(self, plan: Plan, points: int = 8) -> None:
        marks = {max(1, math.ceil(plan.rounds * (step / points) ** 2)) for step in range(1, points)}
        self._known = {plan.rounds: plan.report.epsilon}
        for rounds in sorted(marks - {plan.rounds}):
            part = claim(
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
    report = replace(plan.report, reproducible=not result.private)
    lines = [report.card()]
    if not result.private:
        lines.insert(
            0, "NOT PRIVATE: this run used a seed. Whoever knows the seed can subtract all the noise.\n"
        )
    if plan.mechanism.name == "gaussian":
        lines.append(
            "  - The aggregator is trusted with everybody's vector: central, not distributed, privacy."
        )
    lines.append(
        f"  {result.rounds} of {plan.rounds} rounds were charged, {result.failed_rounds} gave no sum."
    )
    return "\n".join(lines)


def metrics_csv(history: list[Record], spent: Spent) -> str:
    """One line a round; cells that were not measured are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in history:
        writer.writerow(record | {"epsilon": spent.after(record["round"])})
    return text.getvalue()


def write(directory: Path, plan: Plan, result: RunResult, config: dict[str, Any]) -> Path:
    """Write metrics.csv, privacy.json and report.html into the run's directory; returns the path of the
    report."""
    spent = Spent(plan)
    write_atomically(directory / "metrics.csv", metrics_csv(result.history, spent).encode())
    claimed = result.report.to_dict() | {"private": result.private, "statement": statement(plan, result)}
    write_atomically(directory / "privacy.json", json.dumps(claimed, indent=1).encode())
    path = directory / "report.html"
    write_atomically(path, html(plan, result, config, spent).encode())
    return path


def html(plan: Plan, result: RunResult, config: dict[str, Any], spent: Spent) -> str:
    """One page without any reference to the network: figures, the predicted and the measured error, the
    statement."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtra("the HTML report needs plotly: pip install 'skelmix[plot]'") from error
    rows = [("accuracy", "—" if result.accuracy is None else f"{result.accuracy:.4f}")]
    rows += [(name, f"{value:.6g}") for name, value in _errors(plan, result)]
    rows += [(str(key), str(value)) for key, value in config.items()]
    table = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    banner = "" if result.private else "<p class='warn'>NOT PRIVATE: made with a seed.</p>"
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>skelmix training run</title>
    <style>body{{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}
    th{{text-align:left;padding-right:2rem;font-weight:500}}pre{{background:#f4f4f4;padding:1rem;white-space:pre-wrap}}
    .warn{{background:#b00;color:#fff;padding:.5rem 1rem;font-weight:700}}</style>
    <script>{get_plotlyjs()}</script></head><body><h1>Training run</h1>{banner}
    <h2>Privacy</h2><pre>{escape(statement(plan, result))}</pre> {_figures(plan, result.history, spent)}
    <p>{escape(UNPROTECTED)}</p><h2>Numbers</h2><table>{table}</table></body></html>"""


def _errors(plan: Plan, result: RunResult) -> list[tuple[str, float]]:
    measured = [record["mse"] for record in result.history if "mse" in record]
    rows = [("predicted error a coordinate of the sum", plan.predicted.mse)]
    if measured:
        rows.append(("measured error, mean over evaluated rounds", sum(measured) / len(measured)))
    return rows


def _figures(plan: Plan, history: list[Record], spent: Spent) -> str:
    def series(key: str) -> tuple[list[int], list[float]]:
        chosen = [record for record in history if key in record]
        return [record["round"] for record in chosen], [record[key] for record in chosen]

    rounds = [record["round"] for record in history]
    panels = [
        ("Test accuracy", [("accuracy", *series("accuracy"))]),
        ("ε spent (upper bound)", [("ε", rounds, [spent.after(count) for count in rounds])]),
        ("Norm of participants' vectors, root mean square", [("norm", *series("rms_norm"))]),
        ("Fraction of vectors clipped", [("clipped", *series("clipped_fraction"))]),
        ("Fraction of coordinates wrapped", [("wrapped", *series("wrapped_fraction"))]),
        (
            "Error of the sum, a coordinate",
            [("measured", *series("mse")), ("predicted", rounds, [plan.predicted.mse] * len(rounds))],
        ),
    ]
    return "\n".join(_panel(f"figure{place}", title, lines) for place, (title, lines) in enumerate(panels))


def _panel(name: str, title: str, lines: list[tuple[str, list[int], list[float]]]) -> str:
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
