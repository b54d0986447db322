"""Accuracy on MNIST against the aggregator's ε: softmax regression on features, by schedule."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from skelmix.planning import Cohort, PrivacyTarget
from skelmix.planning import plan as make_plan
from skelmix.secagg.sizes import protocol_bytes
from skelmix.studies.drawing import canvas, finish, panel
from skelmix.studies.grid import Grid
from skelmix.studies.rows import Row
from skelmix.studies.study import Study
from skelmix.studies.verdicts import Claim

SETTINGS = (
    "batch", "rounds", "learning_rate", "asked_rate", "epsilon", "epsilon_aggregator", "delta", "seed",
    "images",
)  # fmt: skip
MEASURES = (
    "accuracy", "epsilon_reached", "epsilon_aggregator_reached", "bits", "kept", "scale", "noise_multiplier",
    "upload_bytes", "seconds", "note",
)  # fmt: skip
DELTA, OBSERVERS = 1e-5, 3.0

#: (participants expected in a round, rounds, learning rate, bits per weight)
SCHEDULES = (
    (15_000, 160, 12.0, 0.5),
    (10_000, 200, 12.0, 0.5),
    (4_096, 300, 8.0, 0.25),
    (60_000, 40, 20.0, 1.0),
)
#: (the aggregator's ε, place of the schedule that is measured there)
CELLS = ((3.0, 0), (6.0, 1), (15.0, 2), (1.0, 0), (10.0, 1), (3.0, 3), (30.0, 2))
#: the paper's own job: ε against the aggregator (cohorts drawn as agreed) by the paper's own bound, accuracy
#: in percent, bytes of vectors that a participant uploads in all: 4 rounds of 65,536 on average
PAPERS_JOB, PAPERS_PAYLOAD = (51.1, 88.8), 4 * 65_536
_EVERYONE = 60_000
_ALIGNMENT = 0.002
_LOOKS = {
    60_000: ("#CC79A7", "v"),
    15_000: ("#D55E00", "o"),
    10_000: ("#0072B2", "s"),
    4_096: ("#009E73", "^"),
}


def cells(quick: bool, seeds: int | None) -> list[Row]:
    """Schedules at the aggregator's ε where they do well. quick: three rounds of a few images."""
    if quick:
        values = ((600, 3, 8.0, 1.0, 3.0, 3.0, DELTA, 0, 600), (200, 3, 8.0, 1.0, 3.0, 15.0, DELTA, 0, 600))
        return [dict(zip(SETTINGS, own, strict=True)) for own in values]
    return [
        dict(zip(SETTINGS, (*SCHEDULES[place], min(OBSERVERS, limit), limit, DELTA, seed, None), strict=True))
        for seed in range(seeds or 2)
        for limit, place in CELLS
    ]


def measure(cell: Row) -> Row:
    """Plan for both targets and train once. Reproducible randomness, so not private."""
    from skelmix.federated.gradients import dimension
    from skelmix.federated.recipe_book import recipe_for
    from skelmix.studies.training_run import known_task, train_once

    start, recipe = time.perf_counter(), recipe_for("best", "mnist", OBSERVERS)
    task = known_task("mnist", recipe.model, cell["images"])
    everyone = len(task.clients)
    plan = make_plan(
        PrivacyTarget(cell["epsilon"], cell["delta"], cell["epsilon_aggregator"]),
        dimension=dimension(task.new_model(0)),
        clip_norm=recipe.clip_norm,
        clip=recipe.clip,
        rate=cell["asked_rate"],
        rounds=cell["rounds"],
        cohort=Cohort.everyone(everyone) if cell["batch"] == everyone else Cohort(cell["batch"], everyone),
        alignment=_ALIGNMENT,
    )
    mechanism = plan.mechanism
    result = train_once(
        plan, task=task, seed=cell["seed"], optimizer=recipe.optimizer, lr=cell["learning_rate"]
    )
    payload = -(-mechanism.bits * mechanism.coordinates // 8)
    return {
        "accuracy": result.accuracy,
        "epsilon_reached": plan.report.epsilon,
        "epsilon_aggregator_reached": plan.report.epsilon_aggregator,
        "bits": mechanism.bits,
        "kept": mechanism.coordinates,
        "scale": float(mechanism.scale),
        "noise_multiplier": mechanism.noise_variance(mechanism.shares) ** 0.5 / mechanism.radius,
        "upload_bytes": payload * cell["rounds"] * cell["batch"] / everyone,
        "seconds": time.perf_counter() - start,
    }


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
        [f"{batch:,} participants, {rounds} rounds, {rate:g} {'bit' if rate == 1 else 'bits'} per weight"]
        + [f"{means[batch, limit]:.2f}" if (batch, limit) in means else "–" for limit in limits]
        + [f"{max(own) / 1000:.0f} kB" if (own := _uploads(rows, batch)) else "–"]
        for batch, rounds, _, rate in SCHEDULES
    ]
    title = "Accuracy in percent, by ε against the aggregator; bytes that a participant uploads in all"
    return [Grid(title, ["", *map("ε = {:g}".format, limits), "upload"], body)]


