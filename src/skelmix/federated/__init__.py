"""Federated training on PyTorch (`skelmix[torch]`): `Trainer` runs a plan's rounds on a model.

Names are loaded on first use; without torch, using one says what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.federated.clients import Clients
    from skelmix.federated.gradients import Gradients, LocalSteps, set_gradients
    from skelmix.federated.model_check import validate
    from skelmix.federated.progress import print_progress
    from skelmix.federated.recipes import Accuracy, build_model, clients_of
    from skelmix.federated.round_record import RoundDiagnostics, RoundRecord
    from skelmix.federated.run_result import RunResult
    from skelmix.federated.silo_clients import SiloClients
    from skelmix.federated.trainer import Trainer

__all__ = [
    "Accuracy",
    "Clients",
    "Gradients",
    "LocalSteps",
    "RoundDiagnostics",
    "RoundRecord",
    "RunResult",
    "SiloClients",
    "Trainer",
    "build_model",
    "clients_of",
    "print_progress",
    "set_gradients",
    "validate",
]

_HOMES = {
    "recipes": ("Accuracy", "build_model", "clients_of"),
    "clients": ("Clients",),
    "gradients": ("Gradients", "LocalSteps", "set_gradients"),
    "round_record": ("RoundDiagnostics", "RoundRecord"),
    "run_result": ("RunResult",),
    "silo_clients": ("SiloClients",),
    "trainer": ("Trainer",),
    "progress": ("print_progress",),
    "model_check": ("validate",),
}

__getattr__ = lazily(__name__, _HOMES, needs=("torch", "torch"))
