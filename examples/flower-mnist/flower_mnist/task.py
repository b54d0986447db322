"""The model and its data: nothing here knows of Flower or of privacy."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from skelmix.datasets import equal_shares, load


def network() -> nn.Module:
    """784-80-10, the network of Bao et al. 2022, Section 6.2."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 80), nn.ReLU(), nn.Linear(80, 10))


def _tensors(images: np.ndarray, labels: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(images.astype(np.float32) / 255), torch.from_numpy(labels.copy())


def training_data(partition: int, partitions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This node's share of the training images."""
    data = load("mnist")
    mine = equal_shares(len(data.train_images), len(data.train_images) // partitions).records_of(partition)
    return _tensors(data.train_images[mine], data.train_labels[mine])


def test_data() -> tuple[torch.Tensor, torch.Tensor]:
    data = load("mnist")
    return _tensors(data.test_images, data.test_labels)


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, epochs: int, rate: float) -> float:
    """Plain SGD; returns the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    loss = torch.zeros(())
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
    return float(loss)


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    return float((model(images).argmax(1) == labels).float().mean())
