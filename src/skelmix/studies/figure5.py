"""Figure 5 of the paper: training with the discrete Gaussian mixture, DGM, on both data sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skelmix.studies import training, training_rows
from skelmix.studies.drawing import LINES, canvas, draw_line, finish, panel
from skelmix.studies.grid import Grid
from skelmix.studies.rows import Row
from skelmix.studies.study import Study
from skelmix.studies.training_rows import CENTRAL, EPSILONS, SCALES, Accuracies
from skelmix.studies.verdicts import Claim, judged

DATASETS = ("mnist", "fashion-mnist")
AT_SCALE = ("dgm-paper-integer", "dgm-paper", "dgm-tight", "smm-paper", "smm-tight")


def cells(quick: bool, seeds: int | None) -> list[Row]:
    """ε = 3 first. quick: a few rounds at 8 bits."""
    if quick:
        lines = ("dgm-paper-integer", "smm-paper")
        return [
            training.cell(d, ln, 8, 64.0, 3.0, seed, rounds=training.QUICK_ROUNDS)
            for seed in range(seeds or 1)
            for d in DATASETS
            for ln in lines
        ]
    rows = []
    for seed in range(seeds or 2):
        for e in (3.0, 1.0, 5.0, 2.0, 4.0):
            for dataset in DATASETS:
                rows += [training.cell(dataset, line, None, None, e, seed) for line in CENTRAL]
                rows += [
                    training.cell(dataset, line, bits, SCALES[bits], e, seed)
                    for bits in SCALES
                    for line in AT_SCALE
                ]
    return rows


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The sentences of Appendix B.3 about training."""
    source, alike, low, sigmas = "Appendix B.3", [], [], []
    for dataset in DATASETS:
        known = Accuracies(rows, dataset)
        for bits in (8, 10):
            for e in EPSILONS:
                gap = known.gap(
                    ("smm-paper", bits, SCALES[bits], e), ("dgm-paper-integer", bits, SCALES[bits], e)
                )
                if gap is not None:
                    alike.append((f"{dataset}, 2^{bits}, ε = {e:g}", gap, abs(gap) <= 2))
        mean = known.at("dgm-paper-integer", 6, 16.0, 1.0)
        if mean is not None:
            low.append((dataset, mean.value, mean.value < 50))
    for row in rows:
        if row["line"] == "dgm-paper-integer" and row["bits"] == 6 and row["epsilon"] >= 2 and row["noise"]:
            sigmas.append((f"{row['dataset']}, ε = {row['epsilon']:g}", row["noise"], row["noise"] == 1))
    same = "At m = 2^6 the integer σ is the same, 1, for ε = 2, 3, 4, 5"
    return [
        judged("DGM is within 2 points of SMM at m = 2^8 and 2^10", source, alike, "points, SMM over DGM"),
        judged("At m = 2^6, ε = 1, DGM overflows (below 50 %)", source, low, "accuracy"),
        judged(same, source, sigmas, "σ of a participant"),
    ]  # fmt: skip


def tables(rows: Sequence[Row]) -> list[Grid]:
    return [grid for dataset in DATASETS for grid in training_rows.tables(rows, dataset)]


def draw(rows: Sequence[Row], path: Path) -> list[Path]:
    """One row per data set, one column per modulus: accuracy against ε."""
    figure, axes = canvas(len(DATASETS), len(SCALES), width=3.4, height=2.4)
    letters = iter("abcdef")
    for place, dataset in enumerate(DATASETS):
        known = Accuracies(rows, dataset)
        for column, (bits, scale) in enumerate(SCALES.items()):
            at = axes[place][column]
            panel(at, f"({next(letters)}) {dataset}, m = 2$^{{{bits}}}$, γ = {scale:g}", x="ε")
            at.set_ylabel("accuracy (%)" if column == 0 else "", fontsize=9)
            for line in LINES:
                means = [(e, known.at(line, bits, scale, e)) for e in EPSILONS]
                draw_line(at, line, [(e, mean.value, mean.spread) for e, mean in means if mean is not None])
    return finish(figure, path)


STUDY = Study(
    name="figure5",
    title="Figure 5: training with the discrete Gaussian mixture",
    revision=1,
    settings=training.SETTINGS,
    measures=training.MEASURES,
    cells=cells,
    measure=training.measure,
    draw=draw,
    claims=claims,
    tables=tables,
    words=training_rows.words,
    borrow=("figure2", "figure3"),
)
