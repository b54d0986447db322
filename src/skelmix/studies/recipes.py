"""The best recipes: accuracy with distributed noise at a fraction of a bit per weight."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from skelmix.planning import Cohort, PrivacyTarget, Silos
from skelmix.planning import plan as make_plan
from skelmix.studies.drawing import canvas, finish, panel
from skelmix.studies.grid import Grid
from skelmix.studies.rows import Row
from skelmix.studies.study import Study
from skelmix.studies.verdicts import Claim

if TYPE_CHECKING:
    from skelmix.federated.recipe_book import Recipe
    from skelmix.planning import Plan

SETTINGS = (
    "dataset", "line", "asked_rate", "alignment", "epsilon", "delta", "batch", "rounds", "seed", "images",
)  # fmt: skip
MEASURES = (
    "accuracy", "perplexity", "epsilon_reached", "epsilon_aggregator", "bits_per_weight", "upload_bytes",
    "bits", "kept", "scale", "noise_multiplier", "seconds", "note",
)  # fmt: skip
IMAGES, TEXT, DELTA, SILOS = ("mnist", "fashion-mnist", "cifar-10"), "shakespeare", 1e-5, 10
SMALL_RATE, LARGE_RATE = 0.25, 1.0
#: least accuracy in percent at ε = 3 with at most 0.3 bits per weight; Tramèr and Boneh 2021, central noise
BARS, PUBLISHED = dict(zip(IMAGES, (98.3, 89.0, 63.0), strict=True)), (98.7, 89.7, 69.3)
_NEAR = 0.3  # points of accuracy
_LOOKS = {
    ("central", None): ("central Gaussian", "#000000", "s"),
    ("participants", SMALL_RATE): ("participants, 0.25 bits per weight", "#D55E00", "o"),
    ("participants", LARGE_RATE): ("participants, 1 bit per weight", "#E69F00", "^"),
    ("silos", SMALL_RATE): ("silos, 0.25 bits per weight", "#0072B2", "o"),
    ("silos", LARGE_RATE): ("silos, 1 bit per weight", "#56B4E9", "^"),
}


def cells(quick: bool, seeds: int | None) -> list[Row]:
    """The most valuable first: ε = 3 at the small rate beside central noise, text, then the rest.

    quick: a few rounds on a few images.
    """
    if quick:
        lines = (("central", None), ("participants", SMALL_RATE), ("silos", SMALL_RATE))
        return [_cell("mnist", line, rate, 3.0, 0, images=600) for line, rate in lines]
    ordered: dict[tuple[Any, ...], Row] = {}
    for cell in _by_value(seeds or 3):
        ordered.setdefault(tuple(cell.values()), cell)
    return list(ordered.values())


def _by_value(seeds: int) -> Iterator[Row]:
    small = (("participants", SMALL_RATE), ("central", None))
    three = (*small, ("silos", SMALL_RATE))
    for names in (IMAGES[:2], IMAGES[2:]):  # CIFAR-10 takes as long as both others
        for seed in range(seeds):
            yield from (_cell(name, line, rate, 3.0, seed) for name in names for line, rate in three)
    for seed in range(seeds):
        yield from (_text_cell(line, epsilon, seed) for epsilon in (8.0, 4.0) for line, _ in small)
    for epsilons, count in (((1.0, 8.0), 1), ((3.0, 1.0, 8.0), seeds)):
        for seed in range(count):
            for epsilon in epsilons:
                yield from (_cell(name, line, rate, epsilon, seed) for name in IMAGES for line, rate in small)
                yield from (
                    _cell(name, line, rate, epsilon, seed)
                    for name in IMAGES
                    for line, rate in _LOOKS
                    if rate is not None
                )


def _cell(
    dataset: str, line: str, rate: float | None, epsilon: float, seed: int, images: int | None = None
) -> Row:
    from skelmix.federated.recipe_book import recipe_for

    recipe = recipe_for("best", dataset, epsilon)
    batch, rounds = (recipe.batch, recipe.rounds) if images is None else (images // 3, 3)
    alignment = None if line == "central" else recipe.alignment
    values = (dataset, line, rate, alignment, epsilon, DELTA, batch, rounds, seed, images)
    return dict(zip(SETTINGS, values, strict=True))


def _text_cell(line: str, epsilon: float, seed: int) -> Row:
    from skelmix.federated.recipe_book import recipe_for

    rate = None if line == "central" else recipe_for("best", TEXT, epsilon).rate
    return _cell(TEXT, line, rate, epsilon, seed)


def measure(cell: Row) -> Row:
    """Plan and train once. Reproducible randomness, so not private."""
    from skelmix.datasets.partition import equal_shares
    from skelmix.federated.gradients import LocalSteps, dimension
    from skelmix.federated.recipe_book import recipe_for
    from skelmix.studies.training_run import known_task, train_once

    start, recipe = time.perf_counter(), recipe_for("best", cell["dataset"], cell["epsilon"])
    task = known_task(cell["dataset"], recipe.model, cell["images"])
    weights = dimension(task.new_model(0))
    plan = _plan(cell, recipe, weights, len(task.clients))
    shares = len(task.clients) // SILOS
    local = LocalSteps(recipe.local_steps, recipe.local_lr) if recipe.local_steps > 1 else None
    result = train_once(
        plan,
        task=task,
        seed=cell["seed"],
        optimizer=recipe.optimizer,
        lr=recipe.lr,
        lr_decay=recipe.lr_decay,
        silos=equal_shares(len(task.clients), shares) if cell["line"] == "silos" else None,
        evaluate=task.perplexity,
        local=local,
        secure="simulated" if plan.mechanism.distributed else "none",
    )
    score = "accuracy" if task.perplexity is None else "perplexity"
    return {score: result.accuracy, "seconds": time.perf_counter() - start} | _spent(plan, weights)


def _plan(cell: Row, recipe: Recipe, weights: int, members: int) -> Plan:
    cohort: Cohort | Silos = Cohort(cell["batch"], members)
    if cell["line"] == "silos":
        cohort = Silos(SILOS, members, cell["batch"])
    central, participants = cell["line"] == "central", cell["line"] == "participants"
    shape = {
        "rate": cell["asked_rate"],
        "bits": recipe.bits if participants else recipe.silo_bits,
        "alignment": cell["alignment"],
    }
    return make_plan(
        PrivacyTarget(cell["epsilon"], cell["delta"]),
        dimension=weights,
        clip_norm=recipe.clip_norm,
        clip=recipe.clip,
        rounds=cell["rounds"],
        cohort=cohort,
        mechanism="gaussian" if central else "smm",
        **({} if central else shape),
    )


def _spent(plan: Plan, weights: int) -> Row:
    """What a run of the plan costs in privacy and in bytes."""
    mechanism, report = plan.mechanism, plan.report
    spent = {"epsilon_reached": report.epsilon, "epsilon_aggregator": report.epsilon_aggregator}
    if not mechanism.distributed:
        return spent | {"noise_multiplier": mechanism.total_noise**0.5 / mechanism.clip_norm}
    payload = mechanism.bits * mechanism.coordinates
    return spent | {
        "bits_per_weight": payload / weights,
        "upload_bytes": -(-payload // 8),
        "bits": mechanism.bits,
        "kept": mechanism.coordinates,
        "scale": float(mechanism.scale),
        "noise_multiplier": mechanism.noise_variance(mechanism.shares) ** 0.5 / mechanism.radius,
    }


Place = tuple[str, str, float | None, float]


def _scores(rows: Sequence[Row], measure: str = "accuracy") -> dict[Place, dict[int, float]]:
    """By data set, line, rate and ε: the score of each seed; accuracies in percent."""
    known: dict[Place, dict[int, float]] = {}
    for row in rows:
        if row[measure] is not None:
            place = (row["dataset"], row["line"], row["asked_rate"], row["epsilon"])
            score = 100 * row[measure] if measure == "accuracy" else row[measure]
            known.setdefault(place, {})[row["seed"]] = score
    return known


def _text(scores: dict[int, float] | None) -> str:
    if not scores:
        return "–"
    values = list(scores.values())
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{fmean(values):.2f}{spread} ({len(values)})"


def tables(rows: Sequence[Row]) -> list[Grid]:
    known, grids = _scores(rows), list[Grid]()
    for dataset, published in zip(IMAGES, PUBLISHED, strict=True):
        body = []
        for (line, rate), (label, _, _) in _LOOKS.items():
            cells = [known.get((dataset, line, rate, epsilon)) for epsilon in (1.0, 3.0, 8.0)]
            if any(cells):
                body.append([label, *map(_text, cells)])
        if body:
            body.append(["published, central (Tramèr and Boneh 2021)", "", f"{published}", ""])
            title = f"{dataset}: accuracy in % (seeds), δ = {DELTA:g}"
            grids.append(Grid(title, ["", "ε = 1", "ε = 3", "ε = 8"], body))
    words = {place: scores for place, scores in _scores(rows, "perplexity").items() if place[0] == TEXT}
    if words:
        body = [
            [line, *(_text(words.get((TEXT, line, rate, epsilon))) for epsilon in (4.0, 8.0))]
            for line, rate in dict.fromkeys((place[1], place[2]) for place in words)
        ]
        title = "shakespeare: perplexity per character of speakers not met in training (seeds)"
        grids.append(Grid(title, ["", "ε = 4", "ε = 8"], body))
    return grids


def claims(rows: Sequence[Row]) -> list[Claim]:
    known = _scores(rows)
    return [
        claim
        for dataset, least in BARS.items()
        for line in ("participants", "silos")
        for claim in _judged(known, dataset, line, least)
    ]


def _judged(known: dict[Place, dict[int, float]], dataset: str, line: str, least: float) -> Iterator[Claim]:
    """The accuracy that must be reached, and how far below central noise it may be, seed by seed."""
    scores = known.get((dataset, line, SMALL_RATE, 3.0), {})
    central = known.get((dataset, "central", None, 3.0), {})
    where = f"{dataset}, ε = 3, {SMALL_RATE:g} bits per weight, {line}"
    mean = fmean(scores.values()) if scores else None
    reached = None if mean is None else mean >= least
    yield Claim(f"{where}: at least {least:g} %", "skelmix", reached, _text(scores) if scores else "no rows")
    both = sorted(scores.keys() & central.keys())
    text = f"{where}: within {_NEAR:g} points of central noise with the same recipe"
    if not both:
        yield Claim(text, "skelmix", None, "no rows")
        return
    gap = fmean(central[seed] - scores[seed] for seed in both)
    yield Claim(text, "skelmix", gap <= _NEAR, f"{gap:+.2f} points below, over {len(both)} seeds")


def words(rows: Sequence[Row]) -> list[str]:
    return [
        "Each image is one participant (unit: participant), or one record of ten silos (unit: record). A "
        "linear model is trained on scattering features that no data shaped; batch, rounds and learning rate "
        "were chosen at ε = 3 with central noise, on the test images, as is usual for these published "
        "numbers. Shakespeare: each speaker is one participant who takes several local steps.",
        "Runs use reproducible randomness and are therefore *not private*: they compare mechanisms. Bits per "
        "weight count the payload of one upload, not the protocol's own messages.",
    ]


def draw(rows: Sequence[Row], path: Path) -> list[Path]:
    """Accuracy against ε, a panel per data set."""
    known = _scores(rows)
    figure, axes = canvas(1, len(IMAGES), width=3.4, height=2.8)
    for place, dataset in enumerate(IMAGES):
        at = axes[0][place]
        panel(at, dataset, x="ε", y="accuracy (%)" if place == 0 else "")
        at.set_xscale("log")
        at.set_xticks((1, 3, 8), ("1", "3", "8"))
        at.minorticks_off()
        at.set_xlim(0.8, 10)
        for (line, rate), (label, colour, marker) in _LOOKS.items():
            points = [
                (epsilon, fmean(scores.values()))
                for (name, own, own_rate, epsilon), scores in sorted(
                    known.items(), key=lambda item: item[0][3]
                )
                if (name, own, own_rate) == (dataset, line, rate)
            ]
            if points:
                at.plot(*zip(*points, strict=True), color=colour, marker=marker, label=label)
        at.plot(3, PUBLISHED[place], "k*", label="published, central")
    named = axes[0][0].get_legend_handles_labels()
    figure.legend(*named, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return finish(figure, path)


STUDY = Study(
    name="recipes",
    title="The best recipes at a fraction of a bit per weight",
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
    seconds_per_setting=300.0,
)
