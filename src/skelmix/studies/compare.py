"""Predicted error of a sum against bits per weight, one line per mechanism: `skelmix plan --plot`."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.planning import Plan
from skelmix.studies.drawing import canvas, draw_line, finish, panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATES = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)

_TICKS = (0.0625, 0.25, 1.0, 4.0, 16.0)

#: line of the picture -> (mechanism, bound); None: the bound that was asked for
LINES: dict[str, tuple[str, str | None]] = {
    "smm-auto": ("smm", None),
    "smm-paper": ("smm", "paper"),
    "dgm-tight": ("dgm", None),
    "skellam": ("skellam", "paper"),
    "ddg": ("ddg", "paper"),
    "cpsgd": ("cpsgd", "tight"),
}


def plot_error_against_rate(
    path: Path, build: Callable[..., Plan], *, rates: tuple[float, ...] = RATES, **settings: Any
) -> None:
    """Write a picture, PNG or SVG by the name of `path`, of build(**settings, rate=…, mechanism=…).

    Each point is a plan with the best upload and scale for its rate, or the scale given. A mechanism that
    cannot do it at some rate has no point there: those that must send every coordinate end at about one bit
    per weight. Raises `MissingExtra` without matplotlib.
    """
    figure, axes = canvas(1, 1, width=6.4, height=4.0)
    at = axes[0][0]
    panel(at, "", x="bits per weight", y="predicted squared error per coordinate", log=True)
    central: Plan | None = None
    for line, (mechanism, bound) in LINES.items():
        points = []
        for rate in rates:
            options = settings | {"mechanism": mechanism, "bound": bound or settings["bound"], "rate": rate}
            try:
                central = build(**options)
            except (PrivacyUnattainable, InvalidInput):  # no noise suffices, or the bits cannot carry it
                continue
            points.append((rate, central.predicted.effective_mse, 0.0))
        draw_line(at, line, points)
    if central is not None:
        ends = (min(rates), max(rates))
        if math.isfinite(central.central_gaussian_mse_rdp):
            draw_line(at, "gaussian-rdp", [(x, central.central_gaussian_mse_rdp, 0.0) for x in ends])
        draw_line(at, "gaussian-pld", [(x, central.central_gaussian_mse, 0.0) for x in ends])
    _axis_of_rates(at)
    finish(figure, path, columns=3)


def _axis_of_rates(axes: Axes) -> None:
    """Rates by factors, each tick as a plain number."""
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def plot_comparison(path: Path, rows: list[dict[str, Any]], rates: list[dict[str, Any]]) -> None:
    """Write what `plan --compare` prints as a picture: bars by mechanism, and the error over rates.

    Raises `MissingExtra` without matplotlib.
    """
    figure, axes = canvas(1, 2, width=4.2, height=3.2)
    bars, line = axes[0]
    able = sorted((row for row in rows if "error" not in row), key=_relative)
    names = [row["mechanism"] for row in able]
    bars.barh(names, [_relative(row) for row in able], color="#0072B2")
    bars.invert_yaxis()
    bars.axvline(1.0, color="#777777", linestyle="--", linewidth=1)
    error = "squared error, times the central Gaussian's"
    panel(bars, "all mechanisms", x=error)
    panel(line, f"{rates[0]['mechanism']} over rates", x="bits per weight", y=error)
    points = sorted((row["rate"], _relative(row)) for row in rates if "error" not in row)
    line.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=4, color="#D55E00")
    _axis_of_rates(line)
    line.axhline(1.0, color="#777777", linestyle="--", linewidth=1)
    if able and _relative(able[-1]) > 10 * _relative(able[0]):
        bars.set_xscale("log")
    finish(figure, path)


def _relative(row: dict[str, Any]) -> float:
    return float(row["predicted"]["effective_mse"]) / float(row["central_gaussian_mse"])
