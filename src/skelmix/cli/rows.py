"""Rows of a user's file, one per participant: checked in full before the first one is used."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput, MissingExtra

Row = NDArray[np.float64]
_SHOWN = 10


@dataclass(frozen=True)
class RowFile:
    """A checked file of `rows` vectors of length `width`; iterating reads it again, row by row."""

    path: Path
    rows: int
    width: int
    skip: int

    def __iter__(self) -> Iterator[Row]:
        for _, row in _read(self.path, self.skip):
            if isinstance(row, str):
                raise InvalidInput(f"{self.path}: the file changed while it was read; nothing was released")
            yield row


def open_rows(path: Path, *, header: bool = False) -> RowFile:
    """Check every row of a .npy, .csv or .parquet file.

    A row with NaN, infinity, text or another width than the first raises `InvalidInput` that lists the
    lines; so does an empty file. header: the first line of a CSV names the columns.
    """
    if not path.is_file():
        raise InvalidInput(f"{path}: no such file")
    skip = int(header and path.suffix == ".csv")
    bad: list[str] = []
    rows, width, wrong = 0, -1, 0
    for line, row in _read(path, skip):
        problem = row if isinstance(row, str) else None
        if not isinstance(row, str):
            width = len(row) if width < 0 else width
            if len(row) != width:
                problem = f"{len(row)} values, the first row has {width}"
            elif not np.isfinite(row).all():
                problem = "NaN or infinity"
        rows += 1
        if problem:
            wrong += 1
            if len(bad) < _SHOWN:
                bad.append(f"line {line}: {problem}")
    if wrong:
        more = f" and {wrong - len(bad)} more" if wrong > len(bad) else ""
        raise InvalidInput(
            f"{path}: {wrong} bad row(s): {'; '.join(bad)}{more}. Nothing was released; repair or remove them"
        )
    if rows == 0 or width == 0:
        raise InvalidInput(f"{path}: no rows; one row per participant is needed")
    return RowFile(path, rows, width, skip)


def _read(path: Path, skip: int) -> Iterator[tuple[int, Row | str]]:
    """(line number, row or what is wrong with it), streaming."""
    if path.suffix == ".csv":
        yield from _read_csv(path, skip)
    elif path.suffix == ".npy":
        yield from _read_npy(path)
    elif path.suffix == ".parquet":
        yield from _read_parquet(path)
    else:
        raise InvalidInput(f"{path}: the ending must be .npy, .csv or .parquet")


def _read_csv(path: Path, skip: int) -> Iterator[tuple[int, Row | str]]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        cells = csv.reader(file)
        for row in _readable(cells, path):
            if cells.line_num <= skip:
                continue
            try:
                yield cells.line_num, np.array(row, dtype=np.float64) if row else "empty"
            except ValueError:
                hint = " (column names? use --header)" if cells.line_num == 1 else ""
                yield cells.line_num, f"text where a number is needed{hint}"


def _readable(cells: Iterator[list[str]], path: Path) -> Iterator[list[str]]:
    try:
        yield from cells
    except csv.Error as error:
        raise InvalidInput(f"{path}: not a table of numbers ({error}); nothing was released") from error


def _read_npy(path: Path) -> Iterator[tuple[int, Row | str]]:
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # a hostile header may fail anywhere in NumPy's parser, in any way
        raise InvalidInput(f"{path}: not a NumPy file of numbers ({error})") from error
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind not in "fiu":
        raise InvalidInput(
            f"{path}: shape {array.shape}, dtype {array.dtype}; must be (participants, dimension) of numbers"
        )
    for index in range(array.shape[0]):
        yield index + 1, np.asarray(array[index], dtype=np.float64)


def _read_parquet(path: Path) -> Iterator[tuple[int, Row | str]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingExtra("reading .parquet needs pyarrow: pip install 'skelmix[parquet]'") from error
    try:
        batches: Any = parquet.ParquetFile(path).iter_batches(batch_size=1024)
        line = 0
        for batch in batches:
            if not all(
                pa.types.is_floating(kind) or pa.types.is_integer(kind) for kind in batch.schema.types
            ):
                raise InvalidInput(f"{path}: every column must hold numbers; drop or convert the others")
            columns = [column.to_numpy(zero_copy_only=False).astype(np.float64) for column in batch.columns]
            for row in np.stack(columns, axis=1):
                line += 1
                yield line, row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: not a parquet file ({error})") from error
