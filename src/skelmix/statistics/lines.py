"""The lines of a CSV file, read one by one, so that an unclosed quote cannot swallow the next record.

A record is one line. A line whose quotes do not match, or that is longer than a megabyte, is left out before
the table is parsed, so no record can change how another one is read. (A value with a line break in it is two
such lines.) Arrow leaves out lines with another number of cells than the header, but gives up the whole file
where such a line is not UTF-8: those are left out here, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import IO

LONGEST = 1 << 20  # bytes of one line
_BLOCK = 1 << 22  # bytes read at a time
_CELL = rb'(?:[^",\r]*|"(?:[^"\r]|"")*")'
_QUOTED = re.compile(rb'"[^"]*"')
_LINE = re.compile(rb"%b(?:,%b)*\r?\n?" % (_CELL, _CELL))


def line_problem(line: bytes) -> str | None:
    """Why a line cannot be a record, or None."""
    if len(line) > LONGEST:
        return f"longer than {LONGEST} bytes; the row was left out"
    if (b'"' in line or b"\r" in line) and not _LINE.fullmatch(line):
        return "quotes that do not match, or a line break inside a value; the row was left out"
    return None


def _count_cells(line: bytes) -> int:
    """The number of cells in a line whose quotes match."""
    return _QUOTED.sub(b"", line).count(b",") + 1


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class WholeLines:
    """Reads a file as bytes without the lines that cannot be records; `left_out` is called when some are.

    The file stands behind its header, which has `cells` cells. In its place columns are called 0, 1, 2, …
    """

    def __init__(self, file: IO[bytes], cells: int, left_out: Callable[[], None]) -> None:
        self._file, self._cells, self._left_out = file, cells, left_out
        self._blocks = self._good_blocks()
        self._rest = b",".join(b"%d" % place for place in range(cells)) + b"\n"
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes (all that is left when negative), none at the end."""
        while size < 0 or not self._rest:
            block = next(self._blocks, None)
            if block is None:
                break
            self._rest += block
        part = self._rest if size < 0 else self._rest[:size]
        self._rest = self._rest[len(part) :]
        return part

    def close(self) -> None:
        self._file.close()
        self.closed = True

    def readable(self) -> bool:
        return True

    def _good_blocks(self) -> Iterator[bytes]:
        tail = b""
        while block := self._file.read(_BLOCK):
            end = block.rfind(b"\n") + 1
            if not end:  # in the middle of a long line: keep only enough of it to see that it is too long
                tail += block if len(tail) <= LONGEST else b""
                continue
            piece, tail = tail + block[:end], block[end:]
            yield self._good(piece)
        if tail:
            yield self._good(tail)

    def _good(self, piece: bytes) -> bytes:
        lines = piece.split(b"\n")  # fast, and what a record is: other line breaks are part of a value
        plain = b'"' not in piece and b"\r" not in piece and _is_utf8(piece)
        if plain and max(map(len, lines)) < LONGEST:
            return piece
        lines = [line + b"\n" for line in lines[:-1]] + lines[-1:]
        good = [line for line in lines if self._is_good(line)]
        if len(good) < len(lines):
            self._left_out()
        return b"".join(good)

    def _is_good(self, line: bytes) -> bool:
        if line_problem(line) is not None:
            return False
        return line.isascii() or _is_utf8(line) or _count_cells(line) == self._cells
