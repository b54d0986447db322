"""Silos that hold many records each: the guarantee protects records, also against the aggregator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from skelmix.accounting.schedule import Schedule
from skelmix.errors import InvalidInput
from skelmix.planning.cohort import Cohort
from skelmix.planning.contributors import Contributors
from skelmix.validation import one_of, whole


@dataclass(frozen=True)
class Silos(Contributors):
    """Hospitals or banks that hold many records each: privacy for one record, over all silos together.

    count: silos, all of them in every round. records: records in all silos together, a public number that may
    be rough: only the rate batch/records enters the guarantee, and every silo keeps to that rate. batch:
    records expected in a round; each silo draws each of its records independently with probability
    batch/records, afresh in every round and secretly, so one ε holds for observers and aggregator alike.
    dropout_tolerance: the fraction of silos that may drop out. colluding: other silos that may give their
    noise to the adversary. unit: "record", or "owner" where a person's records in a silo are drawn and
    clipped together (records then counts persons). dropout_rate: the probability with which each silo drops
    out of a round, to predict how many rounds fail; the guarantee does not depend on it. least_survivors:
    chosen by `plan` for mechanisms whose noise comes in pieces, so that every opened sum has the same noise.

    Neighbours: one record (owner) added or removed. A person with records in two silos is not covered.

    Example:

        >>> silos = Silos(count=10, records=60_000, batch=240, dropout_tolerance=0.2, colluding=1)
        >>> silos.sampling_probability, silos.min_survivors(10), int(silos.shares(10))
        (0.004, 8, 7)
    """

    count: int
    records: int
    batch: int
    dropout_tolerance: float = 0.0
    colluding: int = 0
    unit: str = "record"
    dropout_rate: float | None = None
    least_survivors: int | None = None

    sampling: ClassVar[str] = "poisson"
    contribute: ClassVar[float] = 1.0
    max_participations: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        whole(1, count=self.count, records=self.records, batch=self.batch)
        one_of(("record", "owner"), unit=self.unit)
        if self.batch > self.records:
            raise InvalidInput(
                f"batch = {self.batch}: must be at most records = {self.records}; lower the batch"
            )
        self._check_uploads()

    def __str__(self) -> str:
        return f"{self.count:,} silos, {self.batch:,} of {self.records:,} {self.unit}s per round"

    def summary(self) -> dict[str, Any]:
        return {
            "cohort": None,
            "population": None,
            "contribute": 1.0,
            "max_participations": None,
            "silos": self.count,
            "records": self.records,
            "batch": self.batch,
        }

    @property
    def neighbours(self) -> str:
        return f"one {self.unit} of one silo added or removed"

    @property
    def roster(self) -> Cohort:
        """All silos, in every round."""
        return Cohort.everyone(
            self.count,
            dropout_tolerance=self.dropout_tolerance,
            colluding=self.colluding,
            dropout_rate=self.dropout_rate,
            least_survivors=self.least_survivors,
        )

    @property
    def uploads(self) -> int:
        return self.count

    @property
    def divisor(self) -> float:
        return float(self.batch)

    @property
    def members(self) -> int:
        return self.records

    @property
    def sampling_probability(self) -> float:
        """Probability that a given record is in a given round."""
        return self.batch / self.records

    def with_least_survivors(self, delta: float, rounds: int) -> Self:
        plain = replace(self, least_survivors=None)
        return replace(plain, least_survivors=plain.min_survivors(self.count))

    def _upload_counts(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        return np.array([self.count]), np.ones(1)

    def schedule(self, rounds: int) -> Schedule:
        return Schedule(rounds, "poisson", self.batch, self.records, secret=True)


def contributors_from_dict(data: Any) -> Cohort | Silos:
    """What `Contributors.to_dict` described; unknown kinds and fields raise `InvalidInput`."""
    kinds: dict[str, type[Cohort] | type[Silos]] = {"cohort": Cohort, "silos": Silos}
    fields = dict(data) if isinstance(data, dict) else {}
    kind = kinds.get(str(fields.pop("kind", None)))
    if kind is None:
        raise InvalidInput(f"cohort: must be an object whose kind is one of {', '.join(kinds)}")
    try:
        return kind(**fields)
    except TypeError as error:
        raise InvalidInput(f"cohort: {error}") from error
