"""Federated training on PyTorch (`skelmix[torch]`): `Trainer` runs a plan's rounds on a model.

Names are loaded on first use; without torch, using one says what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.federated.clients import Clients
    from skelmix.federated.gradients import Gradients, LocalSteps, set_gradients
    from skelmix.federated.recipes import Accuracy, build_model, clients_of
    from skelmix.federated.silo_clients import SiloClients
    from skelmix.federated.trainer import RunResult, Trainer

__all__ = [
    "Accuracy",
    "Clients",
    "Gradients",
    "LocalSteps",
    "RunResult",
    "SiloClients",
    "Trainer",
    "build_model",
    "clients_of",
    "set_gradients",
]

_HOMES = {
    "Accuracy": "recipes",
    "Clients": "clients",
    "Gradients": "gradients",
    "LocalSteps": "gradients",
    "RunResult": "trainer",
    "SiloClients": "silo_clients",
    "Trainer": "trainer",
    "build_model": "recipes",
    "clients_of": "recipes",
    "set_gradients": "gradients",
}

__getattr__ = lazily(__name__, _HOMES, needs=("torch", "torch"))
