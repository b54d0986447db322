"""A user's .csv, .npy or .parquet file as lines of cells, with the columns that were asked for."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput, MissingExtra
from skelmix.wording import counted

#: what a line holds: numbers, the text of a CSV's cells, or what is wrong with the whole line
Line = NDArray[np.float64] | list[str] | str

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def open_table(path: Path, header: bool, columns: str | None) -> Table:
    """The table in a file, by the ending of its name; see `open_rows` for the arguments."""
    if path.is_dir():
        raise InvalidInput(f"{path}: is a directory; name a file in it")
    if not path.is_file():
        raise InvalidInput(f"{path}: no such file; give the path of a .npy, .csv or .parquet file")
    ending = path.suffix.lower()
    if ending not in (".npy", ".csv", ".parquet"):
        raise InvalidInput(f"{path}: the ending must be .npy, .csv or .parquet")
    if ending == ".csv":
        return _Csv(path, header, columns)
    return _Npy(path, columns) if ending == ".npy" else _Parquet(path, columns)


class Table:
    """Lines of a file, read anew by each iteration.

    names: of the columns that are taken, where the file has names. named_by: the line that holds them, 0 when
    it is none.
    """

    named_by = 0

    def __init__(self, path: Path, known: Sequence[str] | None, columns: str | None) -> None:
        self.path, self.names = path, None if known is None else tuple(known)
        self.places: list[int] | None = None
        if columns is not None:
            self.places = _places(path, known, columns)
            self.names = tuple(known[place] for place in self.places) if known else None

    def __iter__(self) -> Iterator[tuple[int, Line]]:
        raise NotImplementedError

    def column(self, place: int) -> str:
        """A selected column in words: its number in the file, from 1, and its name."""
        number = 1 + (place if self.places is None else self.places[place])
        return f"column {number}" + (f" ({self.names[place]})" if self.names else "")


def _places(path: Path, known: Sequence[str] | None, columns: str) -> list[int]:
    """Where the named columns stand."""
    if known is None:
        raise InvalidInput(
            f"--columns: the columns of {path} have no names; leave it out, or use a .csv or .parquet file"
        )
    wanted = [name.strip() for name in next(csv.reader([columns]), [])]
    if not wanted or len(set(wanted)) < len(wanted):
        raise InvalidInput(f"--columns {columns}: name each column once, with commas between the names")
    if not known:
        raise InvalidInput(f"{path}: is empty; nothing was released")
    for name in wanted:
        if known.count(name) != 1:
            how_many = "more than one column" if name in known else "no column"
            near = get_close_matches(name, known, 1) if name not in known else []
            hint = f" Did you mean {near[0]!r}?" if near else ""
            if any("\ufffd" in other for other in known):  # as undecodable letters are read
                hint = " Its names are not in UTF-8: save the file as CSV in UTF-8."
            raise InvalidInput(f"{path}: has {how_many} {name!r}.{hint} It has {few(known)}")
    return [known.index(name) for name in wanted]


def few(words: Sequence[str]) -> str:
    """The first few words, and whether there are more."""
    return ", ".join(words[:8]) + (", …" if len(words) > 8 else "")


class _Csv(Table):
    def __init__(self, path: Path, header: bool, columns: str | None) -> None:
        first = next(_records(path), (0, []))[1]
        if any("\0" in cell for cell in first):
            raise InvalidInput(
                f"{path}: not plain text (UTF-16, or compressed?); save it as CSV in UTF-8. Nothing was "
                "released"
            )
        self.named_by, self._width = int(header or columns is not None), len(first)
        _check_separator(path, first, whole=bool(self.named_by))
        super().__init__(path, [name.strip() for name in first] if self.named_by else None, columns)

    def __iter__(self) -> Iterator[tuple[int, Line]]:
        records = _records(self.path)
        if self.named_by:
            next(records, None)
        for line, cells in records:
            if not cells:
                yield line, "is empty"
            elif len(cells) != self._width:
                yield line, f"has {counted(len(cells), 'cell')}, but line 1 has {self._width}"
            else:
                yield line, cells if self.places is None else [cells[place] for place in self.places]


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of a CSV."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file)
        try:
            for cells in reader:
                yield reader.line_num, cells
        except csv.Error as error:
            raise InvalidInput(f"{path}: not a table of numbers ({error}); nothing was released") from error


def _check_separator(path: Path, cells: list[str], *, whole: bool) -> None:
    """Refuse separators other than commas. whole: a line of names, in which a name may hold one."""
    for separator, name in _SEPARATORS.items():
        if any(separator in cell for cell in cells) and (len(cells) == 1 or not whole):
            raise InvalidInput(
                f"{path}: cells are separated by {name}; save the file with commas between cells, and points "
                "in decimals. Nothing was released"
            )


class _Npy(Table):
    def __init__(self, path: Path, columns: str | None) -> None:
        super().__init__(path, None, columns)

    def __iter__(self) -> Iterator[tuple[int, Line]]:
        try:
            array = np.lib.format.open_memmap(self.path, mode="r")
        except Exception as error:  # a hostile header may fail anywhere in NumPy's parser, in any way
            raise InvalidInput(f"{self.path}: not a NumPy file of numbers ({error})") from error
        if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind not in "fiu":
            raise InvalidInput(
                f"{self.path}: shape {array.shape}, dtype {array.dtype}; must be numbers, "
                "(participants, dimension)"
            )
        for index in range(array.shape[0]):
            yield index + 1, np.asarray(array[index], dtype=np.float64)


class _Parquet(Table):
    def __init__(self, path: Path, columns: str | None) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as parquet
        except ImportError as error:
            raise MissingExtra("reading .parquet needs pyarrow: pip install 'skelmix[parquet]'") from error
        self._failures = (pa.ArrowException, OSError, UnicodeDecodeError)
        try:
            self._file: Any = parquet.ParquetFile(path)
            schema = self._file.schema_arrow
        except self._failures as error:
            raise InvalidInput(f"{path}: not a parquet file ({error})") from error
        if not schema.names:
            raise InvalidInput(f"{path}: has no columns")
        super().__init__(path, schema.names, columns)
        able = {
            name
            for name, kind in zip(schema.names, schema.types, strict=True)
            if pa.types.is_floating(kind) or pa.types.is_integer(kind)
        }
        if other := [name for name in self.names or () if name not in able]:
            raise InvalidInput(
                f"{path}: {few(other)} {'holds' if len(other) == 1 else 'hold'} no numbers; choose columns "
                "that do, with --columns"
            )

    def __iter__(self) -> Iterator[tuple[int, Line]]:
        line = 0
        try:
            for batch in self._file.iter_batches(batch_size=1024):
                selected = [batch.column(place) for place in self.places or range(batch.num_columns)]
                columns = [column.to_numpy(zero_copy_only=False).astype(np.float64) for column in selected]
                for row in np.stack(columns, axis=1):
                    line += 1
                    yield line, row
        except self._failures as error:
            raise InvalidInput(f"{self.path}: not a parquet file ({error})") from error
