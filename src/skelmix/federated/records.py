"""Vectors of a silo's records, or persons, for record-level privacy.

The guarantee compares two silos that differ by one record, and all other records must contribute exactly the
same in both. So a record's vector is bit for bit a function of that record and the public model: it never
depends on the batch's size, on the record's place in it, or on the other records. Batched kernels do not
promise that. Stacks of linear layers go through kernels that see one record at a time; any other model is
evaluated by torch on one record at a time, from the same memory and with one thread. A person's records are
added up in their own order, however many there are, a bounded number of them in memory at a time.

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
from skelmix.federated.feature_units import FeatureUnits, in_float32
from skelmix.federated.gradients import BLOCK_FLOATS, Loss, dimension, trainable
from skelmix.federated.model_check import validate
from skelmix.federated.record_draws import draw_states, fixed_draws
from skelmix.federated.stack import LinearStack

_PASS_RECORDS = 4096  # records read at a time at most, however many a person has
_PASS_FLOATS = 1 << 22  # numbers in their inputs at most: 16 MB
_TRIALS = 3  # a model that draws random numbers does so in each; another thread (Flower's) rarely does

_DRAWS = (
    "the model draws random numbers (dropout?), so a record's vector would depend on the records before it: "
    "call .eval() on those layers, or remove them"
)


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
        validate(model)
        _refuse_dropout(model)
        self.model, self.loss = model, loss
        self.dimension = dimension(model)
        self._buffer = np.empty((max(1, BLOCK_FLOATS // self.dimension), self.dimension), np.float32)
        self._stack = LinearStack.of(model)
        self.short_passes = self._stack is not None
        self._probed: set[tuple[object, ...]] = set()

    def blocks(
        self, silo: Clients, units: NDArray[np.int64], *, same_round: bool = False
    ) -> Iterator[NDArray[np.float32]]:
        """The units' vectors, float32 (k, dimension), in the order of `units`.

        They are views of one buffer, which the next block overwrites. No units: no block.

        A wrong model, loss or shape raises here, before any record is looked at: it is tried on zeros.
        same_round: nothing was done with the model since the last call, so shapes that were tried are not
        tried again.
        """
        self._probe(silo, same_round)
        stack = self._stack if self._fits(silo) else None
        weights = None if stack is None else stack.weights()
        most = max(1, min(_PASS_RECORDS, _PASS_FLOATS // max(1, silo.inputs[0].numel())))
        for start, stop in self._cuts(silo.partition.sizes[units], most):
            out = self._buffer[: stop - start]
            for first, records, owners in _pieces(silo, units[start:stop], most):
                if stack is not None and weights is not None:
                    # by NumPy: torch would wake its threads for so little
                    inputs = silo.inputs.detach().numpy()[records].reshape(len(records), -1)
                    inputs = in_float32(inputs) if inputs.dtype == np.int16 else inputs
                    targets = torch.from_numpy(silo.targets.detach().numpy()[records])
                    stack.write(weights, inputs, targets, owners, self.loss, out, go_on=not first)
                else:
                    self._write_by_torch(silo, records, owners, out, go_on=not first)
            yield out

    def _cuts(self, sizes: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
        """Ranges of units that fill a block: by rows of the buffer and by records to be read.

        A unit with more than `most` records is a block of its own.
        """
        start = held = 0
        for unit, size in enumerate(sizes.tolist()):
            if unit > start and (unit - start == len(self._buffer) or held + size > most):
                yield start, unit
                start, held = unit, 0
            held += size
        if start < len(sizes):
            yield start, len(sizes)

    def _fits(self, silo: Clients) -> bool:
        """Whether the stack's kernels take this silo's records: one vector each, of float32 or of units."""
        stack, inputs, first = self._stack, silo.inputs, next(self.model.children(), None)
        kind = torch.int16 if isinstance(first, FeatureUnits) else torch.float32
        flat = inputs.dim() == 2 or isinstance(first, nn.Flatten)
        return stack is not None and inputs.dtype == kind and flat and inputs[0].numel() == stack.width

    def _write_by_torch(
        self,
        silo: Clients,
        records: NDArray[np.int64],
        owners: NDArray[np.int64],
        out: NDArray[np.float32],
        *,
        go_on: bool,
    ) -> None:
        inputs, targets = torch.empty_like(silo.inputs[:1]), torch.empty_like(silo.targets[:1])
        if not go_on:
            out[:] = 0
        with one_thread(), fixed_draws() as start_again:
            for record, owner in zip(records.tolist(), owners.tolist(), strict=True):
                inputs.copy_(silo.inputs[record : record + 1])
                targets.copy_(silo.targets[record : record + 1])
                start_again()
                try:
                    out[owner] += self._gradient(inputs, targets)
                except KeyboardInterrupt:  # of the operator, not of a record
                    raise
                except BaseException:  # whatever a record does, it may not stop its silo
                    out[owner] = np.nan

    def _gradient(self, inputs: Tensor, targets: Tensor) -> NDArray[np.float32]:
        """The gradient of one record, (1, ...) each, as a vector."""
        value = self.loss(self.model(inputs), targets).mean()
        weights = list(trainable(self.model).values())
        slopes = torch.autograd.grad(value, weights, allow_unused=True)
        parts = [torch.zeros_like(w) if s is None else s for w, s in zip(weights, slopes, strict=True)]
        return torch.cat([part.reshape(-1) for part in parts]).numpy()

    def _probe(self, silo: Clients, same_round: bool) -> None:
        """Compute the gradients of made-up records, before any real one.

        So an unsuitable model is found here, not in somebody's data. Stacks of linear layers, whose own code
        does not run, are tried once per shape; any other model every time, since whatever is called between
        rounds may have changed its modes.
        """
        inputs, targets = torch.zeros_like(silo.inputs[:1]), torch.zeros_like(silo.targets[:1])
        shape = (inputs.shape, inputs.dtype, targets.shape, targets.dtype)
        if shape in self._probed and (same_round or self._fits(silo)):
            return
        validate(self.model)
        versions = self._versions()
        for _ in range(_TRIALS):
            before = draw_states()
            with one_thread():
                first = self._gradient(inputs, targets)
                self._gradient(torch.ones_like(inputs), targets)
                again = self._gradient(inputs, targets)
            if draw_states() == before:
                break
        else:
            raise InvalidInput(_DRAWS)
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


def _refuse_dropout(model: nn.Module) -> None:
    """Refuse dropout that is switched on, whatever the records are."""
    for module in model.modules():
        if module.training and isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise InvalidInput(_DRAWS)


def _pieces(
    silo: Clients, units: NDArray[np.int64], most: int
) -> Iterator[tuple[bool, NDArray[np.int64], NDArray[np.int64]]]:
    """A block's records and the place of each one's unit, at most `most` at a time; first: of the block."""
    partition = silo.partition
    if len(units) > 1:
        records = np.concatenate([partition.records_of(unit) for unit in units])
        yield True, records, np.repeat(np.arange(len(units)), partition.sizes[units])
        return
    records = partition.records_of(units[0])
    for start in range(0, len(records), most):
        piece = records[start : start + most]
        yield start == 0, piece, np.zeros(len(piece), np.int64)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch works in this thread alone: how it shares work could change the last bits of a sum."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
