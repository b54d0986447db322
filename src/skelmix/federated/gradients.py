"""Each participant's vector: the gradient of its loss, or the change that its local steps make.

Vectors are written into one reused float32 buffer and handed out block by block, so memory stays bounded for
any cohort. A vector never depends on another participant's records: the guarantee is about that vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from skelmix.errors import InvalidInput
from skelmix.federated.clients import Clients
from skelmix.federated.linear_gradients import OuterProducts, stack_gradients
from skelmix.federated.model_check import validate
from skelmix.mechanisms.base import EncodeStats
from skelmix.validation import positive, whole

Loss = Callable[[Tensor, Tensor], Tensor]
BLOCK_FLOATS = 1 << 21  # 8 MB per block
PASS_RECORDS = 1024  # records that go through the network at once
_WITHIN = 1 - 1e-6  # of the clip norm: two products in float32 round by less


@dataclass(frozen=True)
class LocalSteps:
    """FedAvg's participant: `steps` of gradient descent on its own records.

    Its vector is (start - end) / learning_rate.

    Step s uses `batch` records (all of them when None), cyclically in the order of the partition. Dividing by
    the learning rate makes one full-batch step the plain gradient, so a clip norm means the same for both.

    Example: `Trainer(..., local=LocalSteps(steps=5, learning_rate=0.1, batch=8))`.
    """

    steps: int = 1
    learning_rate: float = 0.1
    batch: int | None = None

    def __post_init__(self) -> None:
        whole(1, steps=self.steps)
        positive(learning_rate=self.learning_rate)
        if self.batch is not None:
            whole(1, batch=self.batch)


@dataclass(frozen=True)
class ClippedSum:
    """The sum of clipped vectors, float64 (d,), with counts that no noise protects: never release them.

    broken: vectors that counted as zero.
    """

    total: NDArray[np.float64]
    stats: EncodeStats
    broken: int


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that train, by name, in the model's own order: the layout of a participant's vector."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def dimension(model: nn.Module) -> int:
    """The length of a participant's vector: the number of trainable weights."""
    return sum(value.numel() for value in trainable(model).values())


