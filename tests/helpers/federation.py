"""A small federation for tests: a few hundred MNIST images where they can be had, else made-up ones."""

from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import nn

import skelmix as sk
from skelmix.datasets.catalogue import load
from skelmix.errors import DataUnavailable
from skelmix.federated.clients import Clients

POPULATION, PIXELS, CLASSES = 400, 196, 10


@lru_cache(maxsize=1)
def records() -> tuple[torch.Tensor, torch.Tensor]:
    """(inputs (400, 196), targets (400,)): MNIST, halved, fetched if it must be; made up where nothing can
    be reached (the end of the test report says which)."""
    with suppress(DataUnavailable):
        images = load("mnist")
        small = images.train_images[:POPULATION].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)) / 255
        inputs = torch.tensor(small.reshape(-1, PIXELS), dtype=torch.float32)
        return inputs, torch.tensor(images.train_labels[:POPULATION])
    rng = np.random.default_rng(0)
    targets = rng.integers(0, CLASSES, POPULATION)
    centres = rng.random((CLASSES, PIXELS))
    made_up = np.clip(centres[targets] + 0.1 * rng.standard_normal((POPULATION, PIXELS)), 0, 1)
    return torch.tensor(made_up, dtype=torch.float32), torch.tensor(targets)


def clients() -> Clients:
    return Clients(*records())


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(PIXELS, 8), nn.ReLU(), nn.Linear(8, CLASSES))


DIMENSION = PIXELS * 8 + 8 + 8 * CLASSES + CLASSES


@lru_cache(maxsize=8)
def small_plan(
    mechanism: str = "skellam",
    *,
    rounds: int = 12,
    expected: int = 40,
    epsilon: float = 20.0,
    bits: int = 10,
    **cohort: Any,
) -> sk.Plan:
    return sk.plan(
        sk.PrivacyTarget(epsilon, 1e-5),
        dimension=DIMENSION,
        clip_norm=1.0,
        bits=bits,
        rounds=rounds,
        mechanism=mechanism,
        scale=None if mechanism == "gaussian" else 64.0,
        bound="rdp" if mechanism == "gaussian" else "paper",  # quick to prove; the loop does not care
        cohort=sk.Cohort(expected=expected, population=POPULATION, **cohort),
    )


def accuracy(model: nn.Module) -> float:
    inputs, targets = records()
    with torch.no_grad():
        return float((model(inputs).argmax(1) == targets).float().mean())
