"""Accuracy against bits per weight: SMM that sends fewer coordinates, beside dense SMM and central DP-SGD."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from skelmix.studies import training, training_rows
from skelmix.studies.drawing import canvas, draw_line, finish, panel
from skelmix.studies.grid import Grid
from skelmix.studies.rows import Row
from skelmix.studies.study import Study
from skelmix.studies.training_rows import SCALES, Mean, claim_of_cases
from skelmix.studies.verdicts import Claim

DATASETS = ("mnist", "fashion-mnist")
RATES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.031, 0.016)
MORE_RATES = (2.0, 4.0, 8.0)
DENSE_BITS = (8, 6, 4, 3, 2)

#: rate -> points of accuracy that it may lose against central DP-SGD, on MNIST
MOST_LOST = {1.0: 0.4, 0.5: 0.4, 0.25: 0.6, 0.125: 0.6, 0.0625: 0.8, 0.031: 1.2, 0.016: 2.0}

#: mean cosine between two participants' clipped gradients over a run: a subset is chosen in every round, so
#: the mean counts and not the 0.017 of the first rounds
ALIGNMENT = 0.005

MEASURES = (*training.MEASURES, "sent_bits", "coordinates", "clip_slack", "upload_bytes")


def cells(quick: bool, seeds: int | None) -> list[Row]:
    """Low rates on MNIST first. quick: a few rounds at two rates."""
    if quick:
        rows, rounds = [], training.QUICK_ROUNDS
        for seed in range(seeds or 1):
            rows += [_beside("mnist", "gaussian-pld", None, None, seed, rounds=rounds)]
            rows += [_at_rate("mnist", rate, seed, rounds=rounds) for rate in (1.0, 0.125)]
        return rows
    rows = []
    for dataset in DATASETS:
        repeats = range(seeds or 3)
        for seed in repeats:
            rows += [_beside(dataset, "gaussian-pld", None, None, seed)]
            rows += [_at_rate(dataset, rate, seed) for rate in RATES]
        for seed in repeats:
            rows += [_at_rate(dataset, rate, seed) for rate in MORE_RATES]
            rows += [_beside(dataset, "smm-auto", bits, None, seed) for bits in DENSE_BITS]
            rows += [_beside(dataset, "smm-paper", bits, SCALES[bits], seed) for bits in (8, 6)]
    return rows


def _at_rate(dataset: str, rate: float, seed: int, *, rounds: int | None = None) -> Row:
    cell = training.cell(dataset, "smm-rate", None, None, 3.0, seed, rounds=rounds)
    return cell | {"alignment": ALIGNMENT, "rate": rate}


def _beside(
    dataset: str, line: str, bits: int | None, scale: float | None, seed: int, *, rounds: int | None = None
) -> Row:
    """A setting of the figures; those with the fewest bits have a second revision."""
    cell = training.cell(dataset, line, bits, scale, 3.0, seed, rounds=rounds) | {"rate": None}
    return cell | ({"revision": 2} if line == "smm-auto" and bits in (2, 3) else {})


def measure(cell: Row) -> Row:
    """Train once, and say what one upload consisted of."""
    plan, row = training.trained(cell)
    mechanism = plan.mechanism
    return row | {
        "sent_bits": mechanism.bits,
        "coordinates": mechanism.coordinates,
        "clip_slack": mechanism.clip_slack,
        "upload_bytes": plan.upload_bytes,
    }


class _Known:
    """Mean accuracies of one data set by line and bits per weight."""

    def __init__(self, rows: Sequence[Row], dataset: str) -> None:
        self.rows = [row for row in rows if row["dataset"] == dataset and row["accuracy"] is not None]

    def of(self, line: str, bits: float | None) -> list[Row]:
        name = "rate" if line == "smm-rate" else "bits"
        return [row for row in self.rows if row["line"] == line and row[name] == bits]

    def at(self, line: str, bits: float | None) -> Mean | None:
        accuracies = [100 * row["accuracy"] for row in self.of(line, bits)]
        return (
            None
            if not accuracies
            else Mean(fmean(accuracies), stdev(accuracies) if len(accuracies) > 1 else 0.0, len(accuracies))
        )

    def gap(self, above: tuple[str, float | None], below: tuple[str, float | None]) -> float | None:
        """Points by which one is above another, over the seeds that both have; None without any."""
        gaps = self._gaps(above, below)
        return fmean(gaps) if gaps else None

    def not_below(self, above: tuple[str, float | None], below: tuple[str, float | None]) -> bool:
        """Whether one is not below another by more than two standard errors of the mean over the seeds."""
        gaps = self._gaps(above, below)
        error = stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
        return bool(gaps) and fmean(gaps) >= -2 * error

    def _gaps(self, above: tuple[str, float | None], below: tuple[str, float | None]) -> list[float]:
        return [
            100 * (high["accuracy"] - low["accuracy"])
            for high in self.of(*above)
            for low in self.of(*below)
            if high["seed"] == low["seed"]
        ]


def claims(rows: Sequence[Row]) -> list[Claim]:
    """What low rates may cost on MNIST, and that they are never worse than dense at the same rate."""
    judged = []
    known = _Known(rows, "mnist")
    for rate, most in MOST_LOST.items():
        gap = known.gap(("gaussian-pld", None), ("smm-rate", rate))
        unit = "bit" if rate == 1 else "bits"
        text = (
            f"At {rate:g} {unit} per weight at most {most:g} points are lost against central DP-SGD (mnist)"
        )
        judged.append(
            claim_of_cases(text, "skelmix", [("points lost", gap, gap is not None and gap <= most)])
        )
    for dataset in DATASETS:
        own = _Known(rows, dataset)
        gaps = [
            (f"{bits} bits", own.gap(*pair), own.not_below(*pair))
            for bits in (8, 4, 2)
            for pair in ((("smm-rate", float(bits)), ("smm-auto", bits)),)
        ]
        text = (
            f"At 2, 4 and 8 bits per weight it is not below dense SMM by over two standard errors ({dataset})"
        )
        judged.append(claim_of_cases(text, "skelmix", gaps))
    gap = known.gap(("smm-rate", 0.016), ("smm-paper", 8))
    text = "At 0.016 bits per weight it is above the paper's method at 8 bits (mnist)"
    return [*judged, claim_of_cases(text, "skelmix", [("points above", gap, gap is not None and gap > 0)])]


def tables(rows: Sequence[Row]) -> list[Grid]:
    """Accuracy at each rate, then of what is beside it."""
    grids = []
    for dataset in DATASETS:
        known, body = _Known(rows, dataset), []
        for rate in sorted((*RATES, *MORE_RATES), reverse=True):
            mean = known.at("smm-rate", rate)
            if mean is None:
                continue
            row = known.of("smm-rate", rate)[0]
            points_lost = known.gap(("gaussian-pld", None), ("smm-rate", rate))
            words = [
                f"{rate:g}",
                f"{row['coordinates']:,}",
                str(row["sent_bits"]),
                f"{row['upload_bytes']:,}",
            ]
            body.append([*words, str(mean), _points_lost(points_lost), str(mean.seeds)])
        columns = [
            "bits per weight",
            "coordinates",
            "bits each",
            "bytes",
            "accuracy in %",
            "points lost",
            "seeds",
        ]
        if body:
            grids.append(Grid(f"{dataset}: SMM at a rate, ε = 3", columns, body))
        beside = [("central DP-SGD (PLD)", known.at("gaussian-pld", None))]
        beside += [(f"dense SMM, {bits} bits", known.at("smm-auto", bits)) for bits in DENSE_BITS]
        beside += [(f"paper's SMM, {bits} bits", known.at("smm-paper", bits)) for bits in (8, 6)]
        body = [[name, str(mean), str(mean.seeds)] for name, mean in beside if mean is not None]
        if body:
            grids.append(Grid(f"{dataset}: beside it, ε = 3", ["line", "accuracy in %", "seeds"], body))
    return grids


def _points_lost(lost: float | None) -> str:
    """To a hundredth, as accuracies are: a difference of equal means is 0.00, not what float64 leaves."""
    return "–" if lost is None else f"{round(lost, 2) + 0.0:.2f}"


def draw(rows: Sequence[Row], path: Path) -> list[Path]:
    """Accuracy against bits per weight, one panel per data set."""
    figure, axes = canvas(1, len(DATASETS), width=4.6, height=3.2)
    ticks = (0.016, 0.0625, 0.25, 1.0, 4.0)
    for at, dataset in zip(axes[0], DATASETS, strict=True):
        known = _Known(rows, dataset)
        panel(at, f"{dataset}, ε = 3, 240 participants per round", x="bits per weight", y="accuracy (%)")
        mean = partial(_points, known)
        draw_line(at, "smm-rate", mean("smm-rate", (*RATES, *MORE_RATES)))
        draw_line(at, "smm-dense", mean("smm-auto", DENSE_BITS))
        draw_line(at, "smm-paper", mean("smm-paper", (8, 6)))
        if (central := known.at("gaussian-pld", None)) is not None:
            draw_line(at, "dpsgd", [(x, central.value, 0.0) for x in (RATES[-1], 8.0)])
            at.set_ylim(central.value - 6, central.value + 0.8)
        at.set_xscale("log", base=2)
        at.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        at.minorticks_off()
    return finish(figure, path, columns=2)


def _points(known: _Known, line: str, bits: Sequence[float]) -> list[tuple[float, float, float]]:
    """(bits per weight, mean, spread) of one line."""
    means = [(width, known.at(line, width)) for width in bits]
    return [(float(width), mean.value, mean.spread) for width, mean in means if mean is not None]


STUDY = Study(
    name="rate",
    title="Training at any rate: accuracy against bits per weight",
    revision=1,
    settings=(*training.SETTINGS, "rate"),
    measures=MEASURES,
    cells=cells,
    measure=measure,
    draw=draw,
    claims=claims,
    tables=tables,
    words=training_rows.words,
    borrow=("figure2", "figure3"),
)
