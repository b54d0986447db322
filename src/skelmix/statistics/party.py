"""What one party computes from its own file: the exact sum of its records' vectors.

Whatever the file holds, the party has a vector to send. A value that cannot be read is a missing value of its
own record; a file that is no table, or lacks a column, gives the vector of an empty party. The reasons are
for the party's own eyes: neither they nor the number of records may leave it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.mechanisms import SiloSum
from skelmix.statistics import arrow
from skelmix.statistics.accumulate import Accumulator
from skelmix.statistics.blocks import Cells, Records
from skelmix.statistics.domains import Bins, checked_name
from skelmix.statistics.files import batches, csv_problems
from skelmix.statistics.layout import Layout
from skelmix.statistics.owners import add_owners, prolific_owners
from skelmix.validation import whole

_SHOWN = 10  # values named to the owner


@dataclass(frozen=True)
class Owners:
    """The unit of privacy is whoever `column` names, with at most `rows` records that count in full.

    An owner with more records has its sum scaled down. Example: `Owners("patient_id", rows=5)`.
    """

    column: str
    rows: int

    def __post_init__(self) -> None:
        checked_name(self.column, "owner column")
        whole(1, 1 << 20, rows=self.rows)


@dataclass(frozen=True, eq=False)
class PartySum:
    """A party's sum, int64 in fixed-point units, and what only the party itself may see.

    private_notes: lines of the file that could not be used, or why it counts as empty; usable: False where it
    does. Neither may be sent.

    Example: `for note in party_sum(path, layout, radius).private_notes: print(note)`, at the party.
    """

    vector: NDArray[np.int64] = field(repr=False)
    private_notes: tuple[str, ...] = field(default=(), repr=False)
    usable: bool = field(default=True, repr=False)


def party_sum(
    path: Path, layout: Layout, radius: int, owners: Owners | None = None, *, notes: bool = True
) -> PartySum:
    """The exact sum of a party's records, from its .csv or .parquet file, streamed.

    radius: the L2 norm of the longest record (or owner), in fixed-point units. owners: None protects each
    record. The memory does not grow with the records, except for the list of owners. Only a missing library
    raises; a bad file gives the vector of an empty party, and `private_notes` say why. notes: whether single
    records are reported, too; that takes time which depends on them, so never while others wait for the sum.

    Example: `party_sum(Path("ward.csv"), Layout(question), radius=1 << 34).vector`.
    """
    pa = arrow.pyarrow()
    rows = owners.rows if owners else 1
    accumulator = Accumulator(layout, radius, rows)
    source = _Source(path, layout.question.columns, _numeric_columns(layout), watched=notes)
    try:
        if owners is None:
            for batch in source.records():
                accumulator.add(batch)
        else:
            prolific = prolific_owners(batches(path, [owners.column]), owners.column, rows)
            add_owners(
                lambda: source.records(owners.column),
                owners.column,
                prolific,
                accumulator,
                layout,
                radius,
                rows,
            )
    except (InvalidInput, pa.ArrowException) as error:
        empty = Accumulator(layout, radius, rows).total()
        return PartySum(empty, (unusable_note(path, error),), usable=False)
    return PartySum(accumulator.total(), source.notes())


def add_to_silo(silo: SiloSum, party: PartySum) -> None:
    """Add a party's sum of records to the silo's, with zeros behind where the plan's vectors are longer.

    How many records there were stays in the party.
    """
    padded = np.zeros(silo.mechanism.dimension, np.int64)
    padded[: len(party.vector)] = party.vector
    silo.add_units(padded, 0)


def file_notes(path: Path, columns: Collection[str], numeric: Collection[str]) -> tuple[str, ...]:
    """What is wrong with a file, for its owner's eyes only: no table, no such columns, or single records.

    columns: all that may be asked; numeric: those of them that must hold numbers.
    """
    source = _Source(path, columns, numeric)
    try:
        for _ in source.records():
            pass
    except (InvalidInput, arrow.pyarrow().ArrowException) as error:
        return (unusable_note(path, error),)
    return source.notes()


def unusable_note(path: Path, error: Exception) -> str:
    """Why a file counts as empty, for its owner's eyes only."""
    problem = f"{error}" if str(path) in str(error) else f"{path}: {error}"
    return f"{problem}. The party counts as empty until this is repaired"


def _numeric_columns(layout: Layout) -> list[str]:
    columns: dict[str, None] = {}
    for block in layout.blocks:
        if isinstance(block, Cells):
            columns |= {axis.column: None for axis in block.axes if isinstance(axis.domain, Bins)}
        elif not isinstance(block, Records):
            columns[block.column] = None
    return list(columns)


class _Source:
    """A party's file; remembers whether it held text where numbers are needed, or rows that were left out.

    Nothing of what it remembers, or fails to, changes the records. watched: False remembers nothing.
    """

    def __init__(
        self, path: Path, columns: Collection[str], numeric: Collection[str], *, watched: bool = True
    ) -> None:
        self._path, self._columns, self._numeric = path, columns, numeric
        self._most = _SHOWN if watched else 0
        self._wrong: dict[str, None] = {}

    def records(self, owner: str | None = None) -> Iterator[Any]:
        """The file from its beginning, with the columns of the question and that of the owner."""
        columns = list(dict.fromkeys([*self._columns, *([owner] if owner else [])]))
        categories = [name for name in self._columns if name not in self._numeric and name != owner]
        row = 0
        for batch in batches(
            self._path, columns, categories=categories, left_out=lambda: self._note("a row was left out")
        ):
            try:
                self._watch(batch, row, categories)
            except Exception as error:
                self._note(f"from record {row + 1} on: not checked ({error})")
            row += batch.num_rows
            yield batch

    def _watch(self, batch: Any, row: int, categories: Collection[str]) -> None:
        for name in categories:
            if row == 0 and not arrow.may_hold_categories(kind := batch.column(name).type):
                self._note(f"{name} holds {kind}, not text or whole numbers: it counts as other")
        for name in self._numeric:
            if len(self._wrong) < self._most:
                for k in np.flatnonzero(arrow.not_numbers(batch.column(name)))[:_SHOWN]:
                    self._note(f"record {row + int(k) + 1}: {name} is not a number; it counts as missing")

    def _note(self, problem: str) -> None:
        if len(self._wrong) < self._most:
            self._wrong[problem] = None

    def notes(self) -> tuple[str, ...]:
        """What was wrong, with the lines of a CSV. Never raises: one record must not cost the whole sum."""
        if self._wrong and self._path.suffix.lower() == ".csv":
            try:
                return tuple(csv_problems(self._path, self._numeric))
            except Exception as error:
                return (f"{self._path}: some records were not used; which ones is unknown ({error})",)
        return tuple(f"{self._path}, {problem}" for problem in self._wrong)
