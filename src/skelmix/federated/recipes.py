"""Ready-made parts of a training run: models, optimisers, tensors of an image set, test accuracy."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from skelmix.datasets.catalogue import Images
from skelmix.datasets.partition import Partition
from skelmix.errors import InvalidInput
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import Loss
from skelmix.validation import one_of, positive

if TYPE_CHECKING:
    from skelmix.planning import Plan

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
}


def mlp(pixels: int = 784, classes: int = 10) -> nn.Module:
    """The paper's network: one hidden layer of 80 ReLU neurons.

    63,610 weights for 28 by 28 pixels and 10 classes.
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 80), nn.ReLU(), nn.Linear(80, classes))


def cnn(pixels: int = 784, classes: int = 10) -> nn.Module:
    """A small convolutional network for square images: 16 and 32 filters, then a linear layer.

    No layer mixes examples.
    """
    side = round(pixels**0.5)
    if side * side != pixels:
        raise InvalidInput(
            f"the cnn needs square images, these have {pixels} pixels: use the mlp or a factory of your own"
        )
    width = 32 * (((side + 1) // 2 + 1) // 2) ** 2
    return nn.Sequential(
        nn.Flatten(),
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(width, classes),
    )


MODELS: dict[str, Callable[..., nn.Module]] = {"mlp": mlp, "cnn": cnn}


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Within the block torch draws from this seed, or a fresh one; its generator is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        if seed is None:
            torch.seed()
        else:
            torch.manual_seed(seed)
        yield


def build_model(name: str, *, pixels: int, classes: int, seed: int | None = None) -> nn.Module:
    """`mlp`, `cnn`, or `package.module:factory`, a function without arguments that returns a module.

    The initial weights are public; a seed makes them repeatable and leaves torch's own generator as it was.

    Example:

        >>> sum(weights.numel() for weights in build_model("mlp", pixels=784, classes=10).parameters())
        63610
    """
    with seeded(seed):
        if name in MODELS:
            return MODELS[name](pixels, classes)
        model = _made(name)
    if not isinstance(model, nn.Module):
        raise InvalidInput(
            f"model = {name!r} returned {type(model).__name__}: it must return a torch.nn.Module"
        )
    return model


def _made(name: str) -> Any:
    """What the factory returns; modules in the current directory are found, too."""
    sys.path.insert(0, "")
    try:
        return _factory(name)()
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"model = {name!r}: the factory, called without arguments, raised {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove("")


def _factory(name: str) -> Callable[[], Any]:
    place, _, attribute = name.partition(":")
    try:
        factory: Callable[[], Any] = getattr(import_module(place), attribute)
        return factory
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(
            f"model = {name!r}: choose {', '.join(MODELS)}, or package.module:factory to import, from here "
            f"or of what is installed ({error})"
        ) from error


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients within the block; each module has its own mode again afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():  # each its own: some layers may be frozen
            module.training = training


def try_out(model: nn.Module, loss: Loss, clients: Clients) -> None:
    """Check that the model fits the data by one pass over zeros, before anything is spent on it.

    The zeros have the shape of the first participant's records; `InvalidInput` says what does not fit.
    """
    inputs, targets = torch.zeros_like(clients.inputs[:1]), torch.zeros_like(clients.targets[:1])
    try:
        with evaluating(model):
            outputs = model(inputs)
            loss(outputs, targets)
    except Exception as error:
        raise InvalidInput(
            f"the model does not take these records, each a tensor of shape {tuple(inputs.shape[1:])} "
            f"(images come flattened): {type(error).__name__}: {error}"
        ) from error
    last = 0 if targets.is_floating_point() else int(clients.targets.max())
    if outputs.ndim == 2 and outputs.shape[1] <= last:
        raise InvalidInput(f"the model has {outputs.shape[1]} outputs, the labels go up to {last}")


def repeatable(plan: Plan, seed: int) -> Plan:
    """The plan with a rotation that follows from the seed, like everything else of a repeatable run."""
    rotation = hashlib.sha256(f"rotation {seed}".encode()).digest()
    return replace(plan, mechanism=replace(plan.mechanism, rotation_seed=rotation))


def check_optimizer(name: str, lr: float) -> None:
    """Refuse an unknown optimiser, or a learning rate that is not positive."""
    one_of(tuple(OPTIMIZERS), optimizer=name)
    positive(lr=lr)


def build_optimizer(name: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """An optimiser by name over the model's trainable parameters."""
    check_optimizer(name, lr)
    return OPTIMIZERS[name]([p for p in model.parameters() if p.requires_grad], lr=lr)


def linear_decay(
    optimizer: torch.optim.Optimizer, rounds: int | None
) -> torch.optim.lr_scheduler.LinearLR | None:
    """A learning rate that falls to zero within this many rounds, in equal steps. None: it stays."""
    if rounds is None:
        return None
    return torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=rounds)


def pixels_of(images: np.ndarray[Any, np.dtype[np.uint8]]) -> torch.Tensor:
    """Images as float32 in [0, 1], flattened: (count, pixels)."""
    return torch.from_numpy(images.reshape(len(images), -1).astype(np.float32) / np.float32(255))


def clients_of(images: Images, partition: Partition | None = None) -> Clients:
    """The training records as participants: one each, or as the partition says.

    Example: `clients_of(load("mnist"))`, 60,000 participants with one image each.
    """
    targets = torch.from_numpy(images.train_labels.copy())
    if partition is None:
        return Clients(pixels_of(images.train_images), targets)
    return Clients(pixels_of(images.train_images), targets, partition)


class Accuracy:
    """Fraction of the test records whose largest output is the label.

    Example: `Trainer(..., evaluate=Accuracy(images))`.
    """

    def __init__(self, images: Images) -> None:
        self.inputs, self.targets = pixels_of(images.test_images), torch.from_numpy(images.test_labels.copy())

    @classmethod
    def of(cls, inputs: torch.Tensor, targets: torch.Tensor) -> Accuracy:
        """The accuracy on any test records; outputs (records, ..., classes), targets (records, ...)."""
        accuracy = cls.__new__(cls)
        accuracy.inputs, accuracy.targets = inputs, targets
        return accuracy

    def __call__(self, model: nn.Module) -> float:
        with evaluating(model):
            right = sum(
                int((model(x).argmax(-1) == y).sum())
                for x, y in zip(self.inputs.split(2048), self.targets.split(2048), strict=True)
            )
        return right / self.targets.numel()
