"""Rows of a user's file, one per participant: checked in full before the first one is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from skelmix.arrays import FloatArray
from skelmix.cli.tables import Line, Table, few, open_table
from skelmix.errors import InvalidInput
from skelmix.wording import counted

_SHOWN = 5  # cells named to the owner


@dataclass(frozen=True)
class RowFile:
    """A checked file of `rows` vectors of length `width`; iterating reads it again, row by row.

    names: of the columns, where they are known.
    """

    path: Path
    rows: int
    width: int
    names: tuple[str, ...] | None = None
    table: Table | None = field(default=None, repr=False)

    def __iter__(self) -> Iterator[FloatArray]:
        for _, cells in self.table or ():
            row = _numbers(cells)
            if row is None or len(row) != self.width:
                raise InvalidInput(f"{self.path}: the file changed while it was read; nothing was released")
            yield row


def open_rows(path: Path, *, header: bool = False, columns: str | None = None) -> RowFile:
    """Check every cell of a .npy, .csv or .parquet file.

    A cell with text, NaN, infinity or nothing raises `InvalidInput` that names line, column and value of the
    first few and counts them all; so does a line with more or fewer cells than the first, and an empty file.
    header: line 1 of a CSV names the columns. columns: the names of those to take, with commas between them;
    nothing else in the file is looked at.
    """
    table = open_table(path, header, columns)
    bad, rows, width = _BadCells(table), 0, 0
    for line, cells in table:
        rows += 1
        row = _numbers(cells)
        if row is None or not np.isfinite(row).all():
            bad.add_line(line, cells)
        else:
            width = len(row)
    bad.refuse()
    if rows == 0:
        raise InvalidInput(f"{path}: no rows; at least one is needed")
    return RowFile(path, rows, width, table.names, table)


class _BadCells:
    """The cells and lines that cannot be added: the first few in words, all of them counted."""

    def __init__(self, table: Table) -> None:
        self._table, self._shown = table, list[str]()
        self._cells = self._lines = 0

    def add_line(self, line: int, cells: Line) -> None:
        if isinstance(cells, str):
            self._lines += 1
            self._show(f"line {line} {cells}")
            return
        problems = {place: why for place, cell in enumerate(cells) if (why := _problem(cell))}
        if not self._table.named_by and line == 1 and isinstance(cells, list) and _all_words(cells):
            self._lines += 1
            self._show(f"line 1 holds text ({few(cells)}): if these are the columns' names, add --header")
            return
        self._cells += len(problems)
        for place, why in problems.items():
            self._show(f"line {line}, {self._table.column(place)} {why}")

    def _show(self, text: str) -> None:
        if len(self._shown) < _SHOWN:
            self._shown.append(text)

    def refuse(self) -> None:
        """Raise `InvalidInput` if there is any."""
        count = self._cells + self._lines
        if count:
            what = [counted(self._cells, "bad cell")] * bool(self._cells)
            what += [counted(self._lines, "bad line")] * bool(self._lines)
            more = f"; and {count - len(self._shown):,} more" if count > len(self._shown) else ""
            raise InvalidInput(
                f"{self._table.path}: {' and '.join(what)}: {'; '.join(self._shown)}{more}. Nothing was "
                "released: repair or remove them, or take other columns with --columns"
            )


def _numbers(cells: Line) -> FloatArray | None:
    """The cells of a line as numbers; None if a cell is not a number."""
    if isinstance(cells, str):
        return None
    try:
        return np.asarray(cells, dtype=np.float64)
    except ValueError:
        return None


def _all_words(cells: list[str]) -> bool:
    return all(cell.strip() and _number(cell) is None for cell in cells)


def _number(cell: Any) -> float | None:
    try:
        return float(np.float64(cell))
    except ValueError:
        return None


def _problem(cell: Any) -> str:
    """What is wrong with a cell, in words; empty where nothing is."""
    number = _number(cell)
    if number is not None and np.isfinite(number):
        return ""
    if not isinstance(cell, str):
        return "is empty (NaN)" if np.isnan(cell) else "is infinite"
    if not cell.strip():
        return "is empty"
    commas = number is None and _number(cell.replace(",", "")) is not None
    hint = "; write 1000.5, not 1,000.5 or 1000,5" if commas else ""
    shown = cell if len(cell) <= 40 else cell[:40] + "…"
    return f"is {shown!r}, not a {'finite ' if number is not None else ''}number{hint}"
