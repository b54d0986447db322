"""One training run under one mechanism: the cell of Figures 2, 3 and 5 (Bao et al. 2022, Section 6.2)."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any

from skelmix.planning import Cohort, Plan, PrivacyTarget, account, plan
from skelmix.studies.rows import Row
from skelmix.studies.sums import LINES

if TYPE_CHECKING:
    from skelmix.federated.run_result import RunResult

SETTINGS = (
    "dataset",
    "line",
    "bits",
    "asked_scale",
    "epsilon",
    "delta",
    "batch",
    "rounds",
    "alignment",
    "seed",
)
MEASURES = (
    "accuracy",
    "wrapped_fraction",
    "wrap_probability",
    "predicted_mse",
    "kept_length",
    "scale",
    "noise",
    "total_noise",
    "bound",
    "order",
    "seconds",
    "seconds_per_round",
    "note",
)
POPULATION = 60_000
EPOCHS = 4
QUICK_ROUNDS = 10

#: mean cosine between two participants' clipped gradients, from above: measured 0.017 at first, 0 later
ALIGNMENT = 0.02


def cell(
    dataset: str,
    line: str,
    bits: int | None,
    scale: float | None,
    epsilon: float,
    seed: int,
    *,
    batch: int = 240,
    rounds: int | None = None,
) -> Row:
    """The settings of one run; four epochs unless `rounds` is given."""
    return {
        "dataset": dataset,
        "line": line,
        "bits": bits,
        "asked_scale": scale,
        "epsilon": epsilon,
        "delta": 1e-5,
        "batch": batch,
        "rounds": rounds or EPOCHS * POPULATION // batch,
        "alignment": ALIGNMENT,
        "seed": seed,
    }


def measure(cell: Row) -> Row:
    """Plan and train the paper's network once.

    Repeatable from the seed, so not private: for experiments only.
    """
    return trained(cell)[1]


def trained(cell: Row) -> tuple[Plan, Row]:
    """(the plan of a cell, the measures of its run). A cell may name a `rate` in place of bits."""
    from skelmix.studies.training_run import model_dimension, train_once

    dimension = model_dimension(cell["dataset"])
    names = ("line", "bits", "asked_scale", "epsilon", "delta", "batch", "rounds", "alignment")
    plan = _plan(dimension, **{name: cell[name] for name in names}, rate=cell.get("rate"))
    result = train_once(plan, dataset=cell["dataset"], seed=cell["seed"], diagnostics=True)
    return plan, measures_of(plan, result)


def measures_of(plan: Plan, result: RunResult) -> Row:
    """What one run under a plan measured, by the names in `MEASURES`."""
    mechanism, predicted = plan.mechanism, plan.predicted
    return {
        "accuracy": result.accuracy,
        "wrapped_fraction": result.wrapped_fraction,
        "wrap_probability": predicted.wrap_probability,
        "predicted_mse": predicted.mse,
        "kept_length": predicted.kept_length,
        "scale": mechanism.scale,
        "noise": mechanism.noise,
        "total_noise": mechanism.total_noise,
        "bound": plan.report.bound,
        "order": plan.report.order,
        "seconds": result.seconds,
        "seconds_per_round": result.seconds_per_round,
    }


@lru_cache(maxsize=64)
def _plan(
    dimension: int,
    *,
    line: str,
    bits: int | None,
    asked_scale: float | None,
    epsilon: float,
    delta: float,
    batch: int,
    rounds: int,
    alignment: float,
    rate: float | None = None,
) -> Plan:
    name, bound = LINES[line]
    setting: dict[str, Any] = {
        "dimension": dimension,
        "cohort": Cohort(batch, POPULATION),
        "bits": bits or (32 if rate is None else None),
        "rate": rate,
        "rounds": rounds,
        "mechanism": name,
        "bound": bound,
        "alignment": alignment,
    }
    planned = plan(PrivacyTarget(epsilon, delta), **setting, scale=asked_scale, allow_wrapping=True)
    if line.endswith("-integer"):  # more noise than was asked for: still private
        planned = account(
            noise=ceil(planned.mechanism.noise), delta=delta, **setting, scale=planned.mechanism.scale
        )
    return planned
