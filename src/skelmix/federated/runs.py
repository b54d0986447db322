"""A training run from plain settings, in a directory of its own, fresh or resumed.

`skelmix train` calls this.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skelmix.datasets.partition import Partition, by_id, equal_shares, label_skew, read_ids
from skelmix.errors import CorruptState, InvalidInput, MissingExtra
from skelmix.federated import report
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import LocalSteps, dimension
from skelmix.federated.owners import every_owner
from skelmix.federated.recipes import build_optimizer, linear_decay, repeatable, try_out
from skelmix.federated.report_page import UNPROTECTED
from skelmix.federated.round_record import RoundRecord
from skelmix.federated.run_result import RunResult
from skelmix.federated.silo_clients import SiloClients
from skelmix.federated.tasks import Task, task_of
from skelmix.federated.trainer import Callback, Trainer
from skelmix.noise.entropy import ReproducibleEntropy
from skelmix.rounds.security import Secure
from skelmix.validation import whole

if TYPE_CHECKING:
    from skelmix.planning import Plan


@dataclass(frozen=True)
class RunSettings:
    """Everything of a run but its plan; written to config.json, from which `--resume` rebuilds it.

    records_per_participant: records that each participant holds. skew: concentration of a Dirichlet label
    skew, None for shuffled records. ids: a file that gives the participant of each training record, instead
    of both. silos: divide the records among this many silos, each protecting its records; owners: a file
    that gives the owner of each training record, to protect owners in place of records. local_steps: gradient
    steps a participant takes itself; 1 sends its gradient. diagnostics: keep what no noise protects, in files
    that say so. baseline: directory of a run of the central Gaussian, drawn into this run's report. lr_decay:
    rounds in which the learning rate falls to zero; None: it stays.
    """

    dataset: str = "mnist"
    model: str = "mlp"
    optimizer: str = "adam"
    lr: float = 0.005
    seed: int | None = None
    records_per_participant: int = 1
    skew: float | None = None
    local_steps: int = 1
    local_lr: float = 0.1
    secure: Secure = "simulated"
    dropout_rate: float = 0.0
    evaluate_every: int = 50
    checkpoint_every: int = 20
    ids: str | None = None
    diagnostics: bool = False
    silos: int | None = None
    owners: str | None = None
    baseline: str | None = None
    lr_decay: int | None = None

    def partition(self, labels: NDArray[np.int64]) -> Partition | None:
        """Which of the records with these labels each participant holds; None: one each."""
        count = len(labels)
        if self.ids is not None:
            if self.records_per_participant != 1 or self.skew is not None:
                raise InvalidInput(
                    f"ids = {self.ids}: gives each record's participant; leave out "
                    "records_per_participant and skew"
                )
            return by_id(_ids(count, ids=self.ids))
        if self.skew is not None:
            if self.records_per_participant == 1:
                raise InvalidInput(
                    f"skew = {self.skew:g}: a participant with one record has no labels to skew; "
                    "raise records_per_participant, or leave out skew"
                )
            return label_skew(labels, count // self.records_per_participant, self.skew)
        return (
            None if self.records_per_participant == 1 else equal_shares(count, self.records_per_participant)
        )

    def clients(self, task: Task) -> Clients | SiloClients:
        """The training records as participants, or divided among silos."""
        records, labels = task.clients, task.labels
        if labels is None:
            if (self.silos, self.records_per_participant, self.ids, self.skew) != (None, 1, None, None):
                raise InvalidInput(
                    f"dataset = {self.dataset!r}: its records belong to people already; leave out silos, "
                    "records_per_participant, ids and skew"
                )
            return records
        if self.silos is None:
            partition = self.partition(labels)
            return records if partition is None else replace(records, partition=partition)
        if self.records_per_participant != 1 or self.ids is not None:
            raise InvalidInput(
                f"silos = {self.silos}: their records are what is protected; leave out "
                "records_per_participant and ids (owners gives the owner of each record)"
            )
        count = len(labels)
        whole(1, count, silos=self.silos)
        owners = None if self.owners is None else every_owner(_ids(count, owners=self.owners))
        if owners is not None:
            partition = self._whole_owners(owners, self.silos)
        elif self.skew is None:
            order = equal_shares(count, 1).records
            partition = Partition(order, np.arange(self.silos + 1) * count // self.silos)
        else:
            partition = label_skew(labels, self.silos, self.skew)
        return SiloClients.split(records.inputs, records.targets, partition, owners)

    def _whole_owners(self, owners: NDArray[np.int64], silos: int) -> Partition:
        """Owners, by their numbers, divided among silos with all their records: nobody is in two silos."""
        if self.skew is not None:
            raise InvalidInput(
                f"skew = {self.skew:g}: owners bring their records along; leave out skew or owners"
            )
        count = int(owners.max()) + 1
        whole(1, count, silos=silos)
        return by_id(np.random.default_rng(0).permutation(count)[owners] % silos)


def _ids(count: int, **named: str) -> NDArray[Any]:
    """The id of each of `count` records, from the file that the named option gives."""
    ((name, path),) = named.items()
    ids = read_ids(Path(path))
    if ids.shape != (count,):
        raise InvalidInput(
            f"{name} = {path}: has shape {ids.shape}; give one id for each of the {count} records"
        )
    return ids


class Prepared:
    """Data and model of some settings, before there is a plan: it needs their dimension and population.

    say: hears what takes long.
    """

    def __init__(self, settings: RunSettings, say: Callable[[str], None] = lambda text: None) -> None:
        self.settings = settings
        self.task = task_of(settings.dataset, settings.model, say)
        self.clients, self.model = settings.clients(self.task), self.task.new_model(settings.seed)
        try_out(self.model, self.task.loss, self.task.clients)
        self.dimension, self.population = dimension(self.model), len(self.clients)

    @property
    def contributors(self) -> dict[str, Any]:
        """Who takes part, as a plan of this run has it; known to everyone.

        records: those of the data set. Where their number is not public, plan for another one.
        """
        if not isinstance(self.clients, SiloClients):
            return {"population": self.population}
        unit = "record" if self.settings.owners is None else "owner"
        return {"population": None, "silos": len(self.clients), "records": self.clients.members, "unit": unit}

    def trainer(self, plan: Plan | None, directory: Path, *, resume: bool = False) -> Trainer:
        """A trainer for a fresh run of the plan, or for the run that the directory holds."""
        run_settings = self.settings
        options: dict[str, Any] = {
            "evaluate": self.task.evaluate,
            "evaluate_every": run_settings.evaluate_every,
            "secure": run_settings.secure,
            "dropout_rate": run_settings.dropout_rate,
            "checkpoint_every": run_settings.checkpoint_every,
            "diagnostics": run_settings.diagnostics,
            "local": None
            if run_settings.local_steps == 1
            else LocalSteps(run_settings.local_steps, run_settings.local_lr),
            "entropy": None if run_settings.seed is None else ReproducibleEntropy(run_settings.seed),
            "settings": asdict(run_settings),
        }
        parts = (self.model, self.task.loss, self.clients)
        optimizer = build_optimizer(run_settings.optimizer, self.model, run_settings.lr)
        options["scheduler"] = linear_decay(optimizer, run_settings.lr_decay)
        if resume:
            return Trainer.resume(directory, *parts, optimizer, **options)
        if plan is None:
            raise InvalidInput("a fresh run needs a plan")
        if run_settings.seed is not None:
            plan = repeatable(plan, run_settings.seed)
        return Trainer(*parts, plan, optimizer, run_directory=directory, **options)


def read_settings(directory: Path) -> RunSettings:
    """The settings of the run that a directory holds."""
    path = directory / "config.json"
    if not path.exists():
        raise InvalidInput(
            f"{directory} has no config.json: it is not the directory of a run of `skelmix train`"
        )
    try:
        settings = json.loads(path.read_text())
        own = isinstance(settings, dict) and "dataset" not in settings
        del settings["private"]
        if "records" in settings:  # its name in earlier versions
            settings["records_per_participant"] = settings.pop("records")
        if not own:
            return RunSettings(**settings)
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptState(f"{path} is damaged: {error}") from error
    raise InvalidInput(
        f"{directory} is the run of a program of your own: go on with Trainer.resume in Python"
    )


def finish(
    trainer: Trainer, directory: Path, settings: RunSettings, spent: report.Spent
) -> tuple[RunResult, dict[str, Any]]:
    """Run to the end, write the report, and return the summary that `--json` prints."""
    result = trainer.run_unchecked()
    config = asdict(settings) | {"private": result.private} | _plan_rows(trainer.plan)
    baseline = None if settings.baseline is None else Path(settings.baseline)
    page = report.write(directory, trainer.plan, result, config, spent, baseline)
    return result, {
        "accuracy": result.accuracy,
        "epsilon": result.report.epsilon,
        "delta": result.report.delta,
        "rounds": result.rounds,
        "seconds": result.seconds,
        "seconds_per_round": result.seconds_per_round,
        "wrapped_fraction": result.wrapped_fraction,
        "report": str(page),
        "model": str(directory / "model.pt"),
        "private": result.private,
        "failed_rounds": result.failed_rounds,
        "lost_rounds": result.lost_rounds,
        "mechanism": trainer.plan.mechanism.name,
        "bound": result.report.bound,
        "seed": settings.seed,
        "diagnostics": [name for name in ("wrapped_fraction",) if result.wrapped_fraction is not None],
    } | _both_accountings(trainer.plan, result)


def _both_accountings(plan: Plan, result: RunResult) -> dict[str, Any]:
    """The ε of the central Gaussian (DPSGD) with the same noise, by either accounting."""
    from skelmix.planning import privacy_report

    if plan.mechanism.distributed:
        return {}
    spent: dict[str, Any] = {
        "cohort": plan.cohort.roster,
        "rounds": max(1, result.rounds),
        "delta": plan.target.delta,
    }
    by = {
        bound: privacy_report(plan.mechanism, bound=bound, **spent).epsilon for bound in plan.mechanism.bounds
    }
    return {"epsilon_by_bound": by}


def _plan_rows(plan: Plan) -> dict[str, Any]:
    mechanism = plan.mechanism
    kept = ("bits", "scale", "clip_norm", "total_noise", "dimension")
    cohort = {name: value for name, value in plan.cohort.summary().items() if value is not None}
    cohort["rounds"] = plan.rounds
    return {"mechanism": mechanism.name} | {name: getattr(mechanism, name) for name in kept} | cohort


def summary_writer() -> Any:
    """TensorBoard's own writer; raises `MissingExtra` where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra("--tensorboard needs it installed: pip install tensorboard") from error
    return SummaryWriter


def tensorboard(directory: Path, trainer: Trainer, spent: report.Spent) -> Callback:
    """A callback that writes every number of a record for TensorBoard, when it is installed."""
    writer = summary_writer()(str(directory / "tensorboard"))
    mark = "" if trainer.private else report.NOT_PRIVATE + " "
    writer.add_text("privacy", mark + (f"Diagnostics: {UNPROTECTED}" if trainer.diagnostics else ""))

    def callback(_: Trainer, record: RoundRecord) -> None:
        measured = {} if record.diagnostics is None else record.diagnostics.to_dict()
        notes = {f"{report.DIAGNOSTICS}/{name}": value for name, value in measured.items()}
        for name, value in (record.to_dict() | notes | {"epsilon": spent.after(record.round)}).items():
            if isinstance(value, float):
                writer.add_scalar(name, value, record.round)
        if trainer.ledger.remaining == 0:
            writer.close()

    return callback
