"""One training run as a function: what a study repeats over mechanisms, budgets and seeds."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy

from skelmix.datasets.catalogue import Images, load
from skelmix.datasets.partition import Partition
from skelmix.encoding.threads import at_most
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import dimension
from skelmix.federated.recipes import Accuracy, build_model, build_optimizer, clients_of, repeatable
from skelmix.federated.silo_clients import SiloClients
from skelmix.federated.trainer import RunResult, Trainer
from skelmix.noise.entropy import ReproducibleEntropy

if TYPE_CHECKING:
    from skelmix.planning import Plan


@lru_cache(maxsize=2)
def _prepared(name: str) -> tuple[Images, Clients, Accuracy]:
    images = load(name)
    return images, clients_of(images), Accuracy(images)


def model_dimension(dataset: str = "mnist", model: str = "mlp") -> int:
    """The `dimension` that a plan for this data set and model needs: 63,610 for the paper's."""
    images, _, _ = _prepared(dataset)
    return dimension(build_model(model, pixels=images.train_images[0].size, classes=images.classes, seed=0))


def train_once(
    plan: Plan,
    *,
    dataset: str = "mnist",
    seed: int | None = None,
    model: str = "mlp",
    optimizer: str = "adam",
    lr: float = 0.005,
    partition: Partition | None = None,
    silos: Partition | None = None,
    evaluate_every: int | None = None,
    diagnostics: bool = False,
    threads: int = 1,
    **options: Any,
) -> RunResult:
    """Train on a data set under a plan and return the result; further options are those of `Trainer`.

    partition: which records each participant holds. silos: which records each silo holds, for plans of silos.

    With a seed, weights, cohorts, rotations, rounding and noise all repeat and the run is *not private*;
    without one everything comes from the system. Evaluates at the end only, unless `evaluate_every` is given.
    Uses `threads` threads, one by default: a study runs one process per core. The data set stays in memory.
    """
    images, records, accuracy = _prepared(dataset)
    clients: Clients | SiloClients = records
    if seed is not None:
        plan = repeatable(plan, seed)
    if partition is not None:
        clients = Clients(records.inputs, records.targets, partition)
    if silos is not None:
        clients = SiloClients.split(records.inputs, records.targets, silos)
    net = build_model(model, pixels=images.train_images[0].size, classes=images.classes, seed=seed)
    trainer = Trainer(
        net,
        cross_entropy,
        clients,
        plan,
        build_optimizer(optimizer, net, lr),
        evaluate=accuracy,
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
