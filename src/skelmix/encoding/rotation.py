"""Public random rotation x -> H·D·x and its inverse (Bao et al. 2022, Algorithm 4, line 1, and Algorithm 6,
line 2).

H is the orthonormal Walsh-Hadamard matrix in natural order, D a diagonal of random signs. The signs are
public: everybody in a round derives the same ones from the plan's seed and the round's number. A vector of
d coordinates is padded with zeros to the next power of two. The rotation keeps the L2 norm and spreads it
evenly, so that few bits a coordinate are enough.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.encoding.hadamard import BLOCK, finish, transform_block
from skelmix.encoding.threads import for_each
from skelmix.errors import InvalidInput
from skelmix.validation import whole

SEED_BYTES = 32
_AT_ONCE = 1 << 20  # coordinates that one thread rotates at a time
_CONTEXT = b"skelmix rotation signs, version 1\x00"


def padded(dimension: int) -> int:
    """The least power of two >= dimension: the length of a rotated vector."""
    whole(1, dimension=dimension)
    return 1 << (int(dimension) - 1).bit_length()


@lru_cache(maxsize=4)
def rotation_signs(seed: bytes, round: int, length: int) -> NDArray[np.int8]:
    """`length` public signs, +1 or -1 (int8, read-only): bits of SHAKE-128(context, seed, round), first bit
    lowest.

    The same arguments give the same signs on every machine. The seed must have 32 bytes; the last few
    results are kept.
    """
    if not isinstance(seed, bytes) or len(seed) != SEED_BYTES:
        raise InvalidInput(
            f"rotation seed: must be {SEED_BYTES} bytes, e.g. os.urandom({SEED_BYTES}); it is public"
        )
    whole(0, 2**64 - 1, round=round)
    whole(1, length=length)
    stream = hashlib.shake_128(_CONTEXT + seed + int(round).to_bytes(8, "little")).digest((length + 7) // 8)
    bits = np.unpackbits(np.frombuffer(stream, np.uint8), count=length, bitorder="little")
    signs = 1 - 2 * bits.astype(np.int8)
    signs.setflags(write=False)
    return signs


def rotate(
    x: NDArray[Any], seed: bytes, round: int, *, scale: float = 1.0, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """scale·H·D·x along the last axis, zero-padded to a power of two; float32 stays float32.

    x is (d,) or (participants, d), float32 or float64, and is not modified unless `out` is x itself, which
    is allowed when d is a power of two. NaN and infinity spread over the whole row; callers check
    finiteness. Nobody's rows mix. scale/√d is rounded to x's dtype once.
    """
    rows = np.ascontiguousarray(_rows(x))
    width = padded(rows.shape[1])
    result = np.empty((rows.shape[0], width), rows.dtype) if out is None else _rows(out)
    fits = result.shape == (rows.shape[0], width) and result.dtype == rows.dtype
    if not fits or (out is not None and not out.flags.c_contiguous):
        raise InvalidInput(
            f"out has shape {result.shape} and dtype {result.dtype}: must be {width} long, {rows.dtype}"
        )
    factor = rows.dtype.type(scale / math.sqrt(width))
    signs = rotation_signs(seed, round, width)
    step = max(1, _AT_ONCE // width)
    for_each(
        range(0, len(rows), step),
        lambda start: rotate_rows(rows[start : start + step], signs, factor, result[start : start + step]),
    )
    return result[0] if x.ndim == 1 else result


def unrotate(z: NDArray[Any], seed: bytes, round: int, *, dimension: int, scale: float = 1.0) -> NDArray[Any]:
    """scale·D·H·z cut to `dimension` coordinates: the inverse of `rotate` (with its scale inverted), to
    rounding error."""
    rows = _rows(z)
    if rows.shape[1] != padded(dimension):
        raise InvalidInput(
            f"z has {rows.shape[1]} coordinates: dimension {dimension} rotates to {padded(dimension)}"
        )
    work = rows.copy()
    factor = rows.dtype.type(scale / math.sqrt(rows.shape[1]))
    _transform_rows(work)
    work *= rotation_signs(seed, round, rows.shape[1]) * factor
    result = np.ascontiguousarray(work[:, :dimension])
    return result[0] if z.ndim == 1 else result


def _rows(x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype not in (np.float32, np.float64) or x.ndim not in (1, 2) or x.shape[-1] == 0:
        raise InvalidInput(
            f"x has shape {x.shape}, dtype {x.dtype}: must be (d,) or (participants, d) of float32 or float64"
        )
    return x.reshape(-1, x.shape[-1])


@njit(nogil=True, cache=True)
def _transform_rows(x: Any) -> None:
    for row in range(x.shape[0]):
        line = x[row]
        for start in range(0, line.size, BLOCK):
            transform_block(line[start : start + BLOCK])
        finish(line)


@njit(nogil=True, cache=True)
def rotate_rows(x: Any, signs: Any, factor: Any, out: Any) -> None:
    """out[i] = factor·H·(signs·x[i], zeros), H with entries ±1; x (n, d), signs (width,), out (n, width),
    factor of x's dtype."""
    dimension = x.shape[1]
    for row in range(x.shape[0]):
        source = x[row]
        line = out[row]
        for start in range(0, line.size, BLOCK):
            block = line[start : start + BLOCK]
            filled = min(max(dimension - start, 0), block.size)
            part, flips = source[start : start + filled], signs[start : start + filled]
            for j in range(part.size):
                block[j] = part[j] * (factor if flips[j] > 0 else -factor)
            block[filled:] = 0
            transform_block(block)
        finish(line)
