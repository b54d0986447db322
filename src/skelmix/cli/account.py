"""`skelmix account`: the reverse of plan. The noise is given, the (ε, δ) is computed."""

from __future__ import annotations

from typing import Annotated

import typer

from skelmix.cli import options as opt
from skelmix.cli.console import emit


def register(app: typer.Typer) -> None:
    @app.command()
    def account(
        noise: Annotated[
            float,
            typer.Option(
                help="Noise of one participant (or silo) on the integer grid: λ (smm, skellam), σ (dgm, ddg, "
                "gaussian) or trials (cpsgd).",
                rich_help_panel="Mechanism",
            ),
        ],
        delta: opt.Delta = 1e-5,
        dimension: opt.Dimension = 65_536,
        clip_norm: opt.ClipNorm = 1.0,
        rate: opt.Rate = None,
        bits: opt.Bits = None,
        keep: opt.Keep = None,
        clip_slack: Annotated[
            float,
            typer.Option(
                help="With --keep or --rate: the kept coordinates are clipped at 1 + slack/√coordinates "
                "times their root mean square.",
                rich_help_panel="Vector",
            ),
        ] = 0.0,
        cohort: opt.CohortSize = 240,
        population: opt.Population = None,
        silos: opt.SiloCount = None,
        records: opt.Records = None,
        batch: opt.Batch = None,
        rounds: opt.Rounds = 1,
        mechanism: opt.MechanismName = "smm",
        bound: opt.Bound = "tight",
        scale: Annotated[
            float, typer.Option(help="Scale γ of the grid.", rich_help_panel="Mechanism")
        ] = 64.0,
        dropout_tolerance: opt.DropoutTolerance = 0.0,
        colluding: opt.Colluding = 0,
        sampling: opt.Sampling = "poisson",
        contribute: opt.Contribute = 1.0,
        max_participations: opt.MaxParticipations = None,
        alignment: opt.Alignment = 1.0,
        as_json: opt.Json = False,
    ) -> None:
        """The ε that a given noise gives.

        Example: skelmix account --noise 5.95 --scale 64 --cohort 240 --population 60000 --rounds 1000
        --delta 1e-5
        """
        from skelmix.planning import account

        chosen = account(
            noise=noise,
            delta=delta,
            dimension=dimension,
            clip_norm=clip_norm,
            rate=rate,
            bits=bits,
            keep=keep,
            clip_slack=clip_slack,
            rounds=rounds,
            cohort=opt.build_cohort(
                cohort,
                population,
                dropout_tolerance,
                colluding,
                sampling,
                contribute=contribute,
                max_participations=max_participations,
                rounds=rounds,
                silos=silos,
                records=records,
                batch=batch,
            ),
            mechanism=mechanism,
            scale=scale,
            bound=bound,
            alignment=alignment,
        )
        emit(chosen.summary(), str(chosen), as_json=as_json)
