"""Accuracy on MNIST against the aggregator's ε: softmax regression on features, three schedules."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from skelmix.accounting.gaussian.certificate import gaussian_certificate
from skelmix.accounting.gaussian.participation import aggregator_epsilon, largest_mu_against_aggregator
from skelmix.accounting.gaussian.pld import gaussian_pld_epsilon
from skelmix.planning import Cohort, PrivacyTarget
from skelmix.planning.central import central_multiplier
from skelmix.studies.claims import Claim
from skelmix.studies.drawing import canvas, finish, panel
from skelmix.studies.grid import Grid
from skelmix.studies.rows import Row
from skelmix.studies.study import Study

SETTINGS = ("batch", "rounds", "learning_rate", "epsilon", "epsilon_aggregator", "delta", "seed")
MEASURES = ("accuracy", "epsilon_reached", "epsilon_aggregator_reached", "multiplier", "seconds", "note")
POPULATION, DELTA, OBSERVERS = 60_000, 1e-5, 3.0

#: (records expected in a round, rounds, learning rate)
SCHEDULES = ((60_000, 40, 8.0), (20_000, 100, 8.0), (4_096, 300, 4.0))
EPSILONS = (3.0, 6.0, 15.0, 1.0, 10.0, 30.0)
#: accuracy of the paper's own job, with the ε that it has against the aggregator (cohorts drawn as agreed)
PAPERS_JOB = (28.8, 88.8)
_LOOKS = {60_000: ("#D55E00", "o"), 20_000: ("#0072B2", "s"), 4_096: ("#009E73", "^")}


def cells(quick: bool, seeds: int | None) -> list[Row]:
    """Every schedule at every ε for the aggregator. quick: three rounds at one ε."""
    schedules = [(batch, 3, rate) for batch, _, rate in SCHEDULES[-1:]] if quick else SCHEDULES
    return [
        dict(zip(SETTINGS, (batch, rounds, rate, min(OBSERVERS, limit), limit, DELTA, seed), strict=True))
        for seed in range(seeds or 1)
        for limit in (EPSILONS[:1] if quick else EPSILONS)
        for batch, rounds, rate in schedules
    ]


def measure(cell: Row) -> Row:
    """Train once with the central Gaussian's noise for both targets. Repeatable, so not private."""
    from skelmix.federated.linear_recipe import LinearRecipe, recipe_for
    from skelmix.federated.softmax_regression import softmax_model

    start, base = time.perf_counter(), recipe_for("mnist")
    features, targets, evaluate = _prepared()
    model = softmax_model(features.shape[1])
    multiplier, epsilon, against_aggregator = _privacy(cell)
    recipe = LinearRecipe(base.groups, cell["batch"], cell["rounds"], cell["learning_rate"])
    _train(model, features, targets, recipe, multiplier * base.clip_norm, cell["seed"])
    return {
        "accuracy": evaluate(model),
        "epsilon_reached": epsilon,
        "epsilon_aggregator_reached": against_aggregator,
        "multiplier": multiplier,
        "seconds": time.perf_counter() - start,
    }


def _privacy(cell: Row) -> tuple[float, float, float]:
    """(noise multiplier of a Gaussian that meets both targets, ε for observers, ε for the aggregator)."""
    target = PrivacyTarget(cell["epsilon"], cell["delta"], cell["epsilon_aggregator"])
    sampled = cell["batch"] < POPULATION
    cohort = Cohort(cell["batch"], POPULATION) if sampled else Cohort.everyone(POPULATION)
    schedule = cohort.schedule(cell["rounds"])
    largest = largest_mu_against_aggregator(
        cell["epsilon_aggregator"], cell["delta"], schedule.seen_by_aggregator
    )
    multiplier = max(central_multiplier(target, schedule, False), 1 / largest)
    against_aggregator = aggregator_epsilon(
        gaussian_certificate(multiplier), schedule.seen_by_aggregator, delta=cell["delta"]
    )
    if not sampled:
        return multiplier, against_aggregator, against_aggregator
    observers = gaussian_pld_epsilon(multiplier, schedule.rate, cell["rounds"], cell["delta"])
    return multiplier, observers, against_aggregator


