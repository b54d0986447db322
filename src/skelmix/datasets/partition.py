"""Which records belong to which participant.

Simulation only: a partition is not secret, so it takes a plain seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.validation import positive, whole


@dataclass(frozen=True, eq=False)
class Partition:
    """The records of each participant: i holds `records[offsets[i]:offsets[i+1]]`.

    These are indices into the data set, each held at most once.

    A record with two holders would count twice in a sum, which no guarantee per participant covers: it is
    refused, as are empty participants (they would have no gradient).

    Example:

        >>> two = Partition(records=np.array([4, 0, 2]), offsets=np.array([0, 2, 3]))
        >>> len(two), two.records_of(0).tolist(), two.sizes.tolist()
        (2, [4, 0], [2, 1])
    """

    records: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def __post_init__(self) -> None:
        offsets, records = self.offsets, self.records
        if offsets.ndim != 1 or len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(records):
            raise InvalidInput(
                "offsets must run from 0 to the number of records, with one more entry than participants"
            )
        if (np.diff(offsets) < 1).any():
            raise InvalidInput("every participant needs at least one record: drop the empty ones")
        if len(np.unique(records)) != len(records):
            raise InvalidInput("a record belongs to two participants: give each record one holder")

    def __len__(self) -> int:
        """The number of participants."""
        return len(self.offsets) - 1

    def records_of(self, participant: int) -> NDArray[np.int64]:
        """Indices of the records that this participant holds."""
        return self.records[self.offsets[participant] : self.offsets[participant + 1]]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many records each participant holds."""
        return np.diff(self.offsets)


def _from_lists(lists: list[NDArray[np.int64]]) -> Partition:
    offsets = np.concatenate([[0], np.cumsum([len(held) for held in lists])]).astype(np.int64)
    return Partition(np.concatenate(lists).astype(np.int64), offsets)


def one_record_each(records: int) -> Partition:
    """The paper's setting: each record is a participant (Bao et al. 2022, Section 6.2).

    Example:

        >>> len(one_record_each(60_000))
        60000
    """
    whole(1, records=records)
    return Partition(np.arange(records), np.arange(records + 1))


def equal_shares(records: int, per_participant: int, *, seed: int = 0) -> Partition:
    """`per_participant` records each, shuffled; the remainder of the division is left out.

    Example:

        >>> equal_shares(records=23, per_participant=5).sizes.tolist()
        [5, 5, 5, 5]
    """
    whole(1, records, per_participant=per_participant)
    participants = records // per_participant
    order = np.random.default_rng(seed).permutation(records)[: participants * per_participant]
    return Partition(order, np.arange(participants + 1) * per_participant)


def label_skew(labels: NDArray[Any], participants: int, concentration: float, *, seed: int = 0) -> Partition:
    """Equal shares of records, the labels of each participant mixed by Dirichlet(concentration).

    Hsu et al. 2019.

    Small concentrations give participants of a single label, large ones give equal mixtures. When a label has
    run out, its share goes to the labels that are left.

    Example:

        >>> label_skew(np.arange(100) % 10, participants=5, concentration=0.1).sizes.tolist()
        [20, 20, 20, 20, 20]
    """
    whole(1, len(labels), participants=participants)
    positive(concentration=concentration)
    rng = np.random.default_rng(seed)
    present, inverse = np.unique(labels, return_inverse=True)
    pools = [rng.permutation(np.flatnonzero(inverse == label)) for label in range(len(present))]
    left = np.array([len(pool) for pool in pools])
    share = len(labels) // participants
    lists = []
    for _ in range(participants):
        mixture = rng.dirichlet(np.full(len(present), concentration))
        take = np.zeros(len(present), np.int64)
        while (need := share - int(take.sum())) > 0:
            open_labels = (left - take) > 0
            weights = np.where(open_labels, mixture, 0.0)
            if weights.sum() <= 0:  # every label of the mixture has run out
                weights = open_labels.astype(float)
            take = np.minimum(take + rng.multinomial(need, weights / weights.sum()), left)
        lists.append(np.concatenate([pools[c][left[c] - take[c] : left[c]] for c in range(len(present))]))
        left -= take
    return _from_lists(lists)


def by_id(ids: NDArray[Any]) -> Partition:
    """One participant for each distinct value of a user-supplied column, in sorted order of the values.

    Example:

        >>> by_id(np.array(["ann", "bob", "ann"])).records_of(0).tolist()
        [0, 2]
    """
    ids = np.asarray(ids)
    if ids.ndim != 1 or len(ids) == 0:
        raise InvalidInput(f"ids has shape {ids.shape}: give one id for each record")
    _, inverse, counts = np.unique(ids, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable").astype(np.int64)
    return Partition(order, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def read_ids(path: Path) -> NDArray[Any]:
    """The id column of a file, for `by_id`, in the order of the training records.

    The file is a one-dimensional .npy array, or text with one id per line.

    Blank lines and what cannot be read raise `InvalidInput`.

    Example:

        >>> _ = Path("owners.txt").write_text("ann\\nbob\\n")
        >>> read_ids(Path("owners.txt")).tolist()
        ['ann', 'bob']
    """
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False))
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"ids = {path}: cannot be read ({error}); give a .npy array or text with one id per line"
        ) from error
    if "" in lines:
        raise InvalidInput(f"ids = {path}: line {lines.index('') + 1} is blank; give each record its id")
    return np.array(lines)
