"""`skelmix plan`: what to run for a privacy target, and what it will cost in accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from skelmix.cli import options as opt
from skelmix.cli.comparison import comparison_text
from skelmix.cli.console import emit, err
from skelmix.cli.places import check_writable
from skelmix.errors import InvalidInput, SkelmixError

_PICTURES = (".png", ".svg", "")
_RATES = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0625)


Compare = Annotated[
    bool, typer.Option("--compare", help="Compare the errors of all mechanisms, and of this one over rates.")
]
AgainstAggregator = Annotated[
    bool,
    typer.Option(
        "--against-aggregator",
        help="A table of rounds, cohorts and coins with equal expected contributions: ε for observers and "
        "for the aggregator, and a participant's upload.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        help="Write a picture: predicted error against bits per weight; with --compare bars; with "
        "--against-aggregator the aggregator's ε against upload."
    ),
]
Output = Annotated[Path | None, typer.Option(help="Write the plan as JSON, for clients and server.")]


def register(app: typer.Typer) -> None:
    app.command("plan")(plan_command)


def plan_command(
    epsilon: opt.Epsilon = 3.0,
    delta: opt.Delta = 1e-5,
    dimension: opt.Dimension = 65_536,
    clip_norm: opt.ClipNorm = 1.0,
    clip: opt.Clip = "fixed",
    clip_quantile: opt.ClipQuantile = None,
    clip_rate: opt.ClipRate = None,
    clip_start: opt.ClipStart = None,
    rate: opt.Rate = None,
    bits: opt.Bits = None,
    keep: opt.Keep = None,
    cohort: opt.CohortSize = 240,
    population: opt.Population = None,
    silos: opt.SiloCount = None,
    records: opt.Records = None,
    batch: opt.Batch = None,
    rounds: opt.Rounds = 1,
    mechanism: opt.MechanismName = "smm",
    bound: opt.Bound = "tight",
    scale: opt.Scale = None,
    dropout_tolerance: opt.DropoutTolerance = 0.0,
    dropout_rate: opt.DropoutRate = None,
    allow_failing_rounds: opt.AllowFailingRounds = False,
    colluding: opt.Colluding = 0,
    sampling: opt.Sampling = "poisson",
    epsilon_aggregator: opt.EpsilonAggregator = None,
    contribute: opt.Contribute = 1.0,
    max_participations: opt.MaxParticipations = None,
    alignment: opt.Alignment = 1.0,
    compare: Compare = False,
    against_aggregator: AgainstAggregator = False,
    plot: Plot = None,
    output: Output = None,
    as_json: opt.Json = False,
) -> None:
    """Choose what is sent, scale and noise for a privacy target, and predict the error of the sum.

    Example: skelmix plan --epsilon 3 --delta 1e-5 --dimension 63610 --rate 1 --alignment 0.005 --cohort
    240 --population 60000 --rounds 1000

    Records in silos: skelmix plan --silos 10 --records 60000 --batch 240 --rounds 1000 --dimension 63610
    """
    settings: dict[str, Any] = dict(
        epsilon=epsilon, delta=delta, dimension=dimension, clip_norm=clip_norm, cohort=cohort,
        population=population, rounds=rounds, bound=bound, scale=scale,
        dropout_tolerance=dropout_tolerance, colluding=colluding, sampling=sampling, alignment=alignment,
        epsilon_aggregator=epsilon_aggregator, contribute=contribute,
        max_participations=max_participations,
        silos=silos, records=records, batch=batch,
        clip=clip, clip_quantile=clip_quantile, clip_rate=clip_rate, clip_start=clip_start,
        dropout_rate=dropout_rate, allow_failing_rounds=allow_failing_rounds,
    )  # fmt: skip
    sent: dict[str, Any] = {"rate": rate, "bits": bits, "keep": keep, "mechanism": mechanism}
    for place, option in ((output, "--output"), (plot, "--plot")):
        if place is not None:
            check_writable(place, option)
    if plot is not None and plot.suffix not in _PICTURES:
        raise InvalidInput(f"--plot {plot}: the ending must be .png or .svg, or none for both")
    if against_aggregator and compare:
        raise InvalidInput("--compare and --against-aggregator are two tables: ask for one at a time")
    if against_aggregator and (silos, records, batch) != (None, None, None):
        raise InvalidInput(
            "--against-aggregator compares cohorts; in silos the aggregator's ε is that of observers: leave "
            "out --silos, --records and --batch"
        )
    if against_aggregator:
        _against_aggregator(settings | sent, plot, as_json)
    elif compare:
        _compare(settings, sent, plot, as_json)
    else:
        _plan(settings, sent, plot, output, as_json)


def _plan(
    settings: dict[str, Any], sent: dict[str, Any], plot: Path | None, output: Path | None, as_json: bool
) -> None:
    """Print the plan, write it if asked to, and draw the error against the rate if asked to."""
    if plot is not None:
        from skelmix.studies.compare import plot_error_against_rate

        with err.status("comparing mechanisms over rates"):
            plot_error_against_rate(plot, opt.build_plan, **settings)
        err.print(f"wrote {_written(plot)}")
    plan = opt.build_plan(**settings, **sent)
    for warning in plan.warnings if as_json else ():  # the card has them
        err.print(f"[yellow]warning:[/] {warning}", soft_wrap=True)
    if output is not None:
        from skelmix.rounds.files import write_atomically

        write_atomically(output, f"{plan.to_json()}\n".encode())
        err.print(f"wrote {output}")
    emit(plan.summary(), str(plan), as_json=as_json)


def _written(plot: Path) -> str:
    """The names of the pictures that a name stands for."""
    return str(plot) if plot.suffix else f"{plot}.png and {plot}.svg"


def _compare(settings: dict[str, Any], sent: dict[str, Any], plot: Path | None, as_json: bool) -> None:
    """Print, and draw if asked to, the error of every mechanism and that of one over rates."""
    from skelmix.mechanisms.registry import MECHANISMS

    name = sent["mechanism"]
    with err.status("comparing mechanisms and rates"):
        rows = [_row(other, settings | sent | {"mechanism": other}) for other in MECHANISMS]
        rates = [
            {"asked_rate": rate} | _row(name, settings | {"rate": rate, "mechanism": name}) for rate in _RATES
        ]
    if plot is not None:
        from skelmix.studies.compare import plot_comparison

        plot_comparison(plot, rows, rates)
        err.print(f"wrote {_written(plot)}")
    emit({"compare": rows, "rates": rates}, comparison_text(rows, rates), as_json=as_json)


def _against_aggregator(settings: dict[str, Any], plot: Path | None, as_json: bool) -> None:
    """Print, and draw if asked to, what other schedules would give against the aggregator."""
    from skelmix.studies.schedules import plot_schedules, schedule_rows, schedule_table

    with err.status("planning other rounds, cohorts and coins"):
        rows = schedule_rows(opt.build_plan, **settings)
    if plot is not None:
        plot_schedules(plot, rows)
        err.print(f"wrote {_written(plot)}")
    emit({"against_aggregator": rows}, schedule_table(rows).rich(), as_json=as_json)


def _row(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """One line of the comparison; for a mechanism without a plan, the reason."""
    try:
        return opt.build_plan(**(settings | _own_bound(name, settings["bound"]))).summary()
    except SkelmixError as error:
        return {"mechanism": name, "error": str(error)}


def _own_bound(name: str, bound: str) -> dict[str, str]:
    """The bound to compare a mechanism by: its best one where it does not have the one asked for."""
    from skelmix.mechanisms.registry import MECHANISMS

    return {} if bound in MECHANISMS[name].known_bounds else {"bound": "tight"}
