"""Figure 2 of the paper: training on MNIST under every mechanism, and accuracy against bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from skelmix.studies import training, training_rows
from skelmix.studies.rows import Row, key
from skelmix.studies.study import Study
from skelmix.studies.training_claims import own_claims, paper_claims
from skelmix.studies.training_rows import CENTRAL, EPSILONS, GIVEN_SCALES, SCALES
from skelmix.studies.verdicts import Claim

AT_SCALE = ("smm-paper", "smm-tight", "skellam", "ddg", "dgm-paper", "cpsgd")
FEW_BITS = (6, 4, 5)
FEWEST_BITS = (3, 2)
BATCHES = (120, 480, 960)


def cells(dataset: str, quick: bool, seeds: int | None) -> list[Row]:
    """The settings to measure, the most valuable first.

    SMM tight beside DPSGD and the paper's SMM, then all mechanisms against ε, then the sweeps of |B| and γ.
    quick: a few rounds, a few settings.
    """
    cell = partial(training.cell, dataset)
    if quick:
        return [row for seed in range(seeds or 1) for row in _quick(cell, seed)]
    wanted = [row for seed in range(seeds or 3) for row in _first(cell, seed)]
    wanted += [row for seed in range(seeds or 2) for row in _against_epsilon(cell, seed)]
    wanted += [row for seed in range(seeds or 2) for row in _sweeps(cell, seed)]
    return list({key(row, training.SETTINGS): row for row in wanted}.values())


def _quick(cell: Callable[..., Row], seed: int) -> list[Row]:
    lines = (("gaussian-pld", None, None), ("smm-auto", 8, None), ("smm-paper", 8, 64.0), ("ddg", 8, 64.0))
    return [cell(line, bits, scale, 3.0, seed, rounds=training.QUICK_ROUNDS) for line, bits, scale in lines]


def _first(cell: Callable[..., Row], seed: int) -> list[Row]:
    bars = (3.0, 1.0, 5.0)
    rows = [cell("gaussian-pld", None, None, e, seed) for e in bars]
    rows += [cell("smm-auto", 8, None, e, seed) for e in bars]
    rows += [cell("smm-auto", bits, None, 3.0, seed) for bits in FEW_BITS]
    # second revision: the planner's first γ at so few bits let most coordinates wrap
    rows += [cell("smm-auto", bits, None, 3.0, seed) | {"revision": 2} for bits in FEWEST_BITS]
    rows += [cell("smm-tight", bits, GIVEN_SCALES[bits], 3.0, seed) for bits in FEWEST_BITS]
    rows += [cell("smm-paper", bits, SCALES[bits], e, seed) for e in EPSILONS for bits in (8, 6)]
    rows += [cell("smm-auto", bits, None, e, seed) for e in EPSILONS for bits in (8, 6)]
    return rows + [cell(line, None, None, e, seed) for e in EPSILONS for line in CENTRAL]


def _against_epsilon(cell: Callable[..., Row], seed: int) -> list[Row]:
    rows = [cell(line, None, None, e, seed) for e in EPSILONS for line in CENTRAL]
    for e in (3.0, 1.0, 5.0, 2.0, 4.0):
        rows += [cell(line, bits, SCALES[bits], e, seed) for line in AT_SCALE for bits in SCALES]
        rows += [cell("smm-auto", bits, None, e, seed) for bits in SCALES]
    return rows


def _sweeps(cell: Callable[..., Row], seed: int) -> list[Row]:
    rows = [cell(line, None, None, 3.0, seed, batch=batch) for batch in BATCHES for line in CENTRAL]
    lines = AT_SCALE[:-1]
    for bits in (8, 6, 10):
        rows += [cell(ln, bits, SCALES[bits], 3.0, seed, batch=batch) for batch in BATCHES for ln in lines]
        scales = [2.0**bits / part for part in (32, 16, 8, 4, 2, 1)]
        rows += [cell(line, bits, scale, 3.0, seed) for scale in scales for line in lines]
    return rows


def claims(dataset: str, rows: Sequence[Row]) -> list[Claim]:
    return own_claims(rows, dataset) + paper_claims(rows, dataset)


def training_study(name: str, title: str, dataset: str) -> Study:
    """The study of one data set."""
    return Study(
        name=name,
        title=title,
        revision=1,
        settings=training.SETTINGS,
        measures=training.MEASURES,
        cells=partial(cells, dataset),
        measure=training.measure,
        draw=partial(training_rows.draw, dataset=dataset),
        claims=partial(claims, dataset),
        tables=partial(training_rows.tables, dataset=dataset),
        words=training_rows.words,
    )


STUDY = training_study("figure2", "Figure 2: training on MNIST", "mnist")
