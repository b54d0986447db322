"""`skelmix train`: a model trained with distributed differential privacy, in a run directory of its own."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skelmix.cli import options as opt
from skelmix.cli.console import emit, err, progress
from skelmix.wording import up

if TYPE_CHECKING:
    from skelmix.federated.report import Spent
    from skelmix.federated.runs import RunSettings
    from skelmix.planning import Plan

_RUN = "Training"
_ALIGNMENT = (
    "Mean cosine between participants' vectors, 0..1: how long their sum may get. Default for gradients of "
    "single records: 0.02, above what the first rounds have, or with --rate or --keep 0.005, about the mean "
    "of a run; else 1, the safe choice. Too low a value shows as wrapped coordinates."
)
_BASELINES = {"dpsgd": None, "dpsgd-pld": "tight", "dpsgd-rdp": "rdp"}


def _option(help: str, *names: str, panel: str = _RUN) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


def register(app: typer.Typer) -> None:
    @app.command()
    def train(
        context: typer.Context,
        dataset: Annotated[
            str, _option("mnist, fashion-mnist, cifar-10, or a directory of idx files.")
        ] = "mnist",
        model: Annotated[
            str, _option("mlp (the paper's), cnn, or package.module:factory, a function without arguments.")
        ] = "mlp",
        optimizer: Annotated[str, _option("adam, adamw, sgd or momentum.")] = "adam",
        lr: Annotated[float, _option("Learning rate.")] = 0.005,
        epsilon: opt.Epsilon = 3.0,
        delta: opt.Delta = 1e-5,
        clip_norm: opt.ClipNorm = 1.0,
        rate: opt.Rate = None,
        bits: opt.Bits = None,
        keep: opt.Keep = None,
        cohort: opt.CohortSize = 240,
        rounds: opt.Rounds = 1000,
        mechanism: opt.MechanismName = "smm",
        bound: opt.Bound = "tight",
        scale: opt.Scale = None,
        dropout_tolerance: opt.DropoutTolerance = 0.0,
        colluding: opt.Colluding = 0,
        sampling: opt.Sampling = "poisson",
        epsilon_aggregator: opt.EpsilonAggregator = None,
        contribute: opt.Contribute = 1.0,
        max_participations: opt.MaxParticipations = None,
        alignment: Annotated[float | None, _option(_ALIGNMENT, panel="Vector")] = None,
        records_per_participant: Annotated[int, _option("Records that each participant holds.")] = 1,
        silos: Annotated[
            int | None, _option("Divide the records among so many silos: protect records.", panel="Silos")
        ] = None,
        batch: opt.Batch = None,
        owners: Annotated[
            Path | None,
            _option(
                "File giving the owner of each training record (.npy, or text with one owner per line): "
                "protect owners.",
                panel="Silos",
            ),
        ] = None,
        skew: Annotated[float | None, _option("Dirichlet concentration of a label skew.")] = None,
        ids: Annotated[
            Path | None, _option("File giving the owner of each training record: .npy, or one id per line.")
        ] = None,
        local_steps: Annotated[int, _option("Gradient steps per participant and round.")] = 1,
        local_lr: Annotated[float, _option("Learning rate of those steps.")] = 0.1,
        secure: Annotated[
            str, _option("simulated (modular sum), protocol (secure aggregation) or none (gaussian).")
        ] = "simulated",
        dropout_rate: Annotated[float, _option("Simulated: fraction of a cohort that drops out.")] = 0.0,
        evaluate_every: Annotated[int, _option("Rounds between evaluations.")] = 50,
        checkpoint_every: Annotated[int, _option("Rounds between checkpoints.")] = 20,
        seeds: Annotated[
            str, _option("Comma-separated; repeatable runs, NOT PRIVATE.", "--seeds", "--seed")
        ] = "",
        baseline: Annotated[
            str,
            _option("Also train DPSGD for comparison: dpsgd (same accounting), dpsgd-pld or dpsgd-rdp."),
        ] = "",
        directory: Annotated[Path | None, _option("Run directory; default runs/<time>.")] = None,
        resume: Annotated[
            Path | None, _option("Continue the run in this directory, with the settings it has.")
        ] = None,
        diagnostics: Annotated[
            bool,
            _option(
                "Keep cohort sizes, norms and clipped fractions too: NOT PRIVATE, no noise protects them."
            ),
        ] = False,
        tensorboard: Annotated[bool, _option("Write TensorBoard logs too, when installed.")] = False,
        as_json: opt.Json = False,
    ) -> None:
        """Train a model under a privacy budget: plan, rounds, ledger, checkpoints and a report.

        Example: skelmix train --epsilon 3 --rate 0.5 --rounds 1000
        """
        from skelmix.errors import InvalidInput
        from skelmix.federated.runs import RunSettings, read_settings
        from skelmix.rounds.security import secure_of

        if resume is not None:
            _alone(context)
            row = _one(read_settings(resume), None, resume, tensorboard, resume=True)
            emit(row, _readable([row]), as_json=as_json)
            return
        if baseline and baseline not in _BASELINES:
            raise InvalidInput(f"baseline = {baseline!r}: choose {', '.join(_BASELINES)}")
        if alignment is None:
            single = (records_per_participant, local_steps, ids, owners) == (1, 1, None, None)
            alignment = 1.0 if not single else 0.02 if (rate, keep) == (None, None) else 0.005
        if silos is None and (batch is not None or owners is not None):
            raise InvalidInput("--batch and --owners describe silos: give --silos too, or leave them out")
        if silos is not None and batch is None:
            raise InvalidInput(f"--silos {silos}: give --batch too, the records expected in a round")
        if baseline and silos is not None:
            raise InvalidInput(
                "--baseline: with silos, train DP-SGD by itself: --mechanism gaussian --cohort"
            )
        plans: dict[str, Any] = dict(
            epsilon=epsilon, delta=delta, clip_norm=clip_norm, rate=rate, bits=bits, keep=keep,
            cohort=cohort, rounds=rounds,
            dropout_tolerance=dropout_tolerance, colluding=colluding, sampling=sampling, alignment=alignment,
            epsilon_aggregator=epsilon_aggregator, contribute=contribute,
            max_participations=max_participations,
            batch=batch,
        )  # fmt: skip
        kinds = {mechanism: {"mechanism": mechanism, "bound": bound, "scale": scale}}
        if baseline:
            same = _BASELINES[baseline] or ("rdp" if bound in ("rdp", "paper") else "tight")
            kinds["gaussian"] = {
                "mechanism": "gaussian", "bound": same, "scale": None, "epsilon_aggregator": None,
            }  # fmt: skip
        root = directory or Path("runs") / time.strftime("%Y%m%d-%H%M%S")
        rows = []
        for kind, extra in kinds.items():
            for seed in _seeds(seeds):
                summed = secure_of(
                    secure if kind == mechanism else "none"
                )  # the baseline trusts its aggregator
                settings = RunSettings(
                    dataset, model, optimizer, lr, seed, records_per_participant, skew, local_steps, local_lr,
                    summed, dropout_rate, evaluate_every, checkpoint_every, str(ids) if ids else None,
                    diagnostics, silos, str(owners) if owners else None,
                )  # fmt: skip
                alone = len(kinds) == 1 and len(_seeds(seeds)) == 1
                place = root if alone else root / (kind if seed is None else f"{kind}-seed{seed}")
                rows.append(_one(settings, plans | extra, place, tensorboard))
        first = rows[0]
        emit(first if len(rows) == 1 else first | {"runs": rows}, _readable(rows), as_json=as_json)


def _alone(context: typer.Context) -> None:
    """Refuse options that `--resume` would ignore: a run keeps its own settings."""
    from click.core import ParameterSource

    from skelmix.errors import InvalidInput

    given = {
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if others := sorted(given - {"resume", "tensorboard", "as_json"}):
        words = ", ".join("--" + name.replace("_", "-") for name in others)
        raise InvalidInput(f"{words}: a resumed run keeps its settings; leave it out, or start another run")


def _seeds(text: str) -> list[int | None]:
    from skelmix.errors import InvalidInput

    try:
        found: list[int | None] = [int(word) for word in text.split(",")] if text else [None]
    except ValueError as error:
        raise InvalidInput(f"seeds = {text!r}: give whole numbers, such as 1,2,3") from error
    if len(set(found)) < len(found):
        raise InvalidInput(f"seeds = {text!r}: give each once; the same seed gives the same run")
    return found


def _one(
    settings: RunSettings, plans: dict[str, Any] | None, place: Path, tensorboard: bool, resume: bool = False
) -> dict[str, Any]:
    """One run from its settings to its summary, with live progress on stderr."""
    from skelmix.federated import report, runs

    report.script()  # what is not installed is missed now, not after the budget is spent
    if tensorboard:
        runs.summary_writer()
    with err.status("preparing data, model and plan"):
        prepared = runs.Prepared(settings)
        plan: Plan | None = None
        if plans is not None:
            plan = opt.build_plan(**plans, dimension=prepared.dimension, **prepared.contributors)
        trainer = prepared.trainer(plan, place, resume=resume)
        spent = report.Spent(trainer.plan)
        if tensorboard:
            trainer.callbacks += (runs.tensorboard(place, trainer, spent),)
    if not trainer.private:
        err.print("[bold red]NOT PRIVATE:[/] a seed makes this run repeatable, for anybody who knows it")
    warnings = trainer.plan.warnings
    if settings.dropout_rate > trainer.plan.cohort.dropout_tolerance:
        warnings += (
            f"more participants drop out ({settings.dropout_rate:g}) than the plan tolerates "
            f"({trainer.plan.cohort.dropout_tolerance:g}): most rounds will give no sum, yet be charged; "
            "raise --dropout-tolerance",
        )
    for warning in warnings:
        err.print(f"[yellow]warning:[/] {warning}", soft_wrap=True)
    with progress() as bar:
        task = bar.add_task(
            trainer.plan.mechanism.name, total=trainer.plan.rounds, completed=trainer.ledger.charged, note=""
        )
        live = _Live(spent)
        trainer.callbacks += (lambda _, record: bar.update(task, advance=1, note=live(record)),)
        try:
            result, summary = runs.finish(trainer, place, settings, spent)
        except KeyboardInterrupt:
            err.print(
                f"stopped after {trainer.ledger.charged} rounds; go on with: skelmix train --resume "
                f"{shlex.quote(str(place))}",
                soft_wrap=True,
            )
            raise
    err.print(str(result.report), markup=False, highlight=False)
    if broken := sum(record.get("diagnostics", {}).get("broken", 0) for record in result.history):
        err.print(
            f"[yellow]warning:[/] {broken} vectors were NaN or infinite and counted as zero: check the data"
        )
    if settings.diagnostics:
        err.print(report.UNPROTECTED, highlight=False)
    return summary


class _Live:
    """The note beside the progress bar: last accuracy, ε so far, wrapped and clipped fractions, speed."""

    def __init__(self, spent: Spent) -> None:
        self.spent, self.accuracy = spent, ""
        self.rounds, self.start = 0, time.perf_counter()

    def __call__(self, record: dict[str, Any]) -> str:
        if "accuracy" in record:
            self.accuracy = f"acc {record['accuracy']:.4f}"
        parts = [self.accuracy] if self.accuracy else []
        parts.append(f"ε≤{up(self.spent.after(record['round']))}")
        for name, label in (("wrapped_fraction", "wrapped"), ("clipped_fraction", "clipped")):
            if name in (notes := record.get("diagnostics", {})):
                parts.append(f"{label} {notes[name]:.2%}")
        self.rounds += 1
        return "  ".join([*parts, f"{self.rounds / (time.perf_counter() - self.start):.1f}/s"])


def _readable(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        mark = "" if row["private"] else f"  NOT PRIVATE (seed {row['seed']})"
        other = [f"{up(e)} by {b}" for b, e in row.get("epsilon_by_bound", {}).items() if b != row["bound"]]
        also = f" ({', '.join(other)})" if other else ""
        failed = f" ({row['failed_rounds']} without a sum)" if row["failed_rounds"] else ""
        lines += [
            f"{row['mechanism']} ({row['bound']}): accuracy {row['accuracy']:.4f} "
            f"at ε = {up(row['epsilon'])}{also}, δ = {row['delta']:g}; "
            f"{row['rounds']} rounds{failed}, {row['seconds_per_round']:.3f} s each{mark}",
            f"  {row['report']}",
        ]
    return "\n".join(lines)
