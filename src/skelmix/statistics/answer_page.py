"""The answers as one HTML page that loads nothing: bars with error bars, a table and the privacy card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skelmix.display import Document, Fact, Figure, Section, Table
from skelmix.planning.card import relative_error
from skelmix.statistics.answers import Answer, Answers, Estimates
from skelmix.statistics.intervals import Estimate
from skelmix.statistics.queries import CrossTable, Histogram, Quantiles, Top
from skelmix.statistics.sizing import StatisticsPlan
from skelmix.wording import figure, up

if TYPE_CHECKING:
    from skelmix.planning import Plan

_NUMBERS = {"tickformat": ","}  # 9,990 and not 0.999 x 10^4


def sections(plan: Plan) -> tuple[Section, ...]:
    """The privacy card of answers: the plan's facts, and whom the intervals are about."""
    *rest, left_out = plan.sections
    whom = Fact("other people", "the intervals are about these records, not about a population")
    return (*rest, Section(left_out.title, (*left_out.facts, whom)))


def page(answers: Answers, planned: StatisticsPlan) -> str:
    """One self-contained page of released numbers only."""
    together = "all at once" if planned.joint else "each by itself"
    return Document(
        title="Private statistics",
        verdict=planned.plan.report.verdict,
        tiles=_tiles(answers, planned),
        sections=sections(planned.plan),
        figures=[_figure(answer, answers.level) for answer in answers.answers],
        tables=[Table("Answers", [answers.columns[0], *answers.columns[2:]], _rows(answers))],
        settings={
            "question": "; ".join(str(answer.query) for answer in answers.answers),
            "parties": f"{planned.parties.count:,}",
            "records": f"{planned.parties.records:,}, stated beforehand",
            "intervals": f"{100 * answers.level:.12g} %, {together}",
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
    query, note = answer.query, f"error bars: {100 * level:.12g} % intervals"
    estimates = answer.estimates
    look: dict[str, Any] = {"xaxis": _NUMBERS}
    if isinstance(estimates, Estimate):
        trace = {
            "type": "scatter", "mode": "markers", "x": [estimates.value], "y": [str(query).partition("(")[0]],
            "error_x": _error([estimates]), "marker": {"size": 11},
        }  # fmt: skip
        return Figure(str(query), getattr(query, "column", "records"), "", [trace], note, look, small=True)
    look = {"xaxis": {"type": "category"}, "yaxis": _NUMBERS, "barmode": "group"}
    traces = [_bars(estimates, "")]
    if isinstance(query, Quantiles):
        return Figure(str(query), "quantile", query.column, traces, note, look)
    if isinstance(query, CrossTable):
        second = query.second
        traces = [
            _bars({a: _inner(row, b) for a, row in estimates.items()}, f"{second.column}: {b}")
            for b in second.domain.labels
        ]
        return Figure(str(query), query.first.column, "records (estimate)", traces, note, look)
    column = query.axis.column if isinstance(query, Histogram | Top) else ""
    return Figure(str(query), column, "records (estimate)", traces, note, look)


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
