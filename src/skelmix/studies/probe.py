"""The paper's model with made-up records, for timing a round without any data set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from skelmix.federated.clients import Clients
from skelmix.federated.gradients import Gradients, set_gradients
from skelmix.federated.recipes import build_optimizer, mlp
from skelmix.federated.trainer import Trainer
from skelmix.mechanisms import Mechanism
from skelmix.planning import Cohort, account


class PaperRound:
    """The paper's model: 784-80-10, Adam, one record per participant.

    `blocks` makes a cohort's vectors, `optimizer_step` uses their mean.
    """

    def __init__(self, participants: int) -> None:
        self.model = mlp()
        generator = torch.Generator().manual_seed(0)
        inputs = torch.rand(participants, 784, generator=generator)
        self.clients = Clients(inputs, torch.arange(participants) % 10)
        self.gradients = Gradients(self.model, cross_entropy)
        self.optimizer = build_optimizer("adam", self.model, 1e-5)
        self.dimension = self.gradients.dimension

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        return self.gradients.blocks(self.clients, np.arange(len(self.clients)))

    def round_of_training(self, mechanism: Mechanism) -> float:
        """Seconds of the quickest of a few rounds of a `Trainer`: sample, charge, sum, step."""
        everyone = Cohort(len(self.clients), len(self.clients), sampling="none")
        plan = account(
            noise=mechanism.noise,
            delta=1e-5,
            dimension=self.dimension,
            cohort=everyone,
            bits=mechanism.bits,
            rounds=12,
            scale=mechanism.scale,
            bound="rdp",
        )
        trainer = Trainer(self.model, cross_entropy, self.clients, plan, self.optimizer, diagnostics=True)
        notes = (record.diagnostics for record in trainer.run().history)
        return min(note.seconds for note in notes if note is not None and note.seconds is not None)

    def optimizer_step(self, mean: NDArray[np.float64]) -> None:
        set_gradients(self.model, mean)
        self.optimizer.step()
