"""`skelmix plan`: what to run for a privacy target, and what it will cost in accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skelmix.cli import options as opt
from skelmix.cli.console import emit, err

if TYPE_CHECKING:
    from rich.console import RenderableType

_RATES = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0625)


def register(app: typer.Typer) -> None:
    @app.command()
    def plan(
        epsilon: opt.Epsilon = 3.0,
        delta: opt.Delta = 1e-5,
        dimension: opt.Dimension = 65_536,
        clip_norm: opt.ClipNorm = 1.0,
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
        colluding: opt.Colluding = 0,
        sampling: opt.Sampling = "poisson",
        epsilon_aggregator: opt.EpsilonAggregator = None,
        contribute: opt.Contribute = 1.0,
        max_participations: opt.MaxParticipations = None,
        alignment: opt.Alignment = 1.0,
        compare: Annotated[
            bool, typer.Option(help="Tables over all mechanisms at this rate, and over rates.")
        ] = False,
        against_aggregator: Annotated[
            bool,
            typer.Option(
                "--against-aggregator",
                help="A table of rounds, cohorts and coins with equal expected contributions: ε for "
                "observers and for the aggregator, and a participant's upload.",
            ),
        ] = False,
        plot: Annotated[
            Path | None,
            typer.Option(
                help="Write a picture: predicted error against bits per weight; the aggregator's ε against "
                "upload with --against-aggregator."
            ),
        ] = None,
        output: Annotated[
            Path | None, typer.Option(help="Write the plan as JSON, for clients and server.")
        ] = None,
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
        )  # fmt: skip
        sent: dict[str, Any] = {"rate": rate, "bits": bits, "keep": keep}
        if against_aggregator:
            _against_aggregator(settings | sent | {"mechanism": mechanism}, plot, as_json)
            return
        if plot is not None:
            from skelmix.studies.compare import plot_error_against_rate

            with err.status("comparing mechanisms over rates"):
                plot_error_against_rate(plot, opt.build_plan, **settings)
            err.print(f"wrote {plot}")
        if compare:
            with err.status("comparing mechanisms and rates"):
                rows = [
                    _row(name, settings | sent | {"mechanism": name}) for name in opt.MECHANISMS.split("|")
                ]
                rates = [
                    {"asked_rate": asked}
                    | _row(mechanism, settings | {"rate": asked, "mechanism": mechanism})
                    for asked in _RATES
                ]
            emit({"compare": rows, "rates": rates}, _comparison(rows, rates), as_json=as_json)
            return
        chosen = opt.build_plan(**settings, **sent, mechanism=mechanism)
        for warning in chosen.warnings:
            err.print(f"[yellow]warning:[/] {warning}")
        if output is not None:
            output.write_text(chosen.to_json() + "\n")
            err.print(f"wrote {output}")
        emit(chosen.summary(), str(chosen), as_json=as_json)


def _against_aggregator(settings: dict[str, Any], plot: Path | None, as_json: bool) -> None:
    """Print, and draw if asked to, what other schedules would give against the aggregator."""
    from skelmix.studies.schedules import plot_schedules, schedule_rows, schedule_table

    with err.status("planning other rounds, cohorts and coins"):
        rows = schedule_rows(opt.build_plan, **settings)
    if plot is not None:
        plot_schedules(plot, rows)
        err.print(f"wrote {plot}")
    emit({"against_aggregator": rows}, schedule_table(rows).rich(), as_json=as_json)


def _row(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """One line of the comparison; a mechanism that cannot do it says why."""
    from skelmix.errors import SkelmixError

    try:
        chosen = opt.build_plan(**(settings | _own_bound(name, settings["bound"])))
    except SkelmixError as error:
        return {"mechanism": name, "error": str(error)}
    return chosen.summary()


def _own_bound(name: str, bound: str) -> dict[str, str]:
    """The bound to compare a mechanism by: its best one where it does not have the one asked for."""
    from skelmix.mechanisms.registry import MECHANISMS

    return {} if bound in MECHANISMS[name].known_bounds else {"bound": "tight"}


def _comparison(rows: list[dict[str, Any]], rates: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group

    able = sorted(
        (row for row in rows if "error" not in row), key=lambda row: float(row["predicted"]["effective_mse"])
    )
    reasons = [f"{row['mechanism']}: {row['error']}" for row in rows if "error" in row]
    reasons += [f"rate {row['asked_rate']:g}: {row['error']}" for row in rates if "error" in row]
    title = "Mean squared error of a coordinate of the sum"
    return Group(
        _table(title, able),
        _table("The same over rates", [row for row in rates if "error" not in row]),
        *reasons,
    )


def _table(title: str, rows: list[dict[str, Any]]) -> RenderableType:
    from rich.table import Table

    table = Table(title=title)
    names = ("mechanism", "bound", "bits/weight", "bits", "keep", "bytes", "scale γ", "noise", "mse")
    for column in (*names, "over central", "wraps"):
        table.add_column(column, justify="left" if column in ("mechanism", "bound") else "right")
    for row in rows:
        predicted = row["predicted"]
        table.add_row(
            row["mechanism"],
            row["bound"],
            f"{row['rate']:.3g}",
            f"{row['bits']}",
            f"{row['keep']:.3g}",
            f"{row['upload_bytes']:,}",
            f"{row['scale']:.4g}",
            f"{row['noise']:.4g}",
            f"{predicted['mse']:.4g}",
            f"{predicted['effective_mse'] / row['central_gaussian_mse']:.3f}",
            f"{predicted['wrap_probability']:.2g}",
        )
    return table
