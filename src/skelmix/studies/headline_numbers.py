"""The headline numbers, read from the tables of the studies: value, spread, seeds, command and commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from skelmix.federated.recipe_book import BEST
from skelmix.studies.grid import Grid
from skelmix.studies.rows import commits_of, read


@dataclass(frozen=True)
class Selection:
    """Which rows of a study make one number: those of `line` whose settings are `where`.

    data: on what it was measured. line: None for a study without lines. brief: also in the short table of
    the README.
    """

    data: str
    text: str
    study: str
    line: str | None
    where: dict[str, Any] = field(default_factory=dict)
    brief: bool = False

    def holds(self, row: dict[str, Any]) -> bool:
        wanted = {"line": self.line, "epsilon": 3.0, "delta": 1e-5} | self.where
        return row.get("accuracy") is not None and all(row.get(name) == it for name, it in wanted.items())


@dataclass(frozen=True)
class Headline:
    """One number: accuracies in percent, one per seed, and the commits that measured them."""

    selection: Selection
    accuracies: tuple[float, ...]
    commits: tuple[str, ...]

    @property
    def mean(self) -> float:
        return fmean(self.accuracies)

    @property
    def value(self) -> str:
        if not self.accuracies:
            return "not measured"
        spread = f" ± {stdev(self.accuracies):.2f}" if len(self.accuracies) > 1 else ""
        return f"{self.mean:.2f}{spread}"


def _at_rate(data: str, name: str, rate: float, brief: bool = False) -> Selection:
    text = f"SMM at {rate:g} bit{'s' * (rate > 1)} per weight"
    return Selection(data, text, "rate", "smm-rate", {"dataset": name, "rate": rate}, brief)


def _network(data: str, name: str, study: str) -> list[Selection]:
    """The paper's network at the paper's budget: 240 of 60,000 participants, 1,000 rounds."""
    job = {"dataset": name, "batch": 240, "rounds": 1_000}
    return [
        Selection(data, "central DP-SGD, best accounting", study, "gaussian-pld", job, True),
        Selection(data, "SMM at 8 bits per weight", study, "smm-auto", job | {"bits": 8}, True),
        _at_rate(data, name, 1.0, True),
        _at_rate(data, name, 0.25, True),
        _at_rate(data, name, 0.0625),
        _at_rate(data, name, 0.016, True),
        Selection(
            data,
            "the paper's SMM at 8 bits per weight",
            study,
            "smm-paper",
            job | {"bits": 8, "asked_scale": 64.0},
            True,
        ),
    ]


def _best(data: str, name: str) -> list[Selection]:
    """`skelmix train --recipe best` as it is now; rows of earlier recipes have other settings."""
    recipe = BEST[name]
    job = {"dataset": name, "batch": recipe.batch, "rounds": recipe.rounds, "images": None}
    sent = job | {"asked_rate": recipe.rate, "alignment": recipe.alignment}
    few = f"{recipe.rate:g} bit per weight"
    return [
        Selection(data, "best recipe, central noise", "recipes", "central", job),
        Selection(data, f"best recipe, {few}", "recipes", "participants", sent),
        Selection(data, f"best recipe, ten silos, {few}", "recipes", "silos", sent),
    ]


def _against_aggregator(epsilon: float, batch: int) -> Selection:
    text = f"also ε = {epsilon:g} against the aggregator, {batch:,} participants per round"
    return Selection("MNIST", text, "aggregator", None, {"epsilon_aggregator": epsilon, "batch": batch})


SELECTIONS: tuple[Selection, ...] = (
    *_network("MNIST", "mnist", "figure2"),
    Selection("MNIST", "ten silos, ε per record, 8 bits per weight", "silos", "silos", brief=True),
    Selection("MNIST", "ten silos, label skew 0.5", "silos", "silos-skew"),
    Selection("MNIST", "ten silos, each adding all the noise itself", "silos", "per-site"),
    *_best("MNIST", "mnist"),
    _against_aggregator(3.0, 15_000),
    _against_aggregator(6.0, 10_000),
    *_network("Fashion-MNIST", "fashion-mnist", "figure3"),
    *_best("Fashion-MNIST", "fashion-mnist"),
    *_best("CIFAR-10", "cifar-10"),
)


def headlines(results: Path, selections: Sequence[Selection] = SELECTIONS) -> list[Headline]:
    """Every headline number, as the tables in `results` have it: rows of the latest revision only."""
    numbers = []
    for selection in selections:
        path = results / f"{selection.study}.csv"
        columns, rows = read(path, _settings(path))
        commits = commits_of(path, _settings(path)) if columns else {}
        own = {place: row for place, row in rows.items() if selection.holds(row)}
        latest = max((row.get("revision", 0) for row in own.values()), default=0)
        own = {place: row for place, row in own.items() if row.get("revision", 0) == latest}
        numbers.append(
            Headline(
                selection,
                tuple(100 * row["accuracy"] for row in own.values()),
                tuple(sorted({commits[place] or "unknown" for place in own})),
            )
        )
    return numbers


def _settings(path: Path) -> tuple[str, ...]:
    """The columns that name a row: all up to the seed, and the rate where there is one."""
    columns, _ = read(path, ())
    end = max((columns.index(name) + 1 for name in ("seed", "rate") if name in columns), default=0)
    return columns[:end]


def full_table(results: Path) -> Grid:
    """All headline numbers with the command and the commits that made them."""
    body = [
        [
            f"{each.selection.data}: {each.selection.text}",
            each.value,
            str(len(each.accuracies)),
            f"`skelmix reproduce {each.selection.study}`",
            ", ".join(each.commits) or "–",
        ]
        for each in headlines(results)
    ]
    columns = ["what", "accuracy in %", "seeds", "command", "commit"]
    return Grid("Test accuracy at ε = 3, δ = 1e-5", columns, body)


def brief_table(results: Path) -> Grid:
    """The few numbers of the README, one row per method, one column per data set."""
    known = {(each.selection.data, each.selection.text): each for each in headlines(results)}
    sets = list(dict.fromkeys(data for (data, _), each in known.items() if each.selection.brief))
    texts = list(dict.fromkeys(text for (_, text), each in known.items() if each.selection.brief))
    body = [
        [text, *(known[data, text].value if (data, text) in known else "–" for data in sets)]
        for text in texts
    ]
    return Grid("Test accuracy in %, ε = 3, δ = 1e-5", ["method", *sets], body)