def whole_upload(payload: float, rounds: int, batch: int, population: int) -> float:
    """Bytes that a participant uploads in a run: its vectors (`payload` in all), and the keys and shares."""
    return payload + rounds * batch / population * protocol_bytes(batch, batch)


def _uploads(rows: Sequence[Row], batch: int) -> list[float]:
    return [
        whole_upload(row["upload_bytes"], row["rounds"], batch, row["images"] or _EVERYONE)
        for row in rows
        if row["batch"] == batch and row["upload_bytes"] is not None
    ]


def _papers_upload() -> float:
    return whole_upload(PAPERS_PAYLOAD, 1_000, 240, _EVERYONE)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The best schedule at each of two ε for the aggregator: its accuracy, and what it uploads."""
    means, goals = _means(rows), ((3.0, 97.0), (6.0, 98.0))
    best = {limit: found for limit, _ in goals if (found := _best(means, limit)) is not None}
    sizes = {limit: max(_uploads(rows, batch)) for limit, batch in best.items()}
    upload = Claim(
        f"So reached, a participant uploads less than in the paper's job ({_papers_upload() / 1000:.0f} kB)",
        "skelmix",
        all(size < _papers_upload() for size in sizes.values()) if len(sizes) == len(goals) else None,
        ", ".join(f"{size / 1000:.0f} kB at ε = {limit:g}" for limit, size in sizes.items()) or "no rows",
    )
    return [*(_reaches(means, limit, least) for limit, least in goals), upload]


def _best(means: dict[tuple[int, float], float], limit: float) -> int | None:
    """The records per round with the best accuracy at this ε; None without rows."""
    known = {batch: value for (batch, at), value in means.items() if at == limit}
    return max(known, key=known.__getitem__, default=None)


def _reaches(means: dict[tuple[int, float], float], limit: float, least: float) -> Claim:
    text = f"At ε = {limit:g} against the aggregator, accuracy reaches {least:g} %"
    best = _best(means, limit)
    if best is None:
        return Claim(text, "skelmix", None, "no rows")
    accuracy = means[best, limit]
    return Claim(text, "skelmix", accuracy >= least, f"{accuracy:.2f} % with {best:,} participants per round")


def words(rows: Sequence[Row]) -> list[str]:
    return [
        "Softmax regression on scattering features of MNIST; each participant holds one image. The noise is "
        "the Skellam mixture's, for ε ≤ 3 against observers and the ε stated against the aggregator, cohorts "
        "drawn as agreed. Uploads are those of all rounds, with the keys and shares of secure aggregation "
        "(the CSV has the vectors alone). Runs use reproducible randomness and are therefore *not private*.",
        f"Beside it, the paper's job: {PAPERS_JOB[1]} % at ε = {PAPERS_JOB[0]} against the aggregator, "
        f"by the paper's bound with participations counted as they happen; {_papers_upload() / 1000:.0f} kB.",
    ]


def draw(rows: Sequence[Row], path: Path) -> list[Path]:
    figure, axes = canvas(1, 1, width=6.4, height=4.0)
    at, means = axes[0][0], _means(rows)
    panel(at, "", x="ε against the aggregator", y="accuracy on MNIST, %")
    at.set_xscale("log")
    for batch in sorted({row["batch"] for row in rows}, reverse=True):
        points = sorted((limit, value) for (own, limit), value in means.items() if own == batch)
        if points:
            colour, marker = _LOOKS.get(batch, ("#555555", "v"))
            label = f"{batch:,} participants per round"
            at.plot(*zip(*points, strict=True), color=colour, marker=marker, label=label)
    at.plot(*PAPERS_JOB, color="#000000", marker="x", linestyle="", label="the paper's job")
    at.legend(frameon=False, fontsize=9)
    return finish(figure, path)


STUDY = Study(
    name="aggregator",
    title="Accuracy against the aggregator's ε",
    revision=2,
    settings=SETTINGS,
    measures=MEASURES,
    cells=cells,
    measure=measure,
    draw=draw,
    claims=claims,
    tables=tables,
    words=words,
    workers=0,
    seconds_per_setting=250.0,
)
