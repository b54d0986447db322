"""The answers as one HTML page that loads nothing: bars with error bars, a table and the privacy card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from skelmix.display import Document, Fact, Figure, Section, Table
from skelmix.planning.card import relative_error
from skelmix.statistics.answers import Answer, Answers, Estimates
from skelmix.statistics.intervals import Estimate
from skelmix.statistics.sizing import StatisticsPlan
from skelmix.wording import figure, up


def page(answers: Answers, planned: StatisticsPlan) -> str:
    """One self-contained page of released numbers only."""
    *sections, left_out = planned.plan.sections
    whom = Fact("other people", "the intervals are about these records, not about a population")
    return Document(
        title="Private statistics",
        verdict=planned.plan.report.verdict,
        tiles=_tiles(answers, planned),
        sections=(*sections, Section(left_out.title, (*left_out.facts, whom))),
        figures=[_figure(answer, answers.level) for answer in answers.answers],
        tables=[Table("Answers", [answers.columns[0], *answers.columns[2:]], _rows(answers))],
        settings={
            "question": "; ".join(str(answer.query) for answer in answers.answers),
            "parties": f"{planned.parties.count:,}",
            "records": f"{planned.parties.records:,}, stated beforehand",
            "intervals": f"{100 * answers.level:g} %, {'all at once' if planned.joint else 'each by itself'}",
        },
    ).html()


def _tiles(answers: Answers, planned: StatisticsPlan) -> list[Fact]:
    plan = planned.plan
    observers, aggregator, *_ = plan.report.guarantee
    return [
        Fact(observers.name, observers.value, f"at δ = {up(answers.delta)}"),
        Fact(aggregator.name, aggregator.value, aggregator.note),
        Fact("squared error", figure(relative_error(plan)), "times the central Gaussian's"),
        Fact("upload", f"{plan.round_bytes:,}", "bytes per party"),
        Fact("answers", f"{len(answers.answers):,}", f"from {planned.parties.count:,} parties"),
        Fact("private", f"one {answers.unit}", plan.report.neighbours),
    ]


def _rows(answers: Answers) -> list[list[str]]:
    """One row per number, each with the whole name of what it is."""
    rows, query = [], ""
    for heading, label, *numbers in answers.table_rows():
        query = heading or query
        rows.append([f"{query}: {label}" if label else query, *numbers])
    return rows


def _figure(answer: Answer, level: float) -> Figure:
    title, note = str(answer.query), f"error bars: {100 * level:g} % intervals"
    estimates = answer.estimates
    what, _, inside = title.partition("(")
    column = re.split(r"[,:)]", inside)[0] or "records"
    if isinstance(estimates, Estimate):
        trace = {
            "type": "scatter", "mode": "markers", "x": [estimates.value], "y": [what],
            "error_x": _error([estimates]), "marker": {"size": 11},
        }  # fmt: skip
        return Figure(title, column, "", [trace], note, small=True)
    first = next(iter(estimates.values()))
    traces = [_bars(estimates, "")]
    if isinstance(first, Mapping):
        traces = [_bars({a: _inner(row, b) for a, row in estimates.items()}, b) for b in first]
    return Figure(
        title, column, _unit(what), traces, note, {"xaxis": {"type": "category"}, "barmode": "group"}
    )


def _unit(what: str) -> str:
    """What the bars of a figure count."""
    return "records (estimate)" if what in ("count", "histogram") else "estimate"


def _inner(row: Estimates, label: str) -> Estimates:
    return row if isinstance(row, Estimate) else row[label]


def _bars(estimates: Mapping[str, Estimates], name: str) -> dict[str, Any]:
    rows = {label: estimate for label, estimate in estimates.items() if isinstance(estimate, Estimate)}
    values = [estimate.value for estimate in rows.values()]
    error = _error(list(rows.values()))
    return {"type": "bar", "name": name, "x": list(rows), "y": values, "error_y": error}


def _error(rows: list[Estimate]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [estimate.high - estimate.value for estimate in rows],
        "arrayminus": [estimate.value - estimate.low for estimate in rows],
    }
