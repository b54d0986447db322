"""Vectors in blocks of rows: from an array, without copying it, or from an iterable of any length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.encoding.clipping import BadRow
from skelmix.errors import InvalidInput
from skelmix.validation import real_vectors

Block = tuple[int, Any]  # number of its first row, rows


@contextmanager
def counted_from(start: int) -> Iterator[None]:
    """Number a refused row among all rows: this block begins at row `start`."""
    try:
        yield
    except BadRow as refused:
        raise BadRow(start + refused.row) from None


def rows_of(vectors: Any, dimension: int, name: str = "vectors") -> tuple[NDArray[Any], bool]:
    """The checked rows, (participants, dimension), and whether they were given as one vector."""
    return real_vectors(vectors, dimension, name=name), np.ndim(vectors) == 1


def as_floats(rows: NDArray[Any]) -> NDArray[Any]:
    """Checked rows as a C-contiguous float array; integers become float64. Copies only where it must."""
    return np.ascontiguousarray(rows, np.float64 if rows.dtype.kind in "iu" else None)


def as_blocks(vectors: Any, rows: int, dimension: int, *, ahead: bool = True) -> Iterator[Block]:
    """The vectors in blocks of at most `rows` rows.

    An array is cut into about equal blocks, four or a multiple of four, to keep two or four threads busy.
    Their number does not depend on the cores, so a reproducible run gives the same result anywhere.

    What comes from an iterable is copied, since generators often refill the same array, unless each
    block is done with before the next one is asked for (not `ahead`); single vectors are put together into
    blocks.
    """
    if hasattr(vectors, "__array__"):
        array, _ = rows_of(vectors, dimension)
        count = array.shape[0]
        blocks = -(-count // rows)
        if blocks > 1:
            rows = -(-count // (4 * -(-blocks // 4)))
        for start in range(0, count, rows):
            yield start, array[start : start + rows]
        return
    if not isinstance(vectors, Iterable):
        raise InvalidInput(
            f"vectors: must be an array or an iterable of vectors, got {type(vectors).__name__}"
        )
    yield from _gathered(vectors, rows, dimension, ahead)


def _gathered(vectors: Iterable[Any], rows: int, dimension: int, ahead: bool) -> Iterator[Block]:
    start = 0
    held: list[NDArray[Any]] = []
    for item in vectors:
        array, single = rows_of(item, dimension, f"vectors[{start + len(held)}]")
        if single:
            held.append(array.copy())
        else:
            if held:
                yield start, np.concatenate(held)
                start, held = start + len(held), []
            for begin in range(0, len(array), rows):
                block = array[begin : begin + rows]
                yield start + begin, block.copy() if ahead else block
            start += len(array)
        if len(held) == rows:
            yield start, np.concatenate(held)
            start, held = start + len(held), []
    if held:
        yield start, np.concatenate(held)
