"""Integers modulo m = 2^bits and back, and their packed form on the wire.

Bao et al. 2022, Algorithm 4, line 11, and Algorithm 6, line 1.

Wrapping is exact for every integer, negative and out of range ones too. It loses information only when a
*sum* leaves [-m/2, m/2): then that coordinate comes back off by a multiple of m.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.validation import bits as check_bits
from skelmix.validation import whole

_TILE = 1 << 12  # columns whose sums stay in the first-level cache


@njit(nogil=True, cache=True)
def add_rows(rows: Any, total: Any) -> None:
    """total (d,) += every row of rows (n, d), integers, in the dtype of `total`."""
    for left in range(0, total.size, _TILE):
        sums = total[left : left + _TILE]
        for row in range(rows.shape[0]):
            line = rows[row, left : left + _TILE]
            for i in range(sums.size):
                sums[i] += line[i]


def wire_dtype(bits: int) -> np.dtype[Any]:
    """The smallest unsigned dtype that holds 0..2^bits - 1, bits in 1..32."""
    check_bits(bits)
    return np.dtype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)


def wrap(x: NDArray[Any], bits: int) -> NDArray[Any]:
    """The integers x mod 2^bits, in 0..2^bits - 1.

    Any integer dtype and shape is accepted; the result has the smallest unsigned dtype. x is not modified.
    """
    dtype = wire_dtype(bits)
    _integers(x)
    wrapped = x.astype(dtype)  # an integer cast keeps the low bits: x modulo a power of two that m divides
    if bits != 8 * dtype.itemsize:
        wrapped &= dtype.type((1 << bits) - 1)
    return wrapped


def unwrap(z: NDArray[Any], bits: int) -> NDArray[np.int32]:
    """The representative of z mod 2^bits in [-2^(bits-1), 2^(bits-1)), int32: m/2..m-1 become negative."""
    wrapped = wrap(z, bits)
    shift = 32 - bits
    # move the top bit of the b-bit number to the sign bit, then shift back arithmetically
    return (wrapped.astype(np.uint32) << np.uint32(shift)).view(np.int32) >> np.int32(shift)


def wrapped_coordinates(sums: NDArray[Any], bits: int) -> int:
    """How many integer sums are changed by wrapping: those outside [-2^(bits-1), 2^(bits-1))."""
    check_bits(bits)
    half = 1 << (bits - 1)
    return int(np.count_nonzero((sums < -half) | (sums >= half)))


def pack(z: NDArray[Any], bits: int) -> bytes:
    """The integers z, taken modulo 2^bits, as packed bits end to end, lowest first.

    The result has ⌈z.size·bits/8⌉ bytes; padding bits are zero.
    """
    wrapped = wrap(np.ascontiguousarray(z).reshape(-1), bits)
    if bits == 8 * wrapped.itemsize:
        return wrapped.astype(wrapped.dtype.newbyteorder("<"), copy=False).tobytes()
    out = np.zeros((wrapped.size * bits + 7) // 8, np.uint8)
    _pack(wrapped, bits, out)
    return out.tobytes()


def unpack(data: bytes, count: int, bits: int) -> NDArray[Any]:
    """The `count` integers that `pack` wrote, in the smallest unsigned dtype.

    A wrong length or nonzero padding raises `InvalidInput`.
    """
    dtype = wire_dtype(bits)
    whole(0, count=count)
    need = (count * bits + 7) // 8
    if len(data) != need:
        raise InvalidInput(f"packed data has {len(data)} bytes: {count} integers of {bits} bits need {need}")
    raw = np.frombuffer(data, np.uint8)
    if bits == 8 * dtype.itemsize:
        return raw.view(dtype.newbyteorder("<")).astype(dtype)
    out = np.empty(count, dtype)
    if _unpack(raw, bits, out):
        raise InvalidInput("packed data has nonzero padding bits: it was not written by pack")
    return out


def _integers(x: NDArray[Any]) -> None:
    if x.dtype.kind not in "iu":
        raise InvalidInput(f"x has dtype {x.dtype}: only integers can be wrapped; round first")


@njit(nogil=True, cache=True)
def _pack(z: Any, bits: int, out: Any) -> None:
    pool = np.uint64(0)
    held = 0
    place = 0
    for value in z:
        pool |= np.uint64(value) << np.uint64(held)
        held += bits
        while held >= 8:
            out[place] = np.uint8(pool & np.uint64(255))
            pool >>= np.uint64(8)
            held -= 8
            place += 1
    if held > 0:
        out[place] = np.uint8(pool)


@njit(nogil=True, cache=True)
def _unpack(data: Any, bits: int, out: Any) -> bool:
    """Unpack into `out`; returns whether any padding bit is nonzero."""
    pool = np.uint64(0)
    held = 0
    place = 0
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    for i in range(out.size):
        while held < bits:
            pool |= np.uint64(data[place]) << np.uint64(held)
            held += 8
            place += 1
        out[i] = pool & mask
        pool >>= np.uint64(bits)
        held -= bits
    return pool != np.uint64(0)
