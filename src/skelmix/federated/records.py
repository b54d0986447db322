"""Vectors of a silo's records, or persons, for record-level privacy.

The guarantee compares two silos that differ by one record, and all other records must contribute exactly the
same in both. So a record's vector is bit for bit a function of that record and the public model: it never
depends on the batch's size, on the record's place in it, or on the other records. Batched kernels do not
promise that. Stacks of linear layers go through kernels that see one record at a time; any other model is
evaluated by torch on one record at a time, from the same memory and with one thread.

Nothing in the data stops a round: a record whose loss fails counts as a zero record, as does one with NaN or
infinity once it is added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from skelmix.errors import InvalidInput
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import BLOCK_FLOATS, Loss, check_model, dimension, trainable
from skelmix.federated.stack import LinearStack

_PASS_RECORDS = 4096  # records in one block at most, however long a person's list


class RecordGradients:
    """The vectors of a silo's records, or of its persons, under the model's present weights.

    A silo is a `Clients` whose partition says what the unit of privacy is: one record each (the default), or
    all the records of a person. A unit's vector is the sum over its records of the gradient of the record's
    own loss, `loss(outputs, targets)` with one record each, averaged if it returns several numbers.

    Layers that mix examples, keep statistics or draw random numbers raise `InvalidInput`.

    Example:

        >>> silo = Clients(torch.randn(4, 2), torch.randint(0, 2, (4,)))
        >>> gradients = RecordGradients(nn.Linear(2, 2), nn.functional.cross_entropy)
        >>> [block.shape for block in gradients.blocks(silo, np.array([0, 3]))]
        [(2, 6)]
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        check_model(model)
        self.model, self.loss = model, loss
        self.dimension = dimension(model)
        self._buffer = np.empty((max(1, BLOCK_FLOATS // self.dimension), self.dimension), np.float32)
        self._stack = LinearStack.of(model)
        self.short_passes = self._stack is not None
        self._probed: set[tuple[object, ...]] = set()

    def blocks(self, silo: Clients, units: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
        """The units' vectors, float32 (k, dimension), in the order of `units`.

        They are views of one buffer, which the next block overwrites. No units: no block.

        A wrong model, loss or shape raises here, before any record is looked at: it is tried on zeros.
        """
        self._probe(silo)
        stack = self._stack if self._fits(silo) else None
        weights = None if stack is None else stack.weights()
        offsets, sizes = silo.partition.offsets, silo.partition.sizes
        for start, stop in self._cuts(sizes[units]):
            block = units[start:stop]
            rows = np.concatenate([np.arange(offsets[unit], offsets[unit + 1]) for unit in block])
            records = silo.partition.records[rows]
            owners = np.repeat(np.arange(len(block)), sizes[block])
            out = self._buffer[: len(block)]
            if stack is not None and weights is not None:
                # by NumPy: torch would wake its threads for so little
                inputs = silo.inputs.detach().numpy()[records].reshape(len(records), -1)
                targets = torch.from_numpy(silo.targets.detach().numpy()[records])
                stack.write(weights, inputs, targets, owners, self.loss, out)
            else:
                self._write_by_torch(silo, records, owners, out)
            yield out

    def _cuts(self, sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Ranges of units that fill a block: by rows of the buffer and by records to be read."""
        start = held = 0
        for unit, size in enumerate(sizes.tolist()):
            if unit > start and (unit - start == len(self._buffer) or held + size > _PASS_RECORDS):
                yield start, unit
                start, held = unit, 0
            held += size
        if start < len(sizes):
            yield start, len(sizes)

    def _fits(self, silo: Clients) -> bool:
        """Whether the stack's kernels take this silo's records: one float32 vector each."""
        stack, inputs = self._stack, silo.inputs
        flat = inputs.dim() == 2 or isinstance(next(self.model.children(), None), nn.Flatten)
        return (
            stack is not None and inputs.dtype == torch.float32 and flat and inputs[0].numel() == stack.width
        )

    def _write_by_torch(
        self, silo: Clients, records: NDArray[np.int64], owners: NDArray[np.int64], out: NDArray[np.float32]
    ) -> None:
        inputs, targets = torch.empty_like(silo.inputs[:1]), torch.empty_like(silo.targets[:1])
        out[:] = 0
        with one_thread():
            for record, owner in zip(records.tolist(), owners.tolist(), strict=True):
                inputs.copy_(silo.inputs[record : record + 1])
                targets.copy_(silo.targets[record : record + 1])
                try:
                    out[owner] += self._gradient(inputs, targets)
                except (Exception, SystemExit):  # whatever a record does, it may not stop its silo
                    out[owner] = np.nan

    def _gradient(self, inputs: Tensor, targets: Tensor) -> NDArray[np.float32]:
        """The gradient of one record, (1, ...) each, as a vector."""
        value = self.loss(self.model(inputs), targets).mean()
        weights = list(trainable(self.model).values())
        slopes = torch.autograd.grad(value, weights, allow_unused=True)
        parts = [torch.zeros_like(w) if s is None else s for w, s in zip(weights, slopes, strict=True)]
        return torch.cat([part.reshape(-1) for part in parts]).numpy()

    def _probe(self, silo: Clients) -> None:
        """Compute the gradients of made-up records, before any real one.

        So an unsuitable model is found here, not in somebody's data. Stacks of linear layers, whose own code
        does not run, are tried once per shape; any other model every time, since whatever is called between
        rounds may have changed its modes.
        """
        inputs, targets = torch.zeros_like(silo.inputs[:1]), torch.zeros_like(silo.targets[:1])
        shape = (inputs.shape, inputs.dtype, targets.shape, targets.dtype)
        if shape in self._probed and self._fits(silo):
            return
        check_model(self.model)
        before, versions = torch.get_rng_state(), self._versions()
        with one_thread():
            first = self._gradient(inputs, targets)
            self._gradient(torch.ones_like(inputs), targets)
            again = self._gradient(inputs, targets)
        if not torch.equal(before, torch.get_rng_state()):
            raise InvalidInput(
                "the model draws random numbers (dropout?), so a record's vector would depend on the records "
                "before it: call .eval() on those layers, or remove them"
            )
        if self._versions() != versions:
            raise InvalidInput(
                "the model changes its buffers or weights with every record: a record's vector would depend "
                "on the records before it; freeze those layers with .eval(), and use no max_norm"
            )
        if not np.array_equal(first, again, equal_nan=True):
            raise InvalidInput(
                "the model's gradient of one record changes with the records before it: it keeps a state of "
                "its own; remove it"
            )
        self._probed.add(shape)

    def _versions(self) -> list[int]:
        """Counts of in-place changes to everything that the model holds."""
        return [held._version for held in (*self.model.parameters(), *self.model.buffers())]


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch works in this thread alone: how it shares work could change the last bits of a sum."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
