"""A private sum as one HTML page that loads nothing: the numbers with their error, and the privacy card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from skelmix.display import Document, Fact, Figure, Table
from skelmix.planning.card import plan_sections
from skelmix.wording import beside_error, counted, figure, up

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skelmix.planning import Plan
    from skelmix.rounds.summation import PrivateSum

MOST_DRAWN = 200  # coordinates with a bar of their own
MOST_LISTED = 100  # coordinates with a line of their own


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
    divisor = result.participants if mean else None
    deviation = result.deviation / (divisor or 1)
    return Document(
        title="Private mean" if mean else "Private sum",
        verdict=result.report.verdict,
        alarm=result.report.reproducible,
        tiles=_tiles(released, result, deviation, mean),
        sections=plan_sections(released, divisor),
        figures=[*_values(deviation, estimate, mean, columns), _error(released, result)],
        tables=[_listed(deviation, estimate, mean, columns)],
        settings={name: str(value) for name, value in settings.items()},
    ).html()


def _tiles(plan: Plan, result: PrivateSum, deviation: float, mean: bool) -> list[Fact]:
    report = result.report
    observers, aggregator, *_ = report.guarantee
    who = "participant" if report.unit == "participant" else "silo"
    return [
        Fact(observers.name, observers.value, f"at δ = {up(report.delta)}"),
        Fact(aggregator.name, aggregator.value, aggregator.note),
        Fact(
            "error", f"± {figure(deviation)}", f"one standard deviation of each {'mean' if mean else 'sum'}"
        ),
        Fact("bits per number", f"{plan.rate:.3g}", f"{plan.upload_bytes:,} bytes per {who}"),
        Fact("added up", f"{result.participants:,}", counted(result.participants, who).split()[-1]),
        Fact("private", f"one {report.unit}", report.neighbours),
    ]


def _values(
    deviation: float, estimate: NDArray[np.float64], mean: bool, columns: Sequence[str] | None
) -> list[Figure]:
    if len(estimate) > MOST_DRAWN:
        return []
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


def _listed(
    deviation: float, estimate: NDArray[np.float64], mean: bool, columns: Sequence[str] | None
) -> Table:
    """The released values with their error: the first ones, and how many more there are."""
    what, number = ("mean" if mean else "sum"), len(estimate)
    names = list(columns or map(str, range(1, number + 1)))
    error = beside_error(deviation, deviation)
    rows = [
        (name, beside_error(float(value), deviation), error)
        for name, value in zip(names[:MOST_LISTED], estimate[:MOST_LISTED], strict=True)
    ]
    more = (
        f"These are the first {MOST_LISTED:,} of {number:,}; {number - MOST_LISTED:,} more are not listed. "
    )
    note = "±: one standard deviation of the error, without what clipping took from long vectors."
    return Table(
        f"Released {what}{'s' if number > 1 else ''}",
        ("column" if columns else "coordinate", what, "±"),
        rows,
        (more if number > MOST_LISTED else "") + note,
    )


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
