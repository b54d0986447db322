"""A small federation for tests: a few hundred MNIST images where they are at hand, else made-up ones."""

from functools import lru_cache

import numpy as np
import torch
from torch import nn

import skelmix as sk
from skelmix.datasets.catalogue import load, locate
from skelmix.federated.clients import Clients

POPULATION, PIXELS, CLASSES = 400, 196, 10


@lru_cache(maxsize=1)
def records():
    """(inputs (400, 196), targets (400,), "mnist" or "synthetic"): MNIST, halved, if it is here."""
    if locate("mnist") is not None:
        images = load("mnist", fetch=False)
        small = images.train_images[:POPULATION].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)) / 255
        return (
            torch.tensor(small.reshape(-1, PIXELS), dtype=torch.float32),
            torch.tensor(images.train_labels[:POPULATION]),
            "mnist",
        )
    rng = np.random.default_rng(0)
    targets = rng.integers(0, CLASSES, POPULATION)
    centres = rng.random((CLASSES, PIXELS))
    inputs = np.clip(centres[targets] + 0.1 * rng.standard_normal((POPULATION, PIXELS)), 0, 1)
    return torch.tensor(inputs, dtype=torch.float32), torch.tensor(targets), "synthetic"


def clients():
    inputs, targets, _ = records()
    return Clients(inputs, targets)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(PIXELS, 8), nn.ReLU(), nn.Linear(8, CLASSES))


DIMENSION = PIXELS * 8 + 8 + 8 * CLASSES + CLASSES


@lru_cache(maxsize=8)
def small_plan(mechanism="skellam", *, rounds=12, expected=40, epsilon=20.0, bits=10, **cohort):
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


def accuracy(model):
    inputs, targets, _ = records()
    with torch.no_grad():
        return float((model(inputs).argmax(1) == targets).float().mean())
