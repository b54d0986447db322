"""A small next-character model, for user-level privacy with local steps on a few CPU cores."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from skelmix.datasets.text import ALPHABET, CharacterWindows
from skelmix.federated.clients import Clients
from skelmix.federated.recipes import evaluating


class CharacterModel(nn.Module):
    """Predicts each next character from the `context` characters before it (Bengio et al. 2003).

    Embeddings side by side, one hidden layer; 9,600 weights by default.

    Noise for privacy grows with the number of weights and a thousand people can hide few of them, so the
    model is small. No layer mixes examples. Inputs are integers (records, length), outputs (records, length,
    64): in front of a window's first character the model sees zeros.
    """

    def __init__(self, context: int = 6, embedding: int = 12, hidden: int = 64) -> None:
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(len(ALPHABET), embedding)
        self.hidden = nn.Linear(context * embedding, hidden)
        self.output = nn.Linear(hidden, len(ALPHABET))

    def forward(self, codes: Tensor) -> Tensor:
        """Log-odds of the next character at each place."""
        embedded = functional.pad(self.embedding(codes), (0, 0, self.context - 1, 0))
        length = codes.shape[-1]
        before = [embedded[..., shift : shift + length, :] for shift in range(self.context)]
        outputs: Tensor = self.output(torch.relu(self.hidden(torch.cat(before, -1))))
        return outputs


def character_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy per character, in nats."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def character_clients(windows: CharacterWindows) -> Clients:
    """The people as participants, each with their own windows."""
    inputs, targets = (torch.from_numpy(codes).long() for codes in (windows.inputs, windows.targets))
    return Clients(inputs, targets, windows.partition)


class Perplexity:
    """The perplexity per character of windows, such as those of the test people.

    It is e to the mean cross-entropy: 64 is chance, less is better.
    """

    def __init__(self, windows: CharacterWindows) -> None:
        clients = character_clients(windows)
        self.inputs, self.targets = clients.inputs, clients.targets

    def __call__(self, model: nn.Module) -> float:
        with evaluating(model):
            total = sum(
                float(character_loss(model(x), y)) * len(x)
                for x, y in zip(torch.split(self.inputs, 1024), torch.split(self.targets, 1024), strict=True)
            )
        return math.exp(total / len(self.inputs))
