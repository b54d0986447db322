"""Predicted error of a sum against bits on the wire, a line a mechanism: what `skelmix plan --plot` draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skelmix.errors import PrivacyUnattainable
from skelmix.experiments.drawing import canvas, draw_line, finish, panel
from skelmix.plan import Cohort, Plan, PrivacyTarget, plan

BITS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)

#: line of the picture -> (mechanism, bound); None: the bound that was asked for
LINES: dict[str, tuple[str, str | None]] = {
    "smm-auto": ("smm", None),
    "smm-paper": ("smm", "paper"),
    "dgm-tight": ("dgm", None),
    "skellam": ("skellam", "paper"),
    "ddg": ("ddg", "paper"),
    "cpsgd": ("cpsgd", "tight"),
}


def plot_error_against_bits(path: Path, *, bits: tuple[int, ...] = BITS, **settings: Any) -> None:
    """Write a picture, PNG or SVG by the name of `path`, for a plan's settings without bits and mechanism.

    Each point is a plan with the best scale for its bits, or the scale given. A mechanism that cannot do it
    at some width has no point there. Raises `MissingExtra` without matplotlib.
    """
    figure, axes = canvas(1, 1, width=6.4, height=4.0)
    at = axes[0][0]
    panel(at, "", x="bits a coordinate", y="predicted mse of a coordinate of the sum", log=True)
    central: Plan | None = None
    for line, (mechanism, bound) in LINES.items():
        points = []
        for width in bits:
            found = _planned(settings | {"mechanism": mechanism, "bound": bound or settings["bound"]}, width)
            if found is not None:
                central = found
                points.append((float(width), found.predicted.unbiased, 0.0))
        draw_line(at, line, points)
    if central is not None:
        ends = (float(min(bits)), float(max(bits)))
        draw_line(at, "gaussian-rdp", [(x, central.central_gaussian_mse_rdp, 0.0) for x in ends])
        draw_line(at, "gaussian-pld", [(x, central.central_gaussian_mse, 0.0) for x in ends])
    at.set_xticks(bits)
    finish(figure, path, columns=3)


def _planned(settings: dict[str, Any], bits: int) -> Plan | None:
    """The plan at this width; None when no noise does it or the bits cannot carry it."""
    given = dict(settings)
    expected, population = given.pop("cohort"), given.pop("population")
    cohort = Cohort(
        expected=expected,
        population=expected if population is None else population,
        dropout_tolerance=given.pop("dropout_tolerance"),
        colluding=given.pop("colluding"),
        sampling=given.pop("sampling"),
    )
    try:
        return plan(
            PrivacyTarget(given.pop("epsilon"), given.pop("delta")), cohort=cohort, bits=bits, **given
        )
    except PrivacyUnattainable:
        return None
