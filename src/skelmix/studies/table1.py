"""Table 1 of the paper: running time of exact and approximate samplers of integer noise.

Skellam and discrete Gaussian. All samplers of a row run in turn, in one process with one thread, timed in
processor seconds, so that their ratios mean something on a busy machine too. The paper's approximate samplers
are TensorFlow's; here NumPy stands in, with the same two methods: a difference of Poisson samples, and
rejection from a discrete Laplace in floating point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time

import numpy as np
from numpy.typing import NDArray

from skelmix.noise import paper
from skelmix.noise.laws import DiscreteGaussian, Skellam
from skelmix.noise.table import sampler
from skelmix.studies.drawing import canvas, finish, panel
from skelmix.studies.grid import Grid, number
from skelmix.studies.rows import Row
from skelmix.studies.study import Study
from skelmix.studies.verdicts import Claim, judged

VARIANCES = (32, 16, 8, 4, 2, 1)
SAMPLERS = {
    "skellam_table": "Skellam, exact (skelmix)",
    "skellam_paper": "Skellam, exact (Algorithm 10)",
    "skellam_approximate": "Skellam, approximate (NumPy)",
    "gaussian_table": "discrete Gaussian, exact (skelmix)",
    "gaussian_paper": "discrete Gaussian, exact (rejection)",
    "gaussian_approximate": "discrete Gaussian, approximate (NumPy)",
}


def cells(quick: bool, seeds: int | None) -> list[Row]:
    """One row per variance. quick: a twentieth of the samples."""
    samples, variances = (5_000, (32, 4, 1)) if quick else (100_000, VARIANCES)
    return [{"variance": v, "samples": samples, "repetitions": seeds or 3} for v in variances]


def measure(cell: Row) -> Row:
    """Least processor seconds for the samples, of each sampler."""
    runs = _samplers(cell["variance"], cell["samples"])
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for draw in runs.values():
        draw(1)  # tables are built and kernels compiled once, outside the timing
    for _ in range(cell["repetitions"]):
        for name, draw in runs.items():
            start = process_time()
            draw(cell["samples"])
            seconds[name].append(process_time() - start)
    return {name: min(times) for name, times in seconds.items()}


def _samplers(variance: int, samples: int) -> dict[str, Callable[[int], object]]:
    randint, generator = paper.randint_from(), np.random.default_rng(0)
    skellam, gaussian = sampler(Skellam(variance / 2)), sampler(DiscreteGaussian(variance))
    half = variance / 2
    return {
        "skellam_table": skellam.sample,
        "skellam_paper": lambda count: [paper.skellam(half, randint) for _ in range(count)],
        "skellam_approximate": lambda count: generator.poisson(half, count) - generator.poisson(half, count),
        "gaussian_table": gaussian.sample,
        "gaussian_paper": lambda count: [paper.discrete_gaussian(variance, randint) for _ in range(count)],
        "gaussian_approximate": lambda count: float_discrete_gaussian(variance, count, generator),
    }


def float_discrete_gaussian(variance: float, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Rejection from a discrete Laplace (Canonne et al. 2020, Algorithm 3) with floating-point probabilities.

    Approximate: for timing and comparison only, never for privacy.
    """
    scale = int(variance**0.5) + 1
    kept: list[NDArray[np.int64]] = []
    missing = count
    while missing > 0:
        size = 2 * missing + 16
        laplace = generator.geometric(-np.expm1(-1 / scale), size) - generator.geometric(
            -np.expm1(-1 / scale), size
        )
        accept = generator.random(size) < np.exp(-((abs(laplace) - variance / scale) ** 2) / (2 * variance))
        kept.append(laplace[accept][:missing])
        missing -= len(kept[-1])
    return np.concatenate(kept)


def _quotients(rows: Sequence[Row], slow: str, fast: str, least: float) -> list[tuple[str, float, bool]]:
    pairs = [(row["variance"], row[slow] / row[fast]) for row in rows if row[slow] and row[fast]]
    return [(f"variance {variance}", quotient, quotient > least) for variance, quotient in pairs]


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Judge the sentences of Appendix A.1, then what skelmix adds."""
    source, times = "Appendix A.1", "times as fast"
    exact = _quotients(rows, "gaussian_paper", "skellam_paper", 1)
    approximate = _quotients(rows, "gaussian_approximate", "skellam_approximate", 1)
    much = [
        finding
        for kind in ("skellam", "gaussian")
        for finding in _quotients(rows, f"{kind}_paper", f"{kind}_approximate", 10)
    ]
    ours = _quotients(rows, "skellam_approximate", "skellam_table", 1)
    ours += _quotients(rows, "gaussian_approximate", "gaussian_table", 1)
    return [
        judged("The exact Skellam sampler is faster than the exact discrete Gaussian", source, exact, times),
        judged("The approximate Skellam sampler is faster, too", source, approximate, times),
        judged("Approximate samplers are much faster (over 10 times) than exact ones", source, much, times),
        judged("skelmix's exact samplers are faster than approximate ones", "skelmix", ours, times),
    ]


def tables(rows: Sequence[Row]) -> list[Grid]:
    """Time over that of the exact Skellam sampler of skelmix, and its own in nanoseconds."""
    ordered = sorted(rows, key=lambda row: -row["variance"])
    columns = ["sampler", *(f"variance {row['variance']}" for row in ordered)]
    ratios = [
        [label, *(number(row[name] / row["skellam_table"], 3) for row in ordered)]
        for name, label in SAMPLERS.items()
    ]
    nanoseconds = [
        [label, *(number(1e9 * row[name] / row["samples"], 3) for row in ordered)]
        for name, label in SAMPLERS.items()
    ]
    return [
        Grid("time over that of skelmix's exact Skellam sampler", columns, ratios),
        Grid("nanoseconds per sample, on this machine", columns, nanoseconds),
    ]


def draw(rows: Sequence[Row], path: Path) -> list[Path]:
    """The table as a picture: time per sample against the variance."""
    figure, axes = canvas(1, 1, width=6.4, height=3.6)
    at = axes[0][0]
    panel(at, "", x="variance", y="nanoseconds per sample", log=True)
    ordered = sorted(rows, key=lambda row: row["variance"])
    for name, label in SAMPLERS.items():
        colour = "#0072B2" if name.startswith("skellam") else "#D55E00"
        style, marker = {"table": ("-", "o"), "paper": ("--", "s"), "approximate": (":", "^")}[
            name.split("_")[1]
        ]
        values = [1e9 * row[name] / row["samples"] for row in ordered]
        x = [row["variance"] for row in ordered]
        at.plot(x, values, color=colour, linestyle=style, marker=marker, markersize=4, label=label)
    at.set_xscale("log", base=2)
    at.set_ylim(top=at.get_ylim()[1] * 30)
    at.legend(fontsize=8, frameon=False, ncols=2, loc="upper center")
    return finish(figure, path)


STUDY = Study(
    name="table1",
    title="Table 1: running time of samplers",
    revision=2,
    settings=("variance", "samples", "repetitions"),
    measures=tuple(SAMPLERS),
    cells=cells,
    measure=measure,
    draw=draw,
    claims=claims,
    tables=tables,
    workers=1,
    seconds_per_setting=20.0,
)
