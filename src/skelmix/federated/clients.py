"""The participants of a simulated federation: who holds which records of a tensor data set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from skelmix.datasets.partition import Partition, one_record_each
from skelmix.errors import InvalidInput
from skelmix.federated.tensors import as_tensors


@dataclass(frozen=True, eq=False)
class Clients:
    """A data set and its partition into participants.

    `inputs` (records, ...) and `targets` (records, ...) are kept as CPU tensors. NumPy arrays are taken, too,
    and a map-style data set of (input, target) pairs, or of mappings with these two values, in place of both:
    `Clients(dataset)` reads it once, with the same random draws for every record. float64 becomes float32 and
    integer targets become int64; a DataLoader is refused.

    Without a partition each record is a participant, as in the paper. `len` is the number of participants,
    the population of the plan.

    Example:

        >>> from skelmix.datasets import equal_shares
        >>> inputs, targets = torch.zeros(6, 2), torch.zeros(6)
        >>> len(Clients(inputs, targets)), len(Clients(inputs, targets, equal_shares(6, 3)))
        (6, 2)
    """

    inputs: torch.Tensor
    targets: torch.Tensor = None  # type: ignore[assignment]
    partition: Partition = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        inputs, targets = as_tensors(self.inputs, self.targets)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "targets", targets)
        if len(self.inputs) != len(self.targets) or len(self.inputs) == 0:
            raise InvalidInput(
                f"{len(self.inputs)} inputs but {len(self.targets)} targets: give one target for each record"
            )
        if self.partition is None:
            object.__setattr__(self, "partition", one_record_each(len(self.inputs)))
        records = self.partition.records
        if records.min() < 0 or records.max() >= len(self.inputs):
            raise InvalidInput(
                f"the partition names record {records.max()}, the data set has {len(self.inputs)}"
            )

    def __len__(self) -> int:
        return len(self.partition)

    def batches(
        self, participants: NDArray[np.int64], limit: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The data of the participants, at most `limit` records and at least one participant at a time.

        Each item is (inputs (k, r, ...), targets (k, r, ...)) for k participants of r records each;
        participants with different numbers of records come in different items, so their order may change.
        """
        offsets, sizes = self.partition.offsets, self.partition.sizes[participants]
        for size in np.unique(sizes):
            group = participants[sizes == size]
            step = max(1, limit // int(size))
            for start in range(0, len(group), step):
                places = offsets[group[start : start + step], None] + np.arange(size)
                rows = torch.from_numpy(self.partition.records[places])
                yield self.inputs[rows], self.targets[rows]
