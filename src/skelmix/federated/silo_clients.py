"""The silos of a simulated federation: each draws some of its own records in each round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from skelmix.datasets.partition import Partition, by_id
from skelmix.errors import InvalidInput
from skelmix.federated.clients import Clients
from skelmix.federated.owners import every_owner
from skelmix.federated.records import RecordGradients
from skelmix.mechanisms import Mechanism, SiloSum
from skelmix.noise.entropy import Entropy
from skelmix.planning.silos import Silos
from skelmix.rounds.aggregation import Seconds
from skelmix.rounds.running_clip import JointVectors
from skelmix.rounds.sampling import poisson
from skelmix.validation import one_of


@dataclass(frozen=True, eq=False)
class SiloClients:
    """Silos with a data set each, of any sizes and distributions. `len` is the number of silos.

    A silo is a `Clients`: its partition says what is protected, one record each (unit "record"), or all
    records of a person (unit "owner", when owners are given). A person with records in two silos is not
    covered. Empty silos are refused.

    Example:

        >>> silos = SiloClients.of([(torch.zeros(6, 2), torch.zeros(6)), (torch.zeros(3, 2), torch.zeros(3))])
        >>> len(silos), silos.members
        (2, 9)
    """

    silos: tuple[Clients, ...]
    unit: str = "record"

    def __post_init__(self) -> None:
        if not self.silos:
            raise InvalidInput("silos is empty: give at least one silo")
        one_of(("record", "owner"), unit=self.unit)
        if self.unit == "record" and any((silo.partition.sizes > 1).any() for silo in self.silos):
            raise InvalidInput("unit = 'record': a silo's partition puts records together; pass unit='owner'")

    @classmethod
    def of(cls, data: Sequence[Any], owners: Sequence[np.ndarray] | None = None) -> SiloClients:
        """Silos of (inputs, targets) each, or of a map-style data set each, as `Clients` takes them.

        owners: the owner of each record, an array per silo, to protect persons in place of records.
        """
        silos = [Clients(*held) if _is_pair(held) else Clients(held) for held in data]
        if owners is None:
            return cls(tuple(silos))
        if [len(own) for own in owners] != [len(silo.inputs) for silo in silos]:
            raise InvalidInput("owners: must be one array per silo with the owner of each of its records")
        pairs = zip(silos, map(every_owner, owners), strict=True)
        return cls(tuple(replace(silo, partition=by_id(own)) for silo, own in pairs), "owner")

    @classmethod
    def split(
        cls,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        partition: Partition,
        owners: np.ndarray | None = None,
    ) -> SiloClients:
        """One data set divided among silos; owners: the owner of each record, to protect persons.

        An owner with records in two silos would not be covered, and raises `InvalidInput`.
        """
        numbers = None
        if owners is not None:
            if len(owners) != len(inputs):
                raise InvalidInput(
                    f"owners: {len(owners)} of them for {len(inputs)} records; give one for each"
                )
            numbers = every_owner(owners)
            _check_owners_are_whole(numbers, partition)
        silos = []
        for start, stop in zip(partition.offsets[:-1], partition.offsets[1:], strict=True):
            rows = partition.records[start:stop]
            own = None if numbers is None else by_id(numbers[rows])
            silos.append(Clients(inputs[rows], targets[rows], own))  # type: ignore[arg-type]
        return cls(tuple(silos), "record" if numbers is None else "owner")

    def __len__(self) -> int:
        return len(self.silos)

    @property
    def members(self) -> int:
        """Records (or persons) in all silos."""
        return sum(len(silo) for silo in self.silos)

    def check_plan(self, cohort: Silos) -> None:
        """Refuse a plan for another number of silos or another unit.

        How many records it names is not compared: only its rate counts.
        """
        if cohort.count != len(self):
            raise InvalidInput(f"{len(self)} silos, but the plan is for {cohort.count}: plan for {len(self)}")
        if cohort.unit != self.unit:
            raise InvalidInput(
                f"unit = {cohort.unit!r}: the plan protects each {cohort.unit}, these silos each {self.unit}"
                f"; plan with unit={self.unit!r}"
            )


def _is_pair(held: Any) -> bool:
    """Whether these are inputs and targets, rather than a data set."""
    return isinstance(held, tuple | list) and len(held) == 2 and not isinstance(held[0], tuple | Mapping)


def _check_owners_are_whole(owners: NDArray[np.int64], partition: Partition) -> None:
    """Refuse a division that puts an owner's records into two silos: each would be clipped on its own."""
    silos = np.repeat(np.arange(len(partition)), partition.sizes)
    present, numbers = np.unique(owners[partition.records], return_inverse=True)
    lowest, highest = np.full(len(present), len(partition)), np.full(len(present), -1)
    np.minimum.at(lowest, numbers, silos)
    np.maximum.at(highest, numbers, silos)
    if (apart := np.flatnonzero(lowest < highest)).size:
        raise InvalidInput(
            f"owners: {len(apart)} of {len(present)} have records in several silos, whose sums would reveal "
            "more of them than was accounted for; divide the owners among the silos, not their records"
        )


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
    joint: JointVectors | None = None,
) -> Iterator[SiloSum]:
    """The records that each present silo adds up in this round, each drawn afresh with probability `rate`.

    The rate is the plan's and never computed from a silo's own number of records. joint: what makes the
    round's joint vectors, where the clip norm is adaptive.
    """
    for silo in (clients.silos[place] for place in present):
        total = mechanism.silo_sum(round=round)
        drawn = poisson(len(silo), rate, entropy)
        blocks = seconds.timed(gradients.blocks(silo, drawn))
        total.add(blocks if joint is None else joint.of(blocks))
        yield total
