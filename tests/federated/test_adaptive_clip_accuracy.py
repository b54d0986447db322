"""On MNIST an adaptive clip that starts 30 times too small or too large ends as well as the best fixed one.

Measured by `pytest -m slow -s tests/federated/test_adaptive_clip_accuracy.py`; the numbers are in
docs/explanation/adaptive-clip.md.
"""

from functools import lru_cache

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import skelmix as sk
from skelmix.datasets.catalogue import load
from skelmix.errors import DataUnavailable
from skelmix.federated.clients import Clients
from skelmix.federated.trainer import Trainer
from skelmix.noise.entropy import ReproducibleEntropy

ROUNDS, COHORT, POPULATION = 300, 600, 60_000
FIXED = (1.0, 2.0, 4.0)


@lru_cache
def data():
    try:
        images = load("mnist")
    except DataUnavailable as error:
        pytest.skip(str(error))
    train = torch.tensor(images.train_images.reshape(-1, 784), dtype=torch.float32) / 255
    test = torch.tensor(images.test_images.reshape(-1, 784), dtype=torch.float32) / 255
    return train, torch.tensor(images.train_labels), test, torch.tensor(images.test_labels)


def accuracy(**clip):
    """Per cent of the test images that a linear model gets right after 300 private rounds at ε = 3."""
    inputs, targets, test, labels = data()
    plan = sk.plan(
        sk.PrivacyTarget(3.0, 1e-5), dimension=7_850, bits=8, bound="rdp", rounds=ROUNDS, alignment=0.02,
        cohort=sk.Cohort(COHORT, POPULATION), **clip,
    )  # fmt: skip
    model = nn.Linear(784, 10)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    trainer = Trainer(
        model, cross_entropy, Clients(inputs, targets), plan, optimizer, entropy=ReproducibleEntropy(1),
        evaluate=lambda m: float((m(test).argmax(1) == labels).float().mean()), evaluate_every=ROUNDS,
    )  # fmt: skip
    found = 100 * trainer.run().accuracy
    print(f"{clip}: {found:.2f} %, last clip norm {trainer.clip.norm:.3g}", flush=True)
    return found


@pytest.mark.slow
def test_starts_thirty_times_off_end_within_half_a_point_of_the_best_fixed_clip_norm():
    fixed = {norm: accuracy(clip_norm=norm) for norm in FIXED}
    best = max(fixed, key=fixed.get)
    for start in (best / 30, 30 * best):
        assert accuracy(clip=sk.AdaptiveClip(start=start)) > fixed[best] - 0.5
