"""Panels as in the paper: small multiples, one shared legend, readable at a page's width.

Needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skelmix.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Line:
    """How one mechanism looks everywhere: colour-blind safe colours, and a marker for print in grey."""

    label: str
    colour: str
    marker: str
    style: str = "-"


LINES = {
    "gaussian-rdp": Line("central Gaussian (Rényi)", "#000000", "", "-"),
    "gaussian-pld": Line("central Gaussian (PLD)", "#777777", "", "--"),
    "dpsgd": Line("central DP-SGD, best accounting", "#777777", "", "--"),
    "smm-tight": Line("SMM, tight bound", "#D55E00", "o"),
    "smm-auto": Line("SMM, tight bound, planner's γ", "#E69F00", "*"),
    "smm-rate": Line("SMM at any rate: fewer coordinates", "#D55E00", "P"),
    "smm-dense": Line("SMM, all coordinates: fewer bits each", "#E69F00", "*"),
    "smm-paper": Line("SMM, paper's bound", "#0072B2", "s"),
    "dgm-paper": Line("DGM, paper's bound", "#56B4E9", "D"),
    "dgm-paper-integer": Line("DGM, paper's bound, integer σ", "#8B4513", "v"),
    "dgm-tight": Line("DGM, tight bound", "#882255", "<"),
    "skellam": Line("Skellam", "#009E73", "^"),
    "ddg": Line("DDG", "#CC79A7", "x", "--"),
    "cpsgd": Line("cpSGD", "#999933", "+", ":"),
}


def canvas(
    rows: int, columns: int, *, width: float = 2.6, height: float = 2.2, **shared: Any
) -> tuple[Figure, Any]:
    """A figure and its (rows, columns) array of axes. Raises `MissingExtra` without matplotlib."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("figures need matplotlib: pip install 'skelmix[plot]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(
        rows,
        columns,
        figsize=(width * columns, height * rows + 0.7),
        squeeze=False,
        layout="constrained",
        **shared,
    )


def draw_line(axes: Axes, name: str, points: Sequence[tuple[float, float, float]]) -> None:
    """One mechanism's points (x, y, spread), sorted by x; nothing for no points."""
    if not points:
        return
    look = LINES[name]
    x, y, spread = zip(*sorted(points), strict=True)
    options: dict[str, Any] = {"markersize": 4, "linewidth": 1.2, "capsize": 2, "elinewidth": 0.8}
    options |= {"color": look.colour, "marker": look.marker, "linestyle": look.style, "label": look.label}
    axes.errorbar(x, y, yerr=spread if any(spread) else None, **options)


def finish(figure: Figure, path: Path, *, columns: int = 4, title: str | None = None) -> list[Path]:
    """One legend below the panels, then `path` as .png and .svg, or as the one that its name says."""
    from matplotlib import pyplot

    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    order = [look.label for look in LINES.values() if look.label in entries]
    if order:
        figure.legend(
            [entries[label] for label in order],
            order,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            fontsize=9,
        )
    if title:
        figure.suptitle(title, fontsize=11)
    written = [path] if path.suffix in (".png", ".svg") else [Path(f"{path}.png"), Path(f"{path}.svg")]
    for picture in written:
        figure.savefig(picture, dpi=160, metadata={"Date": None} if picture.suffix == ".svg" else None)
    pyplot.close(figure)
    return written


def panel(axes: Axes, title: str, *, x: str = "", y: str = "", log: bool = False) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(True, which="major", linewidth=0.4, alpha=0.6)
    if log:
        axes.set_yscale("log")
