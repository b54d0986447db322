"""Public random rotation x -> H·D·x and its inverse.

Bao et al. 2022, Algorithm 4, line 1, and Algorithm 6, line 2.

H is a symmetric Hadamard matrix (`hadamard`) divided by the root of its order, D a diagonal of random signs.
The signs are public: everybody in a round derives the same ones from the plan's seed and the round's number.
A vector of d coordinates is padded with zeros to the next available length: 1, 1.25, 1.5 or 1.75 times a
power of two. The rotation keeps the L2 norm and spreads it evenly, so few bits per coordinate are enough.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.encoding.hadamard import finish, layout, transform_block
from skelmix.encoding.threads import for_each
from skelmix.errors import InvalidInput
from skelmix.validation import whole

SEED_BYTES = 32
_AT_ONCE = 1 << 20  # coordinates that one thread rotates at a time
_CONTEXT = b"skelmix rotation signs, version 1\x00"


@lru_cache(maxsize=256, typed=True)  # every encode asks several times; 4.0 is not 4, and refused
def padded(dimension: int) -> int:
    """The length of a rotated vector: the least available length >= dimension.

    Available are 2^j and 12, 20 or 28 times 2^j. The result is at most 25 % longer from 10 on (9 becomes 12),
    about 9 % on average. None takes more than two and a half times as long as the next power of two.

    Example:

        >>> [padded(d) for d in (3, 5, 9, 17, 1000, 63_610, 10_000_000)]
        [4, 8, 12, 20, 1024, 65536, 10485760]
    """
    whole(1, dimension=dimension)
    power = 1 << (int(dimension) - 1).bit_length()
    lengths = (order * power // unit for order, unit in ((20, 32), (12, 16), (28, 32)) if power >= unit)
    return next((length for length in lengths if length >= dimension), power)


def rotation_signs(seed: bytes, round: int, length: int) -> NDArray[np.int8]:
    """Public random signs, `length` of them, +1 or -1 (int8, read-only).

    They are the bits of SHAKE-128(context, seed, round), first bit lowest.

    The same arguments give the same signs on every machine. The seed must have 32 bytes; the last few
    results are kept, or the last one when they are long.
    """
    return (_last_signs if length > _AT_ONCE else _recent_signs)(seed, round, length)


def public_bytes(context: bytes, seed: bytes, round: int, count: int) -> bytes:
    """The first `count` bytes of SHAKE-128(context, seed, round).

    Everybody in a round derives them from the plan's public seed (32 bytes).
    """
    if not isinstance(seed, bytes) or len(seed) != SEED_BYTES:
        raise InvalidInput(
            f"rotation seed: must be {SEED_BYTES} bytes, e.g. os.urandom({SEED_BYTES}); it is public"
        )
    whole(0, 2**64 - 1, round=round)
    return hashlib.shake_128(context + seed + int(round).to_bytes(8, "little")).digest(count)


def _signs(seed: bytes, round: int, length: int) -> NDArray[np.int8]:
    whole(1, length=length)
    stream = public_bytes(_CONTEXT, seed, round, (length + 7) // 8)
    bits = np.unpackbits(np.frombuffer(stream, np.uint8), count=length, bitorder="little")
    signs = bits.view(np.int8)
    signs *= -2
    signs += 1
    signs.setflags(write=False)
    return signs


_recent_signs = lru_cache(maxsize=4)(_signs)
_last_signs = lru_cache(maxsize=1)(_signs)


def rotation_factor(scale: float, length: int, dtype: np.dtype[Any]) -> Any:
    """scale/√length, rounded to the dtype: what a transform with entries ±1 is multiplied by."""
    return dtype.type(scale / math.sqrt(length))


def rotate(
    x: NDArray[Any], seed: bytes, round: int, *, scale: float = 1.0, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """scale·H·D·x along the last axis, zero-padded to the next length (`padded`); float32 stays float32.

    x is (d,) or (participants, d), float32 or float64, and is not modified unless `out` is x itself, which
    is allowed when d is such a length. NaN and infinity spread over the whole row; callers check
    finiteness. Nobody's rows mix. scale/√length is rounded to x's dtype once.
    """
    rows = np.ascontiguousarray(_rows(x))
    width = padded(rows.shape[1])
    result = np.empty((rows.shape[0], width), rows.dtype) if out is None else _rows(out)
    _check_out(result, out, rows, width)
    factor = rotation_factor(scale, width, rows.dtype)
    _rotate_all(rows, rotation_signs(seed, round, width), factor, result)
    return result[0] if x.ndim == 1 else result


def unrotate(z: NDArray[Any], seed: bytes, round: int, *, dimension: int, scale: float = 1.0) -> NDArray[Any]:
    """The inverse of `rotate`, up to rounding error: scale·D·H·z cut to `dimension` coordinates.

    Pass the inverse of the scale that `rotate` was given.
    """
    rows = _rows(z)
    if rows.shape[1] != padded(dimension):
        raise InvalidInput(
            f"z has {rows.shape[1]} coordinates: dimension {dimension} rotates to {padded(dimension)}"
        )
    work = rows.copy()
    factor = rotation_factor(scale, rows.shape[1], rows.dtype)
    _transform_rows(work)
    work *= rotation_signs(seed, round, rows.shape[1]) * factor
    result = np.ascontiguousarray(work[:, :dimension])
    return result[0] if z.ndim == 1 else result


def rotate_integers(
    y: NDArray[np.int64], seed: bytes, round: int, *, out: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The rotation in exact integers, before its factor: √length·H·D·y along the last axis.

    It serves fixed-point numbers.

    y is int64, (d,) or (records, d), and is not modified; the result is int64, zero-padded to the next length
    (`padded`), in `out` if that is given: C-contiguous, (records, length), not overlapping y. Sums wrap
    around: the result is exact modulo 2^64 whatever the input, and exact where Σ|y_j| < 2^63 in a row. It is
    linear: rotating a sum gives the sum of the rotated rows.

    Example:

        >>> seed = bytes(32)
        >>> y = rotate_integers(np.array([3, 0, 0, -1]), seed, 0)
        >>> int((y * y).sum())  # length·Σy²
        40
    """
    array = np.asarray(y)
    if array.dtype != np.int64 or array.ndim not in (1, 2) or array.shape[-1] == 0:
        raise InvalidInput(
            f"y has shape {array.shape}, dtype {array.dtype}: must be (d,) or (records, d) of int64"
        )
    rows = np.ascontiguousarray(array.reshape(-1, array.shape[-1]))
    width = padded(rows.shape[1])
    result = np.empty((rows.shape[0], width), np.int64) if out is None else out.reshape(-1, out.shape[-1])
    _check_out(result, out, rows, width)
    _rotate_all(rows, rotation_signs(seed, round, width), np.int64(1), result)
    return result[0] if array.ndim == 1 else result


