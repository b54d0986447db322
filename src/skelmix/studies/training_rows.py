"""The rows of a training study: means over seeds, tables, and the paper's nine panels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from skelmix.studies.drawing import LINES, canvas, draw_line, finish, panel
from skelmix.studies.grid import Grid
from skelmix.studies.rows import Row
from skelmix.studies.verdicts import Claim

CENTRAL = ("gaussian-rdp", "gaussian-pld")
SCALES = {6: 16.0, 8: 64.0, 10: 256.0}
#: γ given by hand at the fewest bits
GIVEN_SCALES = {3: 1.2, 2: 0.5}
EPSILONS = (1.0, 2.0, 3.0, 4.0, 5.0)


@dataclass(frozen=True)
class Mean:
    """Accuracy in percent over the seeds; `spread` is the standard deviation over them, 0 for one seed."""

    value: float
    spread: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.value:.2f}" + (f" ± {self.spread:.2f}" if self.seeds > 1 else "")


class Accuracies:
    """Mean accuracies of one data set by setting."""

    def __init__(self, rows: Iterable[Row], dataset: str) -> None:
        self._known: dict[tuple[Any, ...], list[float]] = {}
        for row in rows:
            if row["dataset"] == dataset and row["accuracy"] is not None:
                place = (row["line"], row["bits"], row["asked_scale"], row["epsilon"], row["batch"])
                self._known.setdefault(place, []).append(100 * row["accuracy"])

    def at(self, line: str, bits: int, scale: float, epsilon: float, batch: int = 240) -> Mean | None:
        """The mean at a setting; None when not measured.

        The central Gaussian has no bits, the planner's line no scale.
        """
        own_bits = None if line in CENTRAL else bits
        own_scale = None if line in CENTRAL or line == "smm-auto" else scale
        accuracies = self._known.get((line, own_bits, own_scale, epsilon, batch))
        return (
            None
            if not accuracies
            else Mean(fmean(accuracies), stdev(accuracies) if len(accuracies) > 1 else 0.0, len(accuracies))
        )

    def gap(self, above: tuple[Any, ...], below: tuple[Any, ...]) -> float | None:
        """Points of accuracy by which one setting is above another; None when either is not measured."""
        high, low = self.at(*above), self.at(*below)
        return None if high is None or low is None else high.value - low.value


def claim_of_cases(text: str, source: str, holds: Iterable[tuple[str, float | None, bool]]) -> Claim:
    """A claim with its few numbers in full; not measured when any of them is missing."""
    cases = list(holds)
    numbers = ", ".join(f"{case}: {value:.2f}" for case, value, _ in cases if value is not None) or "no rows"
    if not cases or any(value is None for _, value, _ in cases):
        return Claim(text, source, None, numbers)
    return Claim(text, source, all(fine for _, _, fine in cases), numbers)


def words(rows: Sequence[Row]) -> list[str]:
    """Sentences that hold for every row."""
    return ["Each run used reproducible randomness and is therefore *not private*: it compares mechanisms."]


def tables(rows: Sequence[Row], dataset: str) -> list[Grid]:
    """Accuracy against ε for each modulus, then against bits."""
    known, grids = Accuracies(rows, dataset), []
    for bits, scale in SCALES.items():
        body = []
        for line, look in LINES.items():
            means = [known.at(line, bits, scale, epsilon) for epsilon in EPSILONS]
            if any(mean is not None for mean in means):
                seeds = {mean.seeds for mean in means if mean is not None}
                counted = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)}–{max(seeds)}"
                body.append([look.label, *("–" if mean is None else str(mean) for mean in means), counted])
        columns = ["mechanism", *(f"ε = {epsilon:g}" for epsilon in EPSILONS), "seeds"]
        if body:
            grids.append(Grid(f"{dataset}: test accuracy in %, m = 2^{bits}, γ = {scale:g}", columns, body))
    widths = [(bits, known.at("smm-auto", bits, 0.0, 3.0)) for bits in (2, 3, 4, 5, 6, 8, 10)]
    body = [[str(bits), str(mean), str(mean.seeds)] for bits, mean in widths if mean is not None]
    if body:
        grids.append(
            Grid(f"{dataset}: SMM tight at the planner's γ, ε = 3", ["bits", "accuracy in %", "seeds"], body)
        )
    return grids


def draw(rows: Sequence[Row], path: Path, dataset: str) -> list[Path]:
    """The paper's panels, one row per modulus, then accuracy against bits.

    Accuracy against ε, |B| and γ. cpSGD is left out, as in the paper.
    """
    known = Accuracies(rows, dataset)
    figure, axes = canvas(3, 3, width=3.4, height=2.4)
    letters = iter("abcdefghi")
    for place, (bits, scale) in enumerate(SCALES.items()):
        scales = [2.0**bits / part for part in (32, 16, 8, 4, 2, 1)]
        across: list[tuple[str, list[tuple[float, tuple[Any, ...]]], str]] = [
            ("ε", [(e, (bits, scale, e)) for e in EPSILONS], f"γ = {scale:g}, |B| = 240"),
            ("|B|", [(b, (bits, scale, 3.0, b)) for b in (120, 240, 480, 960)], f"γ = {scale:g}, ε = 3"),
            ("γ", [(g, (bits, g, 3.0)) for g in scales], "ε = 3, |B| = 240"),
        ]
        for column, (label, points, fixed) in enumerate(across):
            at = axes[place][column]
            title = f"({next(letters)}) m = 2$^{{{bits}}}$, {fixed}"
            panel(at, title, x=label, y="accuracy (%)" if column == 0 else "")
            if column:
                at.set_xscale("log", base=2)
                at.set_xticks([x for x, _ in points], [f"{x:g}" for x, _ in points])
                at.minorticks_off()
                at.set_xlim(points[0][0] / 1.2, points[-1][0] * 1.2)  # also when few points are measured
            for line in LINES:
                if line != "cpsgd" and not (label == "γ" and line == "smm-auto"):
                    _draw_points(at, line, known, points)
    return [*finish(figure, path), *_draw_bits(rows, Path(f"{path}-bits"), dataset)]


def _draw_points(
    at: Any, line: str, known: Accuracies, points: Sequence[tuple[float, tuple[Any, ...]]]
) -> None:
    means = [(x, known.at(line, *setting)) for x, setting in points]
    draw_line(at, line, [(x, mean.value, mean.spread) for x, mean in means if mean is not None])


def _draw_bits(rows: Sequence[Row], path: Path, dataset: str) -> list[Path]:
    known = Accuracies(rows, dataset)
    figure, axes = canvas(1, 1, width=6.0, height=3.4)
    at = axes[0][0]
    widths = (2, 3, 4, 5, 6, 8, 10)
    panel(at, f"{dataset}, ε = 3, |B| = 240", x="bits per coordinate on the wire", y="accuracy (%)")
    for line in LINES:
        if line != "cpsgd":
            points = [(float(bits), (bits, (SCALES | GIVEN_SCALES).get(bits, 0.0), 3.0)) for bits in widths]
            _draw_points(at, line, known, points)
    at.set_xticks(widths)
    best = known.at("gaussian-pld", 8, 0.0, 3.0)
    if best is not None:
        at.set_ylim(best.value - 12, best.value + 1)
    return finish(figure, path, columns=3)
