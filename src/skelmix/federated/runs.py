"""A training run from plain settings, in a directory of its own, fresh or resumed.

`skelmix train` calls this.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from skelmix.datasets.catalogue import Images, load
from skelmix.datasets.partition import Partition, by_id, equal_shares, label_skew, read_ids
from skelmix.errors import CorruptState, InvalidInput, MissingExtra
from skelmix.federated import report
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import LocalSteps, dimension
from skelmix.federated.recipes import (
    Accuracy,
    build_model,
    build_optimizer,
    clients_of,
    repeatable,
    try_out,
)
from skelmix.federated.silo_clients import SiloClients
from skelmix.federated.trainer import Callback, RunResult, Trainer
from skelmix.noise.entropy import ReproducibleEntropy
from skelmix.rounds.files import storing, write_atomically
from skelmix.rounds.security import Secure
from skelmix.validation import whole

if TYPE_CHECKING:
    from skelmix.planning import Plan


@dataclass(frozen=True)
class RunSettings:
    """Everything of a run but its plan; written to config.json, from which `--resume` rebuilds it.

    records_per_participant: records that each participant holds. skew: concentration of a Dirichlet label
    skew, None for shuffled records. ids: a file that gives the participant of each training record, instead
    of both. silos: divide the records among so many silos, each of which protects its records; owners: a file
    that gives the owner of each training record, to protect owners in place of records. local_steps: gradient
    steps a participant takes itself; 1 sends its gradient. diagnostics: keep what no noise protects, in files
    that say so.
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

    def partition(self, images: Images) -> Partition | None:
        count = len(images.train_labels)
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
            return label_skew(images.train_labels, count // self.records_per_participant, self.skew)
        return (
            None if self.records_per_participant == 1 else equal_shares(count, self.records_per_participant)
        )

    def clients(self, images: Images) -> Clients | SiloClients:
        """The training records as participants, or divided among silos."""
        if self.silos is None:
            return clients_of(images, self.partition(images))
        if self.records_per_participant != 1 or self.ids is not None:
            raise InvalidInput(
                f"silos = {self.silos}: their records are what is protected; leave out "
                "records_per_participant and ids (owners gives the owner of each record)"
            )
        count = len(images.train_labels)
        whole(1, count, silos=self.silos)
        owners = None if self.owners is None else _ids(count, owners=self.owners)
        if owners is not None:
            partition = self._whole_owners(owners, self.silos)
        elif self.skew is None:
            partition = equal_shares(count, count // self.silos)
        else:
            partition = label_skew(images.train_labels, self.silos, self.skew)
        together = clients_of(images)
        return SiloClients.split(together.inputs, together.targets, partition, owners)

    def _whole_owners(self, owners: NDArray[Any], silos: int) -> Partition:
        """Owners divided among silos, each with all of its records: nobody is in two silos."""
        if self.skew is not None:
            raise InvalidInput(
                f"skew = {self.skew:g}: owners bring their records along; leave out skew or owners"
            )
        names, numbers = np.unique(owners, return_inverse=True)
        whole(1, len(names), silos=silos)
        return by_id(np.random.default_rng(0).permutation(len(names))[numbers] % silos)


def _ids(count: int, **named: str) -> NDArray[Any]:
    """The id of each of `count` records from the file that the one named option gives."""
    ((name, path),) = named.items()
    ids = read_ids(Path(path))
    if ids.shape != (count,):
        raise InvalidInput(
            f"{name} = {path}: has shape {ids.shape}; give one id for each of the {count} records"
        )
    return ids


class Prepared:
    """Data and model of some settings, before there is a plan: it needs their dimension and population."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.images = load(settings.dataset)
        self.clients = settings.clients(self.images)
        pixels, classes = self.images.train_images[0].size, self.images.classes
        self.model = build_model(settings.model, pixels=pixels, classes=classes, seed=settings.seed)
        try_out(self.model, cross_entropy, clients_of(self.images))
        self.dimension, self.population = dimension(self.model), len(self.clients)

    @property
    def contributors(self) -> dict[str, Any]:
        """Who takes part, as a plan of this run must have it; known to everyone."""
        if not isinstance(self.clients, SiloClients):
            return {"population": self.population}
        unit = "record" if self.settings.owners is None else "owner"
        return {"population": None, "silos": len(self.clients), "records": self.clients.members, "unit": unit}

    def trainer(self, plan: Plan | None, directory: Path, *, resume: bool = False) -> Trainer:
        """A trainer for a fresh run of the plan, or for the run that the directory holds."""
        chosen = self.settings
        options: dict[str, Any] = {
            "evaluate": Accuracy(self.images),
            "evaluate_every": chosen.evaluate_every,
            "secure": chosen.secure,
            "dropout_rate": chosen.dropout_rate,
            "checkpoint_every": chosen.checkpoint_every,
            "diagnostics": chosen.diagnostics,
            "local": None if chosen.local_steps == 1 else LocalSteps(chosen.local_steps, chosen.local_lr),
            "entropy": None if chosen.seed is None else ReproducibleEntropy(chosen.seed),
        }
        parts = (self.model, cross_entropy, self.clients)
        optimizer = build_optimizer(chosen.optimizer, self.model, chosen.lr)
        if resume:
            return Trainer.resume(directory, *parts, optimizer, **options)
        if plan is None:
            raise InvalidInput("a fresh run needs a plan")
        if chosen.seed is not None:
            plan = repeatable(plan, chosen.seed)
        if not (directory / "ledger.jsonl").exists():  # before it: a run that is killed here can begin again
            with storing(directory):
                directory.mkdir(parents=True, exist_ok=True)
            text = json.dumps(asdict(chosen) | {"private": chosen.seed is None}, indent=1)
            write_atomically(directory / "config.json", text.encode())
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
        del settings["private"]
        if "records" in settings:  # its name in earlier versions
            settings["records_per_participant"] = settings.pop("records")
        return RunSettings(**settings)
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptState(f"{path} is damaged: {error}") from error


def finish(
    trainer: Trainer, directory: Path, settings: RunSettings, spent: report.Spent
) -> tuple[RunResult, dict[str, Any]]:
    """Run to the end, write the report, and return the summary that `--json` prints.

    metrics.csv grows round by round.
    """
    with report.live_metrics(directory / "metrics.csv", trainer, spent):
        result = trainer.run()
    config = asdict(settings) | {"private": result.private} | _plan_rows(trainer.plan)
    page = report.write(directory, trainer.plan, result, config, spent)
    return result, {
        "accuracy": result.accuracy,
        "epsilon": result.report.epsilon,
        "delta": result.report.delta,
        "rounds": result.rounds,
        "seconds": result.seconds,
        "seconds_per_round": result.seconds_per_round,
        "wrapped_fraction": result.wrapped_fraction,
        "report": str(page),
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
    writer.add_text("privacy", mark + (report.UNPROTECTED if trainer.diagnostics else ""))

    def callback(_: Trainer, record: dict[str, Any]) -> None:
        notes = {
            f"{report.DIAGNOSTICS}/{name}": value for name, value in record.get("diagnostics", {}).items()
        }
        for name, value in (record | notes | {"epsilon": spent.after(record["round"])}).items():
            if isinstance(value, float):
                writer.add_scalar(name, value, record["round"])
        if trainer.ledger.remaining == 0:
            writer.close()

    return callback
