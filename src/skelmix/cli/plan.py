"""`skelmix plan`: what to run for a privacy target, and what it will cost in accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skelmix.cli import options as opt
from skelmix.cli.console import emit, err

if TYPE_CHECKING:
    from rich.console import RenderableType


def register(app: typer.Typer) -> None:
    @app.command()
    def plan(
        epsilon: opt.Epsilon = 3.0,
        delta: opt.Delta = 1e-5,
        dimension: opt.Dimension = 65_536,
        clip_norm: opt.ClipNorm = 1.0,
        bits: opt.Bits = 8,
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
        alignment: opt.Alignment = 1.0,
        compare: Annotated[bool, typer.Option(help="A table over all mechanisms at these bits.")] = False,
        plot: Annotated[
            Path | None, typer.Option(help="Write a picture: predicted error against bits.")
        ] = None,
        output: Annotated[
            Path | None, typer.Option(help="Write the plan as JSON, for clients and server.")
        ] = None,
        as_json: opt.Json = False,
    ) -> None:
        """Choose scale and noise for a privacy target, and predict the error of the sum.

        Example: skelmix plan --epsilon 3 --delta 1e-5 --dimension 63610 --bits 8 --cohort 240 --population
        60000 --rounds 1000

        Records in silos: skelmix plan --silos 10 --records 60000 --batch 240 --rounds 1000 --dimension 63610
        """
        settings: dict[str, Any] = dict(
            epsilon=epsilon, delta=delta, dimension=dimension, clip_norm=clip_norm, cohort=cohort,
            population=population, rounds=rounds, bound=bound, scale=scale,
            dropout_tolerance=dropout_tolerance, colluding=colluding, sampling=sampling, alignment=alignment,
            silos=silos, records=records, batch=batch,
        )  # fmt: skip
        if plot is not None:
            from skelmix.studies.compare import plot_error_against_bits

            with err.status("comparing mechanisms over bits"):
                plot_error_against_bits(plot, opt.build_plan, **settings)
            err.print(f"wrote {plot}")
        if compare:
            rows = [
                _row(name, settings | {"bits": bits, "mechanism": name}) for name in opt.MECHANISMS.split("|")
            ]
            emit({"compare": rows}, _comparison(rows), as_json=as_json)
            return
        chosen = opt.build_plan(**settings, bits=bits, mechanism=mechanism)
        for warning in chosen.warnings:
            err.print(f"[yellow]warning:[/] {warning}")
        if output is not None:
            output.write_text(chosen.to_json() + "\n")
            err.print(f"wrote {output}")
        emit(chosen.summary(), str(chosen), as_json=as_json)


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


def _comparison(rows: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    table = Table(title="Mean squared error of a coordinate of the sum")
    for column in ("mechanism", "bound", "scale γ", "noise", "mse", "over central", "wraps"):
        table.add_column(column, justify="left" if column in ("mechanism", "bound") else "right")
    able = [row for row in rows if "error" not in row]
    for row in sorted(able, key=lambda row: float(row["predicted"]["effective_mse"])):
        predicted = row["predicted"]
        table.add_row(
            row["mechanism"],
            row["bound"],
            f"{row['scale']:.4g}",
            f"{row['noise']:.4g}",
            f"{predicted['mse']:.4g}",
            f"{predicted['effective_mse'] / row['central_gaussian_mse']:.3f}",
            f"{predicted['wrap_probability']:.2g}",
        )
    reasons = [f"{row['mechanism']}: {row['error']}" for row in rows if "error" in row]
    return Group(table, *reasons)
