"""Compares rounds, cohorts and coins with equal expected contributions by their ε for the aggregator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from skelmix.errors import PrivacyUnattainable
from skelmix.planning import Plan
from skelmix.studies.drawing import canvas, finish, panel
from skelmix.studies.grid import Grid, number
from skelmix.studies.rows import Row
from skelmix.wording import up

#: rounds are divided by these, and cohorts multiplied
FEWER_ROUNDS = (1, 4, 16, 64)
COINS = (1.0, 0.25, 0.1, 0.05)
_LOOKS = {1.0: ("#000000", "o"), 0.25: ("#0072B2", "s"), 0.1: ("#D55E00", "^"), 0.05: ("#009E73", "D")}


def schedule_rows(build: Callable[..., Plan], **settings: Any) -> list[Row]:
    """One row per schedule, each a plan build(**settings) of its own that meets the same targets.

    The expected contributions of a participant over the run stay as the settings have them (rounds times
    cohort times coin, over the population); cohorts end at the population. Uploads are those of the whole
    run, with the keys and shares of secure aggregation. Schedules that cannot be planned have the reason
    under "error".
    """
    population = settings["population"] or settings["cohort"]
    contributions = settings["rounds"] * settings["cohort"] * settings["contribute"]
    return [
        _row(build, settings | {"rounds": rounds, "cohort": cohort, "contribute": coin})
        for rounds, cohort, coin in dict.fromkeys(_schedules(settings["rounds"], contributions, population))
    ]


def _schedules(most_rounds: int, contributions: float, population: int) -> Iterator[tuple[int, int, float]]:
    """(rounds, cohort, coin), the most rounds first."""
    for fewer in FEWER_ROUNDS:
        if most_rounds % fewer and most_rounds // fewer < 10:
            continue
        rounds = most_rounds // fewer
        for coin in COINS:
            cohort = round(contributions / rounds / coin)
            if 1 <= cohort <= population:
                yield rounds, cohort, coin
    everyone = contributions / population  # rounds with everybody in them, and no coin
    if (rounds := round(everyone)) >= 1 and rounds * population == contributions:
        yield rounds, population, 1.0


def _row(build: Callable[..., Plan], settings: dict[str, Any]) -> Row:
    population = settings["population"] or settings["cohort"]
    row: Row = {name: settings[name] for name in ("rounds", "cohort", "contribute")}
    row["participations"] = settings["rounds"] * settings["cohort"] / population
    try:
        plan = build(**settings)
    except PrivacyUnattainable as error:
        return row | {"error": str(error)}
    return row | {
        "max_participations": plan.cohort.max_participations,
        "epsilon": plan.report.epsilon,
        "epsilon_aggregator": plan.report.epsilon_aggregator,
        "upload_bytes": row["participations"] * plan.round_bytes,
        "error_per_contribution": plan.predicted.effective_mse**0.5 / plan.cohort.divisor,
    }


def schedule_table(rows: list[Row]) -> Grid:
    """The rows as a table; a dash where a schedule cannot be planned."""
    cells = []
    for row in rows:
        planned = "error" not in row
        cells.append(
            [
                f"{row['rounds']:,}",
                f"{row['cohort']:,}",
                f"{row['contribute']:g}",
                f"{row['participations']:,.4g}",
                up(row["epsilon"]) if planned else "–",
                up(row["epsilon_aggregator"]) if planned else "–",
                f"{row['upload_bytes'] / 1e3:,.0f}" if planned else "–",
                number(row.get("error_per_contribution"), 3),
            ]
        )
    columns = [
        "rounds",
        "cohort",
        "coin",
        "in rounds",
        "ε observers",
        "ε aggregator",
        "upload in kB",
        "error of the mean",
    ]
    title = "Equal expected contributions; uploads of a whole run, with keys and shares"
    return Grid(title, columns, cells)


def plot_schedules(path: Path, rows: list[Row]) -> None:
    """Write a picture, PNG or SVG by the name of `path`: the aggregator's ε against a participant's upload.

    Raises `MissingExtra` without matplotlib.
    """
    figure, axes = canvas(1, 1, width=6.4, height=4.0)
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    at = axes[0][0]
    panel(at, "", x="upload of a participant in all, kB", y="ε against the aggregator", log=True)
    at.set_xscale("log")
    for axis in (at.xaxis, at.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axis.set_minor_formatter(NullFormatter())
    at.margins(x=0.15)
    for coin, (colour, marker) in _LOOKS.items():
        points = [row for row in rows if row["contribute"] == coin and "error" not in row]
        if not points:
            continue
        x = [row["upload_bytes"] / 1e3 for row in points]
        y = [row["epsilon_aggregator"] for row in points]
        label = "no coin" if coin == 1 else f"coin of {coin:g}"
        at.plot(x, y, color=colour, marker=marker, linewidth=1.0, label=label)
        for row, left, height in zip(points, x, y, strict=True):
            at.annotate(
                f"{row['rounds']:,} × {row['cohort']:,}",
                (left, height),
                textcoords="offset points",
                xytext=(5, 4),
                fontsize=7,
            )
    at.legend(frameon=False, fontsize=9)
    finish(figure, path)
