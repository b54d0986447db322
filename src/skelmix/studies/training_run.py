"""One training run as a function: what a study repeats over mechanisms, budgets and seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from skelmix.datasets.catalogue import load
from skelmix.datasets.partition import Partition
from skelmix.encoding.threads import at_most
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import dimension
from skelmix.federated.recipes import build_optimizer, linear_decay, repeatable
from skelmix.federated.run_result import RunResult
from skelmix.federated.silo_clients import SiloClients
from skelmix.federated.tasks import Task, feature_task, task_of
from skelmix.federated.trainer import Trainer
from skelmix.noise.entropy import ReproducibleEntropy

if TYPE_CHECKING:
    from skelmix.planning import Plan


@lru_cache(maxsize=2)
def known_task(dataset: str, model: str, images: int | None = None) -> Task:
    """The task of a data set and a model; the last two stay in memory.

    images: only the first of them, and as many for testing; for the model `linear`.
    """
    if images is None:
        return task_of(dataset, model)
    whole = load(dataset)
    names = ("train_images", "train_labels", "test_images", "test_labels")
    return feature_task(replace(whole, **{name: getattr(whole, name)[:images] for name in names}))


def model_dimension(dataset: str = "mnist", model: str = "mlp") -> int:
    """The `dimension` that a plan for this data set and model needs: 63,610 for the paper's."""
    return dimension(known_task(dataset, model).new_model(0))


def train_once(
    plan: Plan,
    *,
    dataset: str = "mnist",
    model: str = "mlp",
    task: Task | None = None,
    seed: int | None = None,
    optimizer: str = "adam",
    lr: float = 0.005,
    lr_decay: bool = False,
    partition: Partition | None = None,
    silos: Partition | None = None,
    evaluate: Callable[[nn.Module], float] | None = None,
    evaluate_every: int | None = None,
    diagnostics: bool = False,
    threads: int = 1,
    **options: Any,
) -> RunResult:
    """Train on a data set under a plan and return the result; further options are those of `Trainer`.

    lr_decay: the learning rate falls to zero over the rounds. task: in place of data set and model.
    partition: which records each participant holds. silos: which records each silo holds, for plans of silos.

    With a seed, weights, cohorts, rotations, rounding and noise all repeat and the run is *not private*;
    without one everything comes from the system. Evaluates at the end only, unless `evaluate_every` is given;
    `evaluate` is the accuracy by default.
    Uses `threads` threads, one by default: a study runs one process per core. The data set stays in memory.
    """
    task = known_task(dataset, model) if task is None else task
    records = task.clients
    clients: Clients | SiloClients = records
    if seed is not None:
        plan = repeatable(plan, seed)
    if partition is not None:
        clients = Clients(records.inputs, records.targets, partition)
    if silos is not None:
        clients = SiloClients.split(records.inputs, records.targets, silos)
    net = task.new_model(seed)
    steps = build_optimizer(optimizer, net, lr)
    trainer = Trainer(
        net,
        task.loss,
        clients,
        plan,
        steps,
        scheduler=linear_decay(steps, plan.rounds if lr_decay else None),
        evaluate=evaluate or task.evaluate,
        evaluate_every=evaluate_every or plan.rounds,
        diagnostics=diagnostics,
        entropy=None if seed is None else ReproducibleEntropy(seed),
        **options,
    )
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with at_most(threads):
            return trainer.run()
    finally:
        torch.set_num_threads(before)
