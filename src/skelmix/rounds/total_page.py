"""A private sum as one HTML page that loads nothing: the numbers with their error, and the privacy card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from skelmix.display import Document, Fact, Figure
from skelmix.wording import counted, figure, up

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skelmix.planning import Plan
    from skelmix.rounds.summation import PrivateSum

MOST_DRAWN = 200  # coordinates with a bar of their own; more are in the file only


def sum_page(
    plan: Plan,
    result: PrivateSum,
    estimate: NDArray[np.float64],
    settings: Mapping[str, Any],
    *,
    mean: bool = False,
    columns: Sequence[str] | None = None,
) -> str:
    """One page about one released sum, or mean: `estimate` is what was released; columns: its names."""
    released = replace(plan, report=result.report)
    return Document(
        title="Private mean" if mean else "Private sum",
        verdict=result.report.verdict,
        alarm=result.report.reproducible,
        tiles=_tiles(released, result),
        sections=released.sections,
        figures=[*_values(result, estimate, mean, columns), _error(released, result)],
        settings={name: str(value) for name, value in settings.items()},
    ).html()


def _tiles(plan: Plan, result: PrivateSum) -> list[Fact]:
    report = result.report
    observers, aggregator, *_ = report.guarantee
    who = "participant" if report.unit == "participant" else "silo"
    return [
        Fact(observers.name, observers.value, f"at δ = {up(report.delta)}"),
        Fact(aggregator.name, aggregator.value, aggregator.note),
        Fact("error", f"± {figure(result.deviation)}", "per coordinate of the sum, one standard deviation"),
        Fact("bits per number", f"{plan.rate:.3g}", f"{plan.upload_bytes:,} bytes per {who}"),
        Fact("added up", f"{result.participants:,}", counted(result.participants, who).split()[-1]),
        Fact("private", f"one {report.unit}", report.neighbours),
    ]


def _values(
    result: PrivateSum, estimate: NDArray[np.float64], mean: bool, columns: Sequence[str] | None
) -> list[Figure]:
    if len(estimate) > MOST_DRAWN:
        return []
    deviation = result.deviation / (result.participants if mean else 1)
    trace = {
        "type": "bar",
        "name": "estimate",
        "x": list(columns or range(1, len(estimate) + 1)),
        "y": [float(value) for value in estimate],
        "error_y": {"type": "data", "array": [2 * deviation] * len(estimate)},
    }
    what = "mean" if mean else "sum"
    note = "error bars: two predicted standard errors; clipping is not in them"
    return [
        Figure(
            f"Released {what}",
            "column" if columns else "coordinate",
            f"{what}, in the units of the input",
            [trace],
            note,
        )
    ]


def _error(plan: Plan, result: PrivateSum) -> Figure:
    """The parts of the error, beside a trusted aggregator's and, where known, the measured error."""
    parts = plan.predicted
    shares = {
        "noise": parts.noise, "rounding": parts.rounding, "wrapping": max(parts.wrap, 0.0),
        "not sent": parts.sketch, "bias": parts.bias,
    }  # fmt: skip
    bars = {"predicted": "predicted", "central": "central Gaussian"}
    traces: list[dict[str, Any]] = [
        {"type": "bar", "name": name, "x": [bars["predicted"]], "y": [value]}
        for name, value in shares.items()
        if value > 1e-3 * parts.mse
    ]
    traces.append(
        {"type": "bar", "name": bars["central"], "x": [bars["central"]], "y": [plan.central_gaussian_mse]}
    )
    if result.true_mse is not None:
        traces.append({"type": "bar", "name": "measured", "x": ["measured"], "y": [result.true_mse]})
    look = {"barmode": "stack", "xaxis": {"type": "category"}}
    return Figure("Error of the sum", "", "mean squared error per coordinate", traces, look=look)
