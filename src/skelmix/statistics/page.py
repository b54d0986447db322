"""The answers as one HTML page that loads nothing: bars with error bars, a table and the privacy card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from skelmix.errors import MissingExtra
from skelmix.statistics.answers import Answer, Answers, Estimates
from skelmix.statistics.intervals import Estimate
from skelmix.statistics.sizing import StatisticsPlan
from skelmix.wording import up

_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
pre{overflow-x:auto;background:#f4f4f4;padding:1rem}.figure{height:22rem}.small{height:9rem}"""


def script() -> str:
    """What draws the figures, to be put into the page. Raises `MissingExtra` where it is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtra("the HTML report needs plotly: pip install 'skelmix[plot]'") from error
    return str(get_plotlyjs())


def page(answers: Answers, planned: StatisticsPlan) -> str:
    """One self-contained page of released numbers only."""
    interval = f"{100 * answers.level:g} % intervals"
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Private statistics</title>",
        f"<style>{_STYLE}</style><script>{script()}</script>",
        "<h1>Private statistics</h1>",
        f"<p>ε = {up(answers.epsilon)}, δ = {answers.delta:g} for one {escape(answers.unit)}, all answers "
        f"together; {planned.parties.count} parties. Error bars are {interval}: they are about these "
        "records, not about a population.</p>",
    ]
    for index, answer in enumerate(answers.answers):
        small = " small" if isinstance(answer.estimates, Estimate) else ""
        figure = json.dumps(_figure(answer), ensure_ascii=False).replace("<", "\\u003c")
        parts.append(
            f"<h2>{escape(str(answer.query))}</h2><div class='figure{small}' id=f{index}></div>"
            f"<script>(f => Plotly.newPlot('f{index}', f.data, f.layout, {{responsive: true}}))"
            f"({figure})</script>"
        )
    parts.append(f"<h2>Table</h2><pre>{escape(answers.table())}</pre>")
    parts.append(f"<h2>Privacy</h2><pre>{escape(str(planned.plan))}</pre></html>")
    return "\n".join(parts)


def _figure(answer: Answer) -> dict[str, Any]:
    margin = {"t": 10, "r": 10, "b": 50, "l": 70}
    layout: dict[str, Any] = {"margin": margin, "barmode": "group"}
    estimates = answer.estimates
    if isinstance(estimates, Estimate):
        trace = {
            "type": "scatter", "mode": "markers", "x": [estimates.value], "y": [""],
            "error_x": _error([estimates]), "marker": {"size": 10},
        }  # fmt: skip
        return {"data": [trace], "layout": layout}
    first = next(iter(estimates.values()))
    if isinstance(first, Mapping):
        data = [_bars({a: _inner(row, b) for a, row in estimates.items()}, b) for b in first]
        return {"data": data, "layout": layout | {"xaxis": {"type": "category"}}}
    return {"data": [_bars(estimates, "")], "layout": layout | {"xaxis": {"type": "category"}}}


def _inner(row: Estimates, label: str) -> Estimates:
    return row if isinstance(row, Estimate) else row[label]


def _bars(estimates: Mapping[str, Estimates], name: str) -> dict[str, Any]:
    rows = {label: found for label, found in estimates.items() if isinstance(found, Estimate)}
    values = [found.value for found in rows.values()]
    error = _error(list(rows.values()))
    return {"type": "bar", "name": name, "x": list(rows), "y": values, "error_y": error}


def _error(rows: list[Estimate]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [found.high - found.value for found in rows],
        "arrayminus": [found.value - found.low for found in rows],
    }
