"""`skelmix train`: a model trained with distributed differential privacy, in a run directory of its own."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from skelmix.cli import options as opt
from skelmix.cli import train_options as own
from skelmix.cli.console import coloured, emit, err, progress
from skelmix.cli.train_progress import Live, after_the_round, readable
from skelmix.errors import InvalidInput
from skelmix.wording import counted

if TYPE_CHECKING:
    from skelmix.federated.runs import RunSettings
    from skelmix.planning import Plan

_BASELINES = {"dpsgd": None, "dpsgd-pld": "tight", "dpsgd-rdp": "rdp"}


def register(app: typer.Typer) -> None:
    @app.command()
    def train(
        context: typer.Context,
        dataset: own.Dataset = "mnist",
        recipe: own.Recipe = None,
        model: own.Model = None,
        optimizer: own.Optimizer = None,
        lr: own.Lr = None,
        lr_decay: own.LrDecay = None,
        epsilon: opt.Epsilon = 3.0,
        delta: opt.Delta = 1e-5,
        clip_norm: own.ClipNorm = None,
        clip: own.Clip = None,
        clip_quantile: opt.ClipQuantile = None,
        clip_rate: opt.ClipRate = None,
        clip_start: opt.ClipStart = None,
        rate: opt.Rate = None,
        bits: opt.Bits = None,
        keep: opt.Keep = None,
        cohort: own.Cohort = None,
        rounds: own.Rounds = None,
        mechanism: opt.MechanismName = "smm",
        bound: opt.Bound = "tight",
        scale: opt.Scale = None,
        dropout_tolerance: opt.DropoutTolerance = 0.0,
        colluding: opt.Colluding = 0,
        sampling: opt.Sampling = "poisson",
        epsilon_aggregator: opt.EpsilonAggregator = None,
        contribute: opt.Contribute = 1.0,
        max_participations: opt.MaxParticipations = None,
        alignment: own.Alignment = None,
        records_per_participant: own.RecordsPerParticipant = 1,
        silos: own.Silos = None,
        records: own.Records = None,
        batch: opt.Batch = None,
        owners: own.Owners = None,
        skew: own.Skew = None,
        ids: own.Ids = None,
        local_steps: own.LocalSteps = None,
        local_lr: own.LocalLr = None,
        secure: own.Secure = "simulated",
        dropout_rate: opt.DropoutRate = None,
        allow_failing_rounds: opt.AllowFailingRounds = False,
        evaluate_every: own.EvaluateEvery = 50,
        checkpoint_every: own.CheckpointEvery = 20,
        seeds: own.Seeds = "",
        baseline: own.Baseline = "",
        directory: own.Directory = None,
        resume: own.Resume = None,
        diagnostics: own.Diagnostics = False,
        tensorboard: own.Tensorboard = False,
        as_json: opt.Json = False,
    ) -> None:
        """Train a model under a privacy budget: plan, rounds, ledger, checkpoints and a report.

        Example: skelmix train --epsilon 3 --rate 0.5 --rounds 1000
        """
        from skelmix.federated.recipe_book import recipe_for
        from skelmix.federated.runs import RunSettings, read_settings
        from skelmix.rounds.security import secure_of

        if resume is not None:
            _alone(context)
            row = _one(read_settings(resume), None, resume, tensorboard, resume=True)
            emit(row, readable([row]), as_json=as_json)
            return
        if silos is None and (batch, owners, records) != (None, None, None):
            raise InvalidInput(
                "--batch, --owners and --records describe silos: give --silos too, or leave them out"
            )
        kinds = _kinds(mechanism, bound, scale, baseline, silos)
        use = recipe_for(recipe, dataset, epsilon).with_changes(
            model=model, optimizer=optimizer, lr=lr, lr_decay=lr_decay, rounds=rounds,
            batch=cohort if silos is None else batch, clip_norm=clip_norm,
            local_steps=local_steps, local_lr=local_lr,
        )  # fmt: skip
        if clip is None:
            clip = "fixed" if use.clip_quantile is None else "adaptive"
        if clip == "adaptive" and clip_quantile is None:
            clip_quantile = use.clip_quantile
        if (rate, bits, keep) == (None, None, None):
            rate, bits = use.rate, use.bits if silos is None else use.silo_bits
        if alignment is None:
            unchanged = (records_per_participant, local_steps, ids, owners) == (1, None, None, None)
            alignment = use.alignment if unchanged else None
        if alignment is None:
            single = (records_per_participant, use.local_steps, ids, owners) == (1, 1, None, None)
            alignment = 1.0 if not single else 0.02 if (rate, keep) == (None, None) else 0.005
        plans: dict[str, Any] = dict(
            epsilon=epsilon, delta=delta, clip_norm=use.clip_norm, rate=rate, bits=bits, keep=keep,
            cohort=use.batch, rounds=use.rounds,
            dropout_tolerance=dropout_tolerance, colluding=colluding, sampling=sampling, alignment=alignment,
            epsilon_aggregator=epsilon_aggregator, contribute=contribute,
            max_participations=max_participations, batch=None if silos is None else use.batch,
            clip=clip, clip_quantile=clip_quantile, clip_rate=clip_rate, clip_start=clip_start,
            dropout_rate=dropout_rate or None, allow_failing_rounds=allow_failing_rounds,
        ) | ({} if records is None else {"records": records})  # fmt: skip
        root = directory or Path("runs") / time.strftime("%Y%m%d-%H%M%S")
        settings = RunSettings(
            dataset, use.model, use.optimizer, use.lr, None, records_per_participant, skew, use.local_steps,
            use.local_lr, secure_of(secure), dropout_rate or 0.0, evaluate_every, checkpoint_every,
            str(ids) if ids else None, diagnostics, silos, str(owners) if owners else None,
            lr_decay=use.rounds if use.lr_decay else None,
        )  # fmt: skip
        rows = _all(settings, plans, kinds, root, _seeds(seeds), tensorboard)
        first = rows[0]
        emit(first if len(rows) == 1 else first | {"runs": rows}, readable(rows), as_json=as_json)


def _kinds(
    mechanism: str, bound: str, scale: float | None, baseline: str, silos: int | None
) -> dict[str, dict[str, Any]]:
    """What distinguishes the plans of the runs: the mechanism asked for, then the central baseline."""
    kinds: dict[str, dict[str, Any]] = {mechanism: {"mechanism": mechanism, "bound": bound, "scale": scale}}
    if not baseline:
        return kinds
    if baseline not in _BASELINES:
        raise InvalidInput(f"baseline = {baseline!r}: choose {', '.join(_BASELINES)}")
    if silos is not None:
        raise InvalidInput("--baseline: with silos, train DP-SGD by itself: --mechanism gaussian --cohort")
    from skelmix.mechanisms.bounds import BOUNDS

    asked = BOUNDS.get(bound)
    same = _BASELINES[baseline] or ("rdp" if asked is not None and asked.renyi else "tight")
    central = {"mechanism": "gaussian", "bound": same, "scale": None, "epsilon_aggregator": None}
    return kinds | {"gaussian": central}


def _all(
    settings: RunSettings,
    plans: dict[str, Any],
    kinds: dict[str, dict[str, Any]],
    root: Path,
    seeds: list[int | None],
    tensorboard: bool,
) -> list[dict[str, Any]]:
    """Every kind of run with every seed, the first kind first in the list.

    It runs last: its report draws the baseline in.
    """
    alone = len(kinds) == 1 and len(seeds) == 1

    def place_of(kind: str, seed: int | None) -> Path:
        return root if alone else root / (kind if seed is None else f"{kind}-seed{seed}")

    rows: list[dict[str, Any]] = []
    for place, (kind, extra) in reversed(list(enumerate(kinds.items()))):
        done = []
        for seed in seeds:
            own = replace(settings, seed=seed)
            if place:
                own = replace(own, secure="none")  # the baseline trusts its aggregator
            elif len(kinds) > 1:
                own = replace(own, baseline=str(place_of("gaussian", seed)))
            done.append(_one(own, plans | extra, place_of(kind, seed), tensorboard))
        rows = done + rows
    return rows


def _alone(context: typer.Context) -> None:
    """Refuse options that `--resume` would ignore: a run keeps its own settings."""
    if others := opt.given(context) - {"resume", "tensorboard", "as_json"}:
        raise InvalidInput(
            f"{opt.spelled(others)}: a resumed run keeps its settings; leave it out, or start another run"
        )


def _seeds(text: str) -> list[int | None]:
    try:
        seeds: list[int | None] = [int(word) for word in text.split(",")] if text else [None]
    except ValueError as error:
        raise InvalidInput(f"seeds = {text!r}: give whole numbers, such as 1,2,3") from error
    if len(set(seeds)) < len(seeds):
        raise InvalidInput(f"seeds = {text!r}: give each once; the same seed gives the same run")
    return seeds


def _check_before_data(settings: RunSettings, plans: dict[str, Any]) -> None:
    """Refuse mistakes that need no data to be seen: preparing the data may take minutes."""
    from skelmix.federated.recipes import check_optimizer
    from skelmix.planning import PrivacyTarget
    from skelmix.validation import one_of, positive

    one_of(("fixed", "adaptive"), clip=plans["clip"])
    opt.build_clip(
        *(plans[name] for name in ("clip", "clip_norm", "clip_quantile", "clip_rate", "clip_start"))
    )
    positive(clip_norm=plans["clip_norm"])
    PrivacyTarget(plans["epsilon"], plans["delta"], plans["epsilon_aggregator"])
    check_optimizer(settings.optimizer, settings.lr)


def _one(
    settings: RunSettings, plans: dict[str, Any] | None, place: Path, tensorboard: bool, resume: bool = False
) -> dict[str, Any]:
    """One run from its settings to its summary, with live progress on stderr."""
    from skelmix.display import plotly_script
    from skelmix.federated import print_progress, report, runs

    plotly_script()  # what is not installed is missed now, not after the budget is spent
    if tensorboard:
        runs.summary_writer()
    if plans is not None:
        _check_before_data(settings, plans)
    with err.status("preparing data, model and plan") as status:
        prepared = runs.Prepared(settings, status.update)
        plan: Plan | None = None
        if plans is not None:
            plan = opt.build_plan(dimension=prepared.dimension, **(prepared.contributors | plans))
        trainer = prepared.trainer(plan, place, resume=resume)
        spent = trainer.spent_by_round
        if tensorboard:
            trainer.callbacks += (runs.tensorboard(place, trainer, spent),)
    if not trainer.private:
        err.print("[bold red]NOT PRIVATE:[/] a seed makes this run repeatable, for anybody who knows it")
    for warning in trainer.plan.warnings:
        err.print(f"[yellow]warning:[/] {warning}", soft_wrap=True)
    with progress() as bar, after_the_round() as stop:
        task = bar.add_task(
            trainer.plan.mechanism.name, total=trainer.plan.rounds, completed=trainer.ledger.charged, note=""
        )
        live = Live(spent)
        if err.is_terminal:
            trainer.callbacks += (lambda _, record: bar.update(task, advance=1, note=live(record)),)
        else:
            trainer.callbacks += (print_progress,)
        trainer.callbacks += (stop,)
        try:
            result, summary = runs.finish(trainer, place, settings, spent)
        except KeyboardInterrupt:
            err.print(
                f"stopped after {counted(trainer.ledger.charged, 'round')}; go on with: skelmix train "
                f"--resume {shlex.quote(str(place))}",
                soft_wrap=True,
            )
            raise
    if prepared.task.perplexity is not None:
        summary["perplexity"] = prepared.task.perplexity(trainer.model)
    err.print(coloured(report.statement(trainer.plan, result)), soft_wrap=True)
    if broken := sum(r.diagnostics.broken or 0 for r in result.history if r.diagnostics):
        err.print(
            f"[yellow]warning:[/] {counted(broken, 'vector')} counted as zero, being NaN or infinite: "
            "check the data",
            soft_wrap=True,
        )
    result.check_learned()
    return summary
