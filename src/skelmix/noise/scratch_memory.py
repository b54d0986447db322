"""Working memory that is reused: fetching fresh pages costs more than the arithmetic done on them."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_MOST_KEPT = 1 << 26  # bytes, all buffers together
_kept: list[NDArray[np.uint8]] = []  # the latest last
_lock = threading.Lock()


def _forget() -> None:
    """Replace the lock in a forked child, where another thread of the parent may hold it for ever."""
    global _kept, _lock
    _kept, _lock = [], threading.Lock()


os.register_at_fork(after_in_child=_forget)


@contextmanager
def scratch(shape: int | tuple[int, ...], dtype: DTypeLike) -> Iterator[NDArray[Any]]:
    """An uninitialised C-contiguous array, the caller's own until the block ends and nobody's afterwards."""
    kind = np.dtype(dtype)
    size = kind.itemsize * (shape if isinstance(shape, int) else math.prod(shape))
    if size == 0:
        yield np.empty(shape, kind)
        return
    buffer = _take(size)
    try:
        yield buffer[:size].view(kind).reshape(shape)
    finally:
        with _lock:
            _kept.append(buffer)
            while sum(other.size for other in _kept) > _MOST_KEPT:
                _kept.pop(0)


def _take(size: int) -> NDArray[np.uint8]:
    """The smallest kept buffer that is large enough and less than half empty, else a new one."""
    with _lock:
        fitting = [place for place, buffer in enumerate(_kept) if size <= buffer.size <= 2 * size]
        if fitting:
            return _kept.pop(min(fitting, key=lambda place: _kept[place].size))
    return np.empty(size, np.uint8)