def _check_out(result: NDArray[Any], out: NDArray[Any] | None, rows: NDArray[Any], width: int) -> None:
    fits = result.shape == (rows.shape[0], width) and result.dtype == rows.dtype
    if not fits or (out is not None and not out.flags.c_contiguous):
        raise InvalidInput(
            f"out has shape {result.shape} and dtype {result.dtype}: must be {width} long, {rows.dtype}, "
            "C-contiguous"
        )


def _rotate_all(rows: NDArray[Any], signs: NDArray[np.int8], factor: Any, out: NDArray[Any]) -> None:
    step = max(1, _AT_ONCE // out.shape[1])
    for_each(
        range(0, len(rows), step),
        lambda start: rotate_rows(rows[start : start + step], signs, factor, out[start : start + step]),
    )


def _rows(x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype not in (np.float32, np.float64) or x.ndim not in (1, 2) or x.shape[-1] == 0:
        raise InvalidInput(
            f"x has shape {x.shape}, dtype {x.dtype}: must be (d,) or (participants, d) of float32 or float64"
        )
    return x.reshape(-1, x.shape[-1])


@njit(nogil=True, cache=True)
def _transform_rows(x: Any) -> None:
    order, step, size = layout(x.shape[1])
    for row in range(x.shape[0]):
        line = x[row]
        for start in range(0, line.size, size):
            transform_block(line[start : start + size], order, step)
        finish(line, size)


@njit(nogil=True, cache=True)
def rotate_rows(x: Any, signs: Any, factor: Any, out: Any) -> None:
    """Compute out[i] = factor·H·(signs·x[i], zeros), H with entries ±1.

    x (n, d), signs (width,), out (n, width), factor of x's dtype.
    """
    dimension = x.shape[1]
    order, step, size = layout(out.shape[1])
    for row in range(x.shape[0]):
        source = x[row]
        line = out[row]
        for start in range(0, line.size, size):
            block = line[start : start + size]
            filled = min(max(dimension - start, 0), block.size)
            part, flips = source[start : start + filled], signs[start : start + filled]
            for j in range(part.size):
                block[j] = part[j] * (factor if flips[j] > 0 else -factor)
            block[filled:] = 0
            transform_block(block, order, step)
        finish(line, size)