@lru_cache(maxsize=1)
def _prepared() -> tuple[Any, Any, Any]:
    """(features of the training images, their labels, accuracy of a model on the test images)."""
    import torch

    from skelmix.datasets.catalogue import load
    from skelmix.federated.feature_cache import cached_features
    from skelmix.federated.linear_recipe import recipe_for

    images, groups = load("mnist"), recipe_for("mnist").groups
    train, test = (cached_features(part, groups) for part in (images.train_images, images.test_images))
    inputs = torch.from_numpy(np.array(test)).float() / 1024
    labels = torch.tensor(images.test_labels)

    def accuracy(model: Any) -> float:
        with torch.no_grad():
            return float((model(inputs).argmax(1) == labels).float().mean())

    return train, np.asarray(images.train_labels, np.int64), accuracy


def _train(model: Any, features: Any, targets: Any, recipe: Any, noise: float, seed: int) -> None:
    """Gradient descent on Poisson samples; `noise`: standard deviation of a coordinate of the sum."""
    import torch

    from skelmix.federated.gradients import set_gradients
    from skelmix.federated.softmax_regression import clipped_gradient_sum

    rng, optimizer = np.random.default_rng(seed), recipe.optimizer(model)
    for _ in range(recipe.rounds):
        drawn = np.flatnonzero(rng.random(len(targets)) < recipe.batch / len(targets))
        inputs = torch.from_numpy(np.asarray(features[drawn]))
        total, _ = clipped_gradient_sum(model, inputs, torch.from_numpy(targets[drawn]), recipe.clip_norm)
        noisy = total.numpy() + noise * rng.standard_normal(len(total))
        set_gradients(model, noisy / recipe.batch)
        optimizer.step()


def _means(rows: Sequence[Row]) -> dict[tuple[int, float], float]:
    """Accuracy in percent, over seeds, by records per round and ε for the aggregator."""
    seen: dict[tuple[int, float], list[float]] = {}
    for row in rows:
        if row["accuracy"] is not None:
            seen.setdefault((row["batch"], row["epsilon_aggregator"]), []).append(100 * row["accuracy"])
    return {place: fmean(values) for place, values in seen.items()}


def tables(rows: Sequence[Row]) -> list[Grid]:
    means = _means(rows)
    limits = sorted({limit for _, limit in means})
    body = [
        [f"{batch:,} records, {rounds} rounds"]
        + [f"{means[batch, limit]:.2f}" if (batch, limit) in means else "–" for limit in limits]
        for batch, rounds, _ in SCHEDULES
    ]
    return [Grid("Accuracy in percent, by ε against the aggregator", ["", *map("{:g}".format, limits)], body)]


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The best schedule at each of two ε for the aggregator."""
    return [_reaches(_means(rows), limit, least) for limit, least in ((3.0, 97.0), (6.0, 98.0))]


def _reaches(means: dict[tuple[int, float], float], limit: float, least: float) -> Claim:
    text = f"At ε = {limit:g} against the aggregator, accuracy reaches {least:g} %"
    known = {batch: value for (batch, at), value in means.items() if at == limit}
    if not known:
        return Claim(text, "skelmix", None, "no rows")
    best = max(known, key=known.__getitem__)
    return Claim(
        text, "skelmix", known[best] >= least, f"{known[best]:.2f} % with {best:,} records per round"
    )


def words(rows: Sequence[Row]) -> list[str]:
    return [
        "Noise is the central Gaussian's, for ε ≤ 3 against observers and the ε stated against the "
        "aggregator, cohorts drawn as agreed; each participant holds one image. Rounding, wrapping and "
        "upload are not part of this study. Learning rates were set by hand, before any row was measured.",
        f"Beside it, the paper's job: {PAPERS_JOB[1]} % at ε = {PAPERS_JOB[0]} against the aggregator.",
    ]


def draw(rows: Sequence[Row], path: Path) -> list[Path]:
    figure, axes = canvas(1, 1, width=6.4, height=4.0)
    at, means = axes[0][0], _means(rows)
    panel(at, "", x="ε against the aggregator", y="accuracy on MNIST, %")
    at.set_xscale("log")
    for batch, rounds, _ in SCHEDULES:
        points = sorted((limit, value) for (own, limit), value in means.items() if own == batch)
        if points:
            colour, marker = _LOOKS[batch]
            label = f"{batch:,} records, {rounds} rounds"
            at.plot(*zip(*points, strict=True), color=colour, marker=marker, label=label)
    at.plot(*PAPERS_JOB, color="#000000", marker="x", linestyle="", label="the paper's job")
    at.legend(frameon=False, fontsize=9)
    return finish(figure, path)


STUDY = Study(
    name="aggregator",
    title="Accuracy against the aggregator's ε",
    revision=1,
    settings=SETTINGS,
    measures=MEASURES,
    cells=cells,
    measure=measure,
    draw=draw,
    claims=claims,
    tables=tables,
    words=words,
    workers=0,
)