class Gradients:
    """The vectors of participants under the model's present weights.

    `loss(outputs, targets)` sees one participant's records, (r, ...) each, and returns a number or r numbers,
    which are averaged. Any module and any loss that torch.func can differentiate will do; stacks of linear
    layers and elementwise activations get the same numbers faster. micro_batch: most records that go through
    the model at once, unless one participant has more; it bounds the memory of activations.

    Example:

        >>> clients = Clients(torch.randn(4, 2), torch.randint(0, 2, (4,)))
        >>> gradients = Gradients(nn.Linear(2, 2), nn.functional.cross_entropy)
        >>> [block.shape for block in gradients.blocks(clients, np.arange(4))]
        [(4, 6)]
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        *,
        local: LocalSteps | None = None,
        micro_batch: int | None = None,
    ) -> None:
        validate(model)
        if micro_batch is not None:
            whole(1, micro_batch=micro_batch)
        self.model, self.loss, self.local = model, loss, local
        self.dimension = dimension(model)
        self._most = micro_batch or PASS_RECORDS
        self._buffer = torch.empty(max(1, BLOCK_FLOATS // self.dimension), self.dimension)
        self._linear_gradients = stack_gradients(model, loss) if local is None else None
        frozen = {name: value.detach() for name, value in model.named_parameters() if not value.requires_grad}
        frozen |= dict(model.named_buffers())

        def participant_loss(weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
            return loss(functional_call(model, (weights, frozen), (inputs,)), targets).mean()

        self._shared = vmap(grad(participant_loss), (None, 0, 0), randomness="different")
        self._own = vmap(grad(participant_loss), (0, 0, 0), randomness="different")

    @property
    def short_passes(self) -> bool:
        """Whether the network's passes are too short for torch's own threads to pay."""
        return self._linear_gradients is not None

    def blocks(self, clients: Clients, participants: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
        """Vectors of the participants as float32 (k, dimension) views of one buffer.

        The next block overwrites it.

        The receiver may change a block in place. No participants: no block. Order may differ from
        `participants`. Layers that have come to mix examples since, by `model.train()` in a callback, raise.
        """
        validate(self.model)
        if self._linear_gradients is not None and self._of_vectors(clients):
            yield from self._blocks_by_layer(self._linear_gradients, clients, participants)
            return
        for inputs, targets in clients.batches(participants, limit=min(self._most, len(self._buffer))):
            out = self._buffer[: len(inputs)]
            if self.local is None:
                self._write(self._shared(self._weights(), inputs, targets), out)
            else:
                self._write(self._change(self.local, inputs, targets), out)
            yield out.numpy()

    def clipped_sum(
        self, clients: Clients, participants: NDArray[np.int64], clip_norm: float, longest: float
    ) -> ClippedSum | None:
        """The sum of the vectors, each clipped to clip_norm, without writing one of them out.

        None where that needs `blocks`: for other models than stacks of linear layers, and for participants
        with several records. A vector that is not finite, or longer than `longest`, counts as zero.
        """
        single = bool((clients.partition.sizes[participants] == 1).all())
        if self._linear_gradients is None or not single or not self._of_vectors(clients):
            return None
        validate(self.model)
        total, stats, broken = np.zeros(self.dimension), EncodeStats(), 0
        for inputs, targets in clients.batches(participants, limit=self._most):
            products = self._linear_gradients(inputs, targets)
            norms = products.norms()
            good = norms <= longest  # NaN compares as false
            clipped = good & (norms > clip_norm)
            total += products.weighted_sum(
                np.divide(_WITHIN * clip_norm, norms, where=clipped, out=good.astype(np.float64))
            )
            stats.add(
                EncodeStats(len(norms), int(clipped.sum()), squared_norms=float((norms[good] ** 2).sum()))
            )
            broken += int((~good).sum())
        return ClippedSum(total, stats, broken)

    def _of_vectors(self, clients: Clients) -> bool:
        """Whether linear layers see one vector per record: the inputs are such, or are flattened first."""
        return clients.inputs.dim() == 2 or isinstance(next(self.model.children()), nn.Flatten)

    def _blocks_by_layer(
        self,
        linear_gradients: Callable[[Tensor, Tensor], OuterProducts],
        clients: Clients,
        participants: NDArray[np.int64],
    ) -> Iterator[NDArray[np.float32]]:
        step = len(self._buffer)
        for inputs, targets in clients.batches(participants, limit=self._most):
            products = linear_gradients(inputs, targets)
            for first in range(0, len(inputs), step):
                out = self._buffer[: min(step, len(inputs) - first)]
                products.write(first, first + len(out), out)
                yield out.numpy()

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in trainable(self.model).items()}

    def _change(self, local: LocalSteps, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        start = self._weights()
        # a copy each: what a layer changes in place must not reach the public weights
        own = {name: value.repeat(len(inputs), *[1] * value.dim()) for name, value in start.items()}
        records = inputs.shape[1]
        size = min(local.batch or records, records)
        for step in range(local.steps):
            rows = torch.arange(step * size, (step + 1) * size) % records
            slopes = self._own(own, inputs[:, rows], targets[:, rows])
            own = {name: value - local.learning_rate * slopes[name] for name, value in own.items()}
        return {name: (start[name] - value) / local.learning_rate for name, value in own.items()}

    @staticmethod
    def _write(vectors: dict[str, Tensor], out: Tensor) -> None:
        at = 0
        for value in vectors.values():
            width = value[0].numel()
            out[:, at : at + width] = value.reshape(len(out), width)
            at += width


def set_gradients(model: nn.Module, vector: NDArray[np.float64]) -> None:
    """Store a vector in the `.grad` of the trainable parameters, for an optimiser's step.

    Example:

        >>> model = nn.Linear(1, 1)
        >>> set_gradients(model, np.array([0.5, 0.25]))
        >>> model.bias.grad
        tensor([0.2500])
    """
    at = 0
    flat = torch.from_numpy(vector.astype(np.float32))
    for value in trainable(model).values():
        value.grad = flat[at : at + value.numel()].view(value.shape)
        at += value.numel()


def check_weights(model: nn.Module) -> None:
    """Refuse to go on with weights that are NaN or infinite. They are public, so this reveals nothing."""
    if not all(bool(value.isfinite().all()) for value in model.parameters()):
        raise InvalidInput(
            "the model's weights are NaN or infinite: training has diverged; lower the learning rate and "
            "start again"
        )
