"""Predicted error of a sum against bits on the wire, a line a mechanism: what `skelmix plan --plot` draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from skelmix.errors import PrivacyUnattainable
from skelmix.planning import Plan
from skelmix.studies.drawing import canvas, draw_line, finish, panel

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


def plot_error_against_bits(
    path: Path, build: Callable[..., Plan], *, bits: tuple[int, ...] = BITS, **settings: Any
) -> None:
    """Write a picture, PNG or SVG by the name of `path`, of build(**settings, bits=…, mechanism=…).

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
            chosen = settings | {"mechanism": mechanism, "bound": bound or settings["bound"], "bits": width}
            try:
                central = build(**chosen)
            except PrivacyUnattainable:  # no noise does it, or the bits cannot carry it
                continue
            points.append((float(width), central.predicted.effective_mse, 0.0))
        draw_line(at, line, points)
    if central is not None:
        ends = (float(min(bits)), float(max(bits)))
        draw_line(at, "gaussian-rdp", [(x, central.central_gaussian_mse_rdp, 0.0) for x in ends])
        draw_line(at, "gaussian-pld", [(x, central.central_gaussian_mse, 0.0) for x in ends])
    at.set_xticks(bits)
    finish(figure, path, columns=3)
