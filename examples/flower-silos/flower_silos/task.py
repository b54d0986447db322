"""The model and its data: nothing here knows of Flower or of privacy."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from skelmix.datasets import load


def network() -> nn.Module:
    """784-80-10, the network of Bao et al. 2022, Section 6.2."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 80), nn.ReLU(), nn.Linear(80, 10))


def _tensors(images: np.ndarray, labels: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(images.astype(np.float32) / 255), torch.from_numpy(labels.copy())


def training_data(silo: int, silos: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The images of this silo. Their order and number are its own business; here, every `silos`-th image."""
    data = load("mnist")
    return _tensors(data.train_images[silo::silos], data.train_labels[silo::silos])


def test_data() -> tuple[torch.Tensor, torch.Tensor]:
    data = load("mnist")
    return _tensors(data.test_images, data.test_labels)


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    return float((model(images).argmax(1) == labels).float().mean())
