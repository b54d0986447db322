"""The silos of a simulated federation: each draws some of its own records in each round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from skelmix.datasets.partition import Partition
from skelmix.errors import InvalidInput
from skelmix.federated.clients import Clients
from skelmix.federated.records import RecordGradients
from skelmix.mechanisms import Mechanism, SiloSum
from skelmix.noise.entropy import Entropy
from skelmix.rounds.aggregation import Seconds
from skelmix.rounds.sampling import poisson


@dataclass(frozen=True, eq=False)
class SiloClients:
    """Silos with a data set each, of any sizes and distributions. `len` is the number of silos.

    A silo is a `Clients`: its partition says what is protected, one record each by default, or all records of
    a person (`of_owners`). Empty silos are not possible; a silo without records is not a silo.

    Example:

        >>> silos = SiloClients.of([(torch.zeros(6, 2), torch.zeros(6)), (torch.zeros(3, 2), torch.zeros(3))])
        >>> len(silos), silos.members
        (2, 9)
    """

    silos: tuple[Clients, ...]

    def __post_init__(self) -> None:
        if not self.silos:
            raise InvalidInput("silos is empty: give at least one silo")

    @classmethod
    def of(cls, data: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> SiloClients:
        """Silos of (inputs, targets) each, in which every record is protected."""
        return cls(tuple(Clients(inputs, targets) for inputs, targets in data))

    @classmethod
    def split(
        cls,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        partition: Partition,
        owners: np.ndarray | None = None,
    ) -> SiloClients:
        """One data set divided among silos; owners: whose each record is, to protect persons."""
        silos = []
        for start, stop in zip(partition.offsets[:-1], partition.offsets[1:], strict=True):
            rows = partition.records[start:stop]
            own = None if owners is None else _by_owner(np.asarray(owners)[rows])
            silos.append(Clients(inputs[rows], targets[rows], own))  # type: ignore[arg-type]
        return cls(tuple(silos))

    def __len__(self) -> int:
        return len(self.silos)

    @property
    def members(self) -> int:
        """Records (or persons) in all silos."""
        return sum(len(silo) for silo in self.silos)


def silo_sums(
    clients: SiloClients,
    present: np.ndarray,
    gradients: RecordGradients,
    mechanism: Mechanism,
    rate: Fraction,
    *,
    round: int,
    entropy: Entropy,
    seconds: Seconds,
) -> Iterator[SiloSum]:
    """What each silo that is present adds up in this round: its records, each drawn afresh with probability
    `rate`, which is the plan's and never computed from a silo's own number of records."""
    for silo in (clients.silos[place] for place in present):
        total = mechanism.silo_sum(round=round)
        drawn = poisson(len(silo), rate, entropy)
        total.add(seconds.timed(gradients.blocks(silo, drawn)))
        yield total


def _by_owner(owners: np.ndarray) -> Partition:
    order = np.argsort(owners, kind="stable")
    _, starts = np.unique(owners[order], return_index=True)
    return Partition(order.astype(np.int64), np.append(starts, len(owners)).astype(np.int64))
