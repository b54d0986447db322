"""Record batches from a party's CSV or Parquet file, streamed, with the columns that a question names."""

from __future__ import annotations

import csv
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO, Any

from skelmix.datasets.missing import MISSING_TEXTS
from skelmix.errors import InvalidInput
from skelmix.statistics.arrow import NUMBER, pyarrow, without_views
from skelmix.statistics.lines import LONGEST, WholeLines, line_problem

BATCH = 1 << 17  # records in memory at a time
_PAGES = 1 << 20  # bytes of a column of a Parquet file read at a time
_CSV_BLOCK = 1 << 22  # bytes read at a time
_SHOWN = 10  # lines named to the owner
_NUMBER = re.compile(NUMBER, re.ASCII)


def batches(
    path: Path,
    columns: Collection[str],
    *,
    categories: Collection[str] = (),
    left_out: Callable[[], None] = lambda: None,
) -> Iterator[Any]:
    """The records of a .csv or .parquet file as Arrow record batches with the named columns.

    categories: columns that are used as categories only. A file that is no table, or lacks a column, raises
    `InvalidInput`; a row of a CSV with another number of cells than the header, or with quotes that do not
    match, is left out, and `left_out` is called. Values are not checked here.
    """
    pa = pyarrow()
    ending = path.suffix.lower()
    try:
        if ending == ".parquet":
            yield from _parquet(path, columns, categories)
        elif ending == ".csv":
            yield from _csv(path, columns, left_out)
        else:
            raise InvalidInput(f"{path}: the ending must be .csv or .parquet; convert or rename the file")
    except FileNotFoundError as error:
        raise InvalidInput(f"{path}: no such file; check the path") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        raise InvalidInput(f"{path}: not a readable {ending[1:]} table ({problem}); repair it") from error


def _check_columns(path: Path, present: list[str], wanted: Collection[str]) -> None:
    for name in wanted:
        if present.count(name) != 1:
            problem = "no column" if name not in present else "several columns"
            known = "".join(
                letter if letter.isprintable() else "\ufffd" for letter in ", ".join(present[:30])
            )
            if len(present) == 1 and (mark := re.search(r"[;\t|]", known)):
                known += f" (one column; cells must be separated by commas, not by {mark[0]!r})"
            raise InvalidInput(f"{path}: {problem} named {name!r}; the file has: {known}")


def _parquet(path: Path, columns: Collection[str], categories: Collection[str]) -> Iterator[Any]:
    pa = pyarrow()
    schema = pa.parquet.read_schema(path)
    _check_columns(path, schema.names, columns)
    plain = [name for name in categories if not pa.types.is_nested(schema.field(name).type)]
    with pa.parquet.ParquetFile(path, read_dictionary=plain, pre_buffer=False, buffer_size=_PAGES) as file:
        if not columns:  # only records are counted
            for group in range(file.num_row_groups):
                yield _empty_rows(file.metadata.row_group(group).num_rows)
            return
        for batch in file.iter_batches(batch_size=BATCH, columns=list(columns), use_threads=True):
            yield without_views(batch)


def _empty_rows(count: int) -> Any:
    pa = pyarrow()
    return pa.RecordBatch.from_arrays([pa.nulls(count)], names=[""])


def _csv(path: Path, columns: Collection[str], left_out: Callable[[], None]) -> Iterator[Any]:
    def skip(row: Any) -> str:
        left_out()
        return "skip"

    pa = pyarrow()
    with path.open("rb") as file:
        header = _header(path, file)
        _check_columns(path, header, columns)
        wanted = list(columns) or header[:1]
        places = [str(header.index(name)) for name in wanted]  # Arrow knows columns by their number
        for batch in _parsed(WholeLines(file, len(header), left_out), places, skip):
            yield pa.RecordBatch.from_arrays(batch.columns, names=wanted)


def _parsed(file: WholeLines, wanted: list[str], skip: Callable[[Any], str]) -> Iterator[Any]:
    pa = pyarrow()
    reader = pa.csv.open_csv(
        pa.PythonFile(file, mode="r"),
        read_options=pa.csv.ReadOptions(block_size=_CSV_BLOCK),
        parse_options=pa.csv.ParseOptions(invalid_row_handler=skip),
        convert_options=pa.csv.ConvertOptions(
            column_types={name: pa.binary() for name in wanted}, include_columns=wanted, check_utf8=False
        ),
    )
    with reader:
        yield from reader


def _header(path: Path, file: IO[bytes]) -> list[str]:
    """The names of the columns, without spaces around them; the file stands at its second line then."""
    line = file.readline(LONGEST + 1).removeprefix(BOM_UTF8)
    if b"\0" in line:
        raise InvalidInput(f"{path}: not plain text (UTF-16, or compressed?); save it as CSV in UTF-8")
    if not line.strip():
        raise InvalidInput(f"{path}: no first line with column names; add one")
    if line_problem(line):
        raise InvalidInput(
            f"{path}: the first line, of column names, cannot be read: its quotes do not match, it is very "
            "long, or lines end in a carriage return alone; export the table again"
        )
    return [name.strip() for name in _cells(line)]


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8", "replace")]), [])
    except csv.Error as error:
        raise InvalidInput(f"a line cannot be read as cells ({error}); repair it") from error


def csv_problems(path: Path, numeric: Collection[str]) -> list[str]:
    """The lines of a CSV that were not used as they stand: for the party that owns it, and nobody else.

    Rows that are left out (a wrong number of cells, quotes that do not match), and text in a column of
    numbers, which counts as missing. At most ten are listed, then how many more there are.
    """
    problems: list[str] = []
    bad = 0
    with path.open("rb") as file:
        header = _header(path, file)
        places = [header.index(name) for name in numeric]
        for number, line in enumerate(file, 2):
            problem = line_problem(line) or _row_problem(line, header, places)
            if problem:
                bad += 1
                if len(problems) < _SHOWN:
                    problems.append(f"{path}, line {number}: {problem}")
    return [*problems, f"{path}: and {bad - _SHOWN} more lines"] if bad > _SHOWN else problems


def _row_problem(line: bytes, header: list[str], numeric: list[int]) -> str | None:
    try:
        row = _cells(line)
    except InvalidInput:
        return "a very long cell; this line was not checked"
    if not row:
        return None
    if len(row) != len(header):
        return f"{len(row)} cells, the header has {len(header)}; the row was left out"
    for place in numeric:
        text = row[place].strip()
        if text.lower() not in MISSING_TEXTS and not _NUMBER.match(text):
            return f"{header[place]} = {text[:40]!r} is not a number; it counts as missing"
    return None
