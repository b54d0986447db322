"""Adds up the records that one silo draws in one round, as an engine's client does with its own data.

The model is public: it is set to the weights that the server sent before any record is looked at. Each record
(or owner) is drawn independently at the plan's rate, its vector is minus the learning rate times its
gradient, and `SiloSum` clips it and adds it exactly. A record that cannot be read, or whose loss fails, adds
zero: nothing in the data may stop a silo or change what its other records add.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from skelmix.datasets.partition import Partition, by_id, one_record_each
from skelmix.errors import InvalidInput
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import Loss, trainable
from skelmix.federated.owners import NOBODY, owner_numbers
from skelmix.federated.record_draws import fixed_draws
from skelmix.federated.records import RecordGradients
from skelmix.federated.tensors import pair
from skelmix.mechanisms import SiloSum
from skelmix.noise.entropy import Entropy
from skelmix.rounds.running_clip import JointVectors
from skelmix.rounds.sampling import poisson
from skelmix.validation import positive

log = logging.getLogger("skelmix")

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class PublicModel:
    """The public weights by name, with the place of each in a participant's vector.

    arrays: every array of the server's model. starts: the place of the first entry of each floating-point
    array in the vector, whose length is `dimension`.
    """

    arrays: Mapping[str, NDArray[Any]]
    starts: Mapping[str, int]
    dimension: int

    def load_into(self, model: nn.Module) -> NDArray[np.int64]:
        """Set the model to these weights; returns the place in the vector of each entry of a gradient.

        Raises `InvalidInput` unless every trainable weight is among the arrays, once.
        """
        weights = trainable(model)
        names = [
            name for name, value in model.named_parameters(remove_duplicate=False) if value.requires_grad
        ]
        if len(names) > len(weights):
            raise InvalidInput(f"the model shares weights between layers ({', '.join(names)}): untie them")
        if missing := [name for name in weights if name not in self.starts]:
            raise InvalidInput(
                f"the server's model has no {', '.join(missing)}: send all trained weights, or freeze these"
            )
        state = {name: torch.from_numpy(np.array(array)) for name, array in self.arrays.items()}
        unknown = model.load_state_dict(state, strict=False).unexpected_keys
        if unknown:
            raise InvalidInput(f"the model has no {', '.join(unknown)}, which the server sent: use its model")
        places = [self.starts[name] + np.arange(value.numel()) for name, value in weights.items()]
        return np.concatenate(places)


def add_drawn_records(
    total: SiloSum,
    public: PublicModel,
    model: nn.Module,
    loss: Loss,
    records: Any,
    targets: Any = None,
    *,
    owners: Any = None,
    learning_rate: float,
    rate: Fraction,
    entropy: Entropy,
    joint: JointVectors | None = None,
) -> None:
    """Draw each record, or each owner, with probability `rate`, and add the vectors of those drawn.

    records: a CPU tensor (records, ...) with `targets` (records, ...), or a map-style data set of (input,
    target) pairs, or of mappings with these two values, without `targets`. What a data set draws from
    torch's, NumPy's or Python's common generator is the same for all records of a round; one that keeps a
    state of its own is not covered by the guarantee, and the log warns of it. owners: the owner of each
    record, (records,); a person's records are then drawn together and summed before the clip, and records
    without an owner (None, NaN, texts such as "" and "NA", what has no name) add nothing, since they could
    all be one person's.
    joint: what makes the round's joint vectors, where the clip norm is adaptive. Wrong arguments raise
    `InvalidInput` before any draw.
    """
    positive(learning_rate=learning_rate)
    _check_source(records, targets)
    places = public.load_into(model)
    gradients = RecordGradients(model, loss)
    count = len(records)
    if owners is not None and len(owners) != count:
        raise InvalidInput(f"owners has {len(owners)} entries for {count} records: give one per record")
    if count == 0:
        return
    units = one_record_each(count) if owners is None else _by_owner(owners)
    if units is None:
        return
    if isinstance(records, Tensor):
        silo = Clients(records, targets, units)
        blocks = gradients.blocks(silo, poisson(len(silo), rate, entropy))
    else:
        _warn_unless_repeatable(records, total.round)
        drawn = (units.records_of(unit) for unit in poisson(len(units), rate, entropy))
        blocks = _read_one_by_one(gradients, records, drawn, total.round)
    placed = _placed(blocks, places, public.dimension, np.float32(-learning_rate))
    total.add(placed if joint is None else joint.of(placed))


def _check_source(records: Any, targets: Any) -> None:
    if isinstance(records, DataLoader | IterableDataset):
        raise InvalidInput(
            f"records is a {type(records).__name__}, which chooses its own batches: give tensors, or a data "
            "set with __len__ and __getitem__ (loader.dataset); each record is drawn here, independently"
        )
    if isinstance(records, Tensor) != isinstance(targets, Tensor):
        raise InvalidInput("records and targets: give two tensors, or one data set of (input, target) pairs")
    if not hasattr(records, "__len__") or not hasattr(records, "__getitem__"):
        raise InvalidInput(f"records is a {type(records).__name__}: give tensors or a map-style data set")


def _by_owner(owners: Any) -> Partition | None:
    """The records of each owner; None where no record has one.

    Records without an owner are left out: they could all be one person's.
    """
    numbers = owner_numbers(owners)
    owned = np.flatnonzero(numbers != NOBODY)
    if not len(owned):
        return None
    units = by_id(numbers[owned])
    return Partition(owned[units.records], units.offsets)


def _read_one_by_one(
    gradients: RecordGradients, data: Any, units: Iterable[NDArray[np.int64]], round: int
) -> Iterator[Floats]:
    """The vector (1, weights) of each unit, every record read and judged by itself.

    So a record of another shape, or one that cannot be read, changes no other.
    """
    only = np.zeros(1, np.int64)
    for unit in units:
        vector = np.zeros((1, gradients.dimension), np.float32)
        for record in unit.tolist():
            try:
                inputs, targets = (part[None] for part in _read(data, record, round))
                for block in gradients.blocks(Clients(inputs, targets), only, same_round=True):
                    vector += block
            except KeyboardInterrupt:  # of the operator, not of a record
                raise
            except BaseException as error:  # panics of readers written in Rust are no Exception
                log.error("a record adds zero, since it cannot be used: %s", error)
                vector[:] = np.nan
        yield vector


def _read(data: Any, record: int, round: int) -> list[Tensor]:
    """The tensors of a record; what the data set draws is the same for all records of a round."""
    with fixed_draws(round):
        return [torch.as_tensor(part) for part in pair(data[record])]


def _warn_unless_repeatable(data: Any, round: int) -> None:
    """Warn, in this process's log, of a data set whose first record changes with what was read before.

    Only warn: whether a record can be compared depends on the data, which must not decide what is sent.
    """
    try:
        reads = [_read(data, record, round) for record in (0, len(data) - 1, 0)]
        first, _, again = ([part.numpy().tobytes() for part in read] for read in reads)  # NaN equals NaN
    except KeyboardInterrupt:  # of the operator, not of a record
        raise
    except BaseException:
        return  # it will count as zero
    if first != again:
        log.warning(
            "records: the data set gives another first record the second time (a generator or counter of its "
            "own?), so a record's vector depends on the records before it, which the guarantee does not "
            "cover; draw from torch's, NumPy's or Python's common generator, set alike before each record"
        )


def _placed(
    blocks: Iterable[Floats], places: NDArray[np.int64], dimension: int, factor: np.float32
) -> Iterator[Floats]:
    """Gradients as updates in the vector's own order; entries of arrays that do not train are zero."""
    for block in blocks:
        out = np.zeros((len(block), dimension), np.float32)
        with np.errstate(all="ignore"):
            out[:, places] = block * factor
        yield out
