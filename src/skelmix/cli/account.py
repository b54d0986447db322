"""`skelmix account`: the reverse of plan. The noise is given, the (ε, δ) is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skelmix.cli import options as opt
from skelmix.cli.console import emit
from skelmix.errors import InvalidInput

Run = Annotated[Path | None, typer.Argument()]
PlanFile = Annotated[
    Path | None, typer.Option(help="With a ledger file: its plan, JSON; default: plan.json beside it.")
]
Noise = Annotated[
    float | None,
    typer.Option(
        help="Noise of one participant (or silo) on the integer grid: λ (smm, skellam), σ (dgm, ddg, "
        "gaussian) or trials (cpsgd).",
        rich_help_panel="Mechanism",
    ),
]
ClipSlack = Annotated[
    float,
    typer.Option(
        help="With --keep or --rate: the kept coordinates are clipped at 1 + slack/√coordinates times their "
        "root mean square.",
        rich_help_panel="Vector",
    ),
]
Scale = Annotated[float, typer.Option(help="Scale γ of the grid.", rich_help_panel="Mechanism")]


def register(app: typer.Typer) -> None:
    app.command("account")(account_command)


def account_command(
    context: typer.Context,
    run: Run = None,
    plan: PlanFile = None,
    noise: Noise = None,
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
    clip_slack: ClipSlack = 0.0,
    cohort: opt.CohortSize = 240,
    population: opt.Population = None,
    silos: opt.SiloCount = None,
    records: opt.Records = None,
    batch: opt.Batch = None,
    rounds: opt.Rounds = 1,
    mechanism: opt.MechanismName = "smm",
    bound: opt.Bound = "tight",
    scale: Scale = 64.0,
    dropout_tolerance: opt.DropoutTolerance = 0.0,
    dropout_rate: opt.DropoutRate = None,
    colluding: opt.Colluding = 0,
    sampling: opt.Sampling = "poisson",
    contribute: opt.Contribute = 1.0,
    max_participations: opt.MaxParticipations = None,
    alignment: opt.Alignment = 1.0,
    as_json: opt.Json = False,
) -> None:
    """Compute the ε that a given noise gives, or that a run has spent so far.

    Example: skelmix account --noise 5.95 --scale 64 --cohort 240 --population 60000 --rounds 1000
    --delta 1e-5

    Example for a run, finished or not: skelmix account runs/first

    RUN is a run directory of `skelmix train`, or a ledger file, such as that of a SecureGrid on Flower.
    """
    from skelmix import planning

    if run is not None:
        _spent(context, run, plan, as_json)
        return
    if noise is None or plan is not None:
        raise InvalidInput("give --noise, or the directory or ledger of a run (with its --plan)")
    group = opt.build_cohort(
        cohort, population, dropout_tolerance, colluding, sampling, contribute, max_participations, rounds,
        dropout_rate=dropout_rate, silos=silos, records=records, batch=batch,
    )  # fmt: skip
    accounted = planning.account(
        noise=noise, delta=delta, dimension=dimension, clip_norm=clip_norm,
        clip=opt.build_clip(clip, clip_norm, clip_quantile, clip_rate, clip_start),
        rate=rate, bits=bits, keep=keep, clip_slack=clip_slack, rounds=rounds, cohort=group,
        mechanism=mechanism, scale=scale, bound=bound, alignment=alignment,
    )  # fmt: skip
    emit(accounted.summary(), str(accounted), as_json=as_json)


def _spent(context: typer.Context, run: Path, plan: Path | None, as_json: bool) -> None:
    """Print what a run has spent so far."""
    from skelmix.rounds.run_account import spent_so_far

    if others := opt.given(context) - {"run", "plan", "as_json"}:
        raise InvalidInput(f"{opt.spelled(others)}: a run has its own plan; leave it out")
    spent = spent_so_far(run, plan)
    emit(spent.to_dict(), str(spent), as_json=as_json)
