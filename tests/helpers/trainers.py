"""A trainer of the small federation."""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import skelmix as sk
from helpers.federation import clients, network, small_plan
from skelmix.federated.clients import Clients
from skelmix.federated.trainer import Trainer


def make(
    plan: sk.Plan | None = None,
    *,
    model: nn.Module | None = None,
    people: Clients | None = None,
    lr: float = 0.02,
    **options: Any,
) -> Trainer:
    """A trainer of the small network and plan, or of others."""
    model = network() if model is None else model
    plan = small_plan() if plan is None else plan
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    return Trainer(model, cross_entropy, people or clients(), plan, optimizer, **options)


def weights(model: nn.Module) -> torch.Tensor:
    """All parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])
