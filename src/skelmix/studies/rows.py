"""A table of measurements on disk that survives being killed: CSV, one row per setting.

Rows are appended as they are measured.

Lines that start with # say which command made the rows below them, when, and with which commit and
versions. A row whose settings are there already is not measured again.
"""

from __future__ import annotations

import csv
import io
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from skelmix.errors import CorruptState, StorageFailed
from skelmix.rounds.locks import FileLock

Value = str | int | float | None
Row = dict[str, Any]

_VERSIONS = ("skelmix", "numpy", "scipy", "numba", "python-flint", "cryptography", "torch")


def text(value: Value) -> str:
    """How a value stands in the file; None is the empty string. Floats keep every digit."""
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def value(written: str) -> Value:
    """The inverse of `text`."""
    if written == "":
        return None
    for kind in (int, float):
        try:
            return kind(written)
        except ValueError:
            pass
    return written


def versions() -> str:
    """Versions of everything that can change a number, and the machine."""
    parts = []
    for name in _VERSIONS:
        try:
            parts.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(
        [f"python {platform.python_version()}", *parts, f"{platform.system()} {platform.machine()}"]
    )


def commit(package: Path = Path(__file__).parents[1]) -> str | None:
    """Short hash of the commit that the package runs from, with `-dirty` if its files differ from it.

    None when the package is not part of a git checkout, or there is no git. Only the package's own directory
    counts: results beside it change while a study runs.
    """

    def git(*words: str) -> str:
        ran = subprocess.run(
            ["git", *words], cwd=package, capture_output=True, text=True, timeout=60, check=True
        )
        return ran.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # it may just lie inside another project's checkout
        return git("rev-parse", "--short", "HEAD") + ("-dirty" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


class ResultFile:
    """The rows of one study. Held by one process at a time; use it in a `with` block.

    settings: the columns that say what was measured, the key of a row; measures: the columns that say what
    came out. A last line that a kill cut short is dropped. A file with other columns is kept beside the new
    one, with `.old` added to its name. Raises `CorruptState` when another process writes the same file.
    """

    def __init__(self, path: Path, settings: Sequence[str], measures: Sequence[str]) -> None:
        self.path, self.settings = path, tuple(settings)
        self.columns = self.settings + tuple(measures)
        self.rows: dict[tuple[str, ...], Row] = {}

    def __enter__(self) -> ResultFile:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        except StorageFailed:
            raise
        except OSError as error:
            raise StorageFailed(
                f"{self.path} cannot be written ({error}): choose another --output"
            ) from error
        first, self.rows = read(self.path, self.settings)
        if first and first != self.columns:
            os.replace(self.path, self.path.with_name(self.path.name + ".old"))
            self._close()
            self._open()
            self.rows, first = {}, ()
        self._drop_torn_line()
        self._empty = not first
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._close()

    def announce(self, command: str) -> None:
        """Write which command the following rows come from, and the column names when the file is new."""
        self._head(command, commit(), versions())

    def announce_copies(self, command: str, measured_by: str | None, source: Path) -> None:
        """Write that the following rows were measured by a commit in another file, `source`."""
        self._head(command, measured_by, f"copied from {source.name}")

    def append(self, row: Row) -> None:
        """Add one row, whole or not at all, and on disk when this returns."""
        self._write(_line([text(row.get(column)) for column in self.columns]))
        self.rows[key(row, self.settings)] = {column: row.get(column) for column in self.columns}

    def _head(self, command: str, measured_by: str | None, how: str) -> None:
        when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        origin = f"commit {measured_by}; " if measured_by else ""
        columns = _line(self.columns) if self._empty else ""
        self._write(f"# {command}\n# {when}; {origin}{how}\n{columns}")
        self._empty = False

    def _open(self) -> None:
        self._lock = FileLock(self.path)
        self._file = io.FileIO(self.path, "a+")

    def _close(self) -> None:
        self._file.close()
        self._lock.close()

    def _drop_torn_line(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        self._file.truncate(content.rfind(b"\n") + 1)

    def _write(self, lines: str) -> None:
        data = lines.encode()
        try:
            if self._file.write(data) != len(data):
                raise OSError("the disk took only part of a row")
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageFailed(
                f"{self.path} could not be written ({error}): free space, then run the command again; "
                "rows written before are kept"
            ) from error


def key(row: Row, settings: Iterable[str]) -> tuple[str, ...]:
    """What identifies a row: its settings, as written."""
    return tuple(text(row.get(column)) for column in settings)


def read(path: Path, settings: Sequence[str]) -> tuple[tuple[str, ...], dict[tuple[str, ...], Row]]:
    """The column names and the rows by key of a result file; ((), {}) without one.

    A torn last line is left out; of equal keys the last counts.
    """
    if not path.exists():
        return (), {}
    try:
        whole = path.read_text(encoding="utf-8")
        whole = whole[: whole.rfind("\n") + 1]
        lines = csv.reader(line for line in whole.splitlines() if line and not line.startswith("#"))
        columns = tuple(next(lines, ()))
        rows = [
            dict(zip(columns, map(value, line), strict=True)) for line in lines if len(line) == len(columns)
        ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise CorruptState(f"{path} is damaged or not a table of results ({error}): move it away") from error
    return columns, {key(row, settings): row for row in rows}


def commits_of(path: Path, settings: Sequence[str]) -> dict[tuple[str, ...], str | None]:
    """The commit that measured each row, by the row's key; None where the file does not say."""
    commits: dict[tuple[str, ...], str | None] = {}
    columns: list[str] = []
    measured_by: str | None = None
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# skelmix"):
            measured_by = None
        elif line.startswith("#"):
            named = re.search(r"; commit (\S+);", line)
            measured_by = named[1] if named else None
        elif line:
            cells = next(csv.reader([line]))
            if not columns:
                columns = cells
            elif len(cells) == len(columns):
                row = dict(zip(columns, map(value, cells), strict=True))
                commits[key(row, settings)] = measured_by
    return commits


def _line(cells: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()
