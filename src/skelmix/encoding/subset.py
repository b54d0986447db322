"""A public random subset of the rotated coordinates, fresh in each round, and its inverse.

After the rotation every coordinate carries the same share of a vector's length, so a participant may send
`keep` of them and the aggregator puts length/keep times their sum back in place, with zeros elsewhere:
unbiased over the random choice. Everybody in a round derives the same subset from the plan's seed and the
round's number, as they do the signs of the rotation.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.encoding.rotation import public_bytes, rotate_rows, rotation_factor, rotation_signs
from skelmix.errors import InvalidInput
from skelmix.noise.scratch_memory import scratch
from skelmix.validation import whole

_CONTEXT = b"skelmix kept coordinates, version 1\x00"
_CHUNK = 1 << 16  # words of one stream
_LONG = 1 << 18  # of longer subsets only the last one is kept


def choose(seed: bytes, round: int, length: int, keep: int) -> NDArray[np.int32]:
    """The `keep` coordinates of 0..length-1 that are sent in this round, sorted (int32, read-only).

    Every subset of that size is equally likely.

    The stream is SHAKE-128(context, chunk number in 8 bytes, seed, round), chunk after chunk of 65,536
    little-endian 32-bit words. The lower ⌈log2 length⌉ bits of a word are a coordinate; coordinates beyond
    the length and repeated ones are skipped until `keep` are found; or, if that is more than half of them,
    until those that are *not* sent are found. The same arguments give the same subset on every machine. The
    seed must have 32 bytes; the last few results are kept.
    """
    whole(1, 2**31 - 1, length=length)
    whole(1, int(length), keep=keep)
    return (_last if keep > _LONG else _recent)(seed, round, int(length), int(keep))


def _subset(seed: bytes, round: int, length: int, keep: int) -> NDArray[np.int32]:
    inverted = 2 * keep > length
    wanted = length - keep if inverted else keep
    mask = (1 << (length - 1).bit_length()) - 1
    marks = np.zeros((length + 7) // 8, np.uint8)
    chunk, used, marked = 0, 0, 0
    while marked < wanted:
        # about as many words as it takes, and a few more: what is read does not change what is chosen
        expected = (mask + 1) * math.log((length - marked) / (length - wanted))
        count = min(_CHUNK, used + 64 + int(1.02 * expected))
        stream = public_bytes(_CONTEXT + chunk.to_bytes(8, "little"), seed, round, 4 * count)
        words = np.frombuffer(stream, "<u4").astype(np.uint32, copy=False)
        marked = _mark(words[used:], np.uint32(mask), length, wanted, marked, marks)
        chunk, used = (chunk + 1, 0) if count == _CHUNK else (chunk, count)
    places = np.empty(keep, np.int32)
    _list(marks, inverted, places)
    places.setflags(write=False)
    return places


_recent = lru_cache(maxsize=4)(_subset)
_last = lru_cache(maxsize=1)(_subset)


def rotate_and_gather(
    rows: NDArray[Any], seed: bytes, round: int, *, scale: float, length: int, out: NDArray[Any]
) -> None:
    """out = scale·H·D·rows at the coordinates of this round, as many as `out` is wide.

    rows is a C-contiguous (n, d) array of float32 or float64, d padded to `length`; out (n, keep) of the same
    dtype. One row is rotated at a time.
    """
    places = choose(seed, round, length, out.shape[1])
    signs, factor = rotation_signs(seed, round, length), rotation_factor(scale, length, rows.dtype)
    with scratch((1, length), rows.dtype) as turned:
        _rotate_and_gather(rows, signs, factor, turned, places, out)


def scatter(z: NDArray[np.float64], seed: bytes, round: int, *, length: int) -> NDArray[np.float64]:
    """The inverse of the choice, on average over subsets: length/keep·z in place, zero elsewhere.

    z is (keep,), at the coordinates of this round; the result is float64 (length,).
    """
    if z.ndim != 1 or not 1 <= z.size <= length:
        raise InvalidInput(f"z has shape {z.shape}: must be (keep,) with keep in 1..{length}")
    full = np.zeros(length)
    full[choose(seed, round, length, z.size)] = z * (length / z.size)
    return full


@njit(nogil=True, cache=True)
def _rotate_and_gather(rows: Any, signs: Any, factor: Any, turned: Any, places: Any, out: Any) -> None:
    for row in range(rows.shape[0]):
        rotate_rows(rows[row : row + 1], signs, factor, turned)
        gather_line(turned[0], places, out[row])


@njit(nogil=True, cache=True)
def gather_line(line: Any, places: Any, out: Any) -> None:
    """out = line[places], all one-dimensional."""
    for j in range(places.size):
        out[j] = line[places[j]]


@njit(nogil=True, cache=True)
def _mark(words: Any, mask: Any, length: int, wanted: int, marked: int, marks: Any) -> int:
    """Mark the coordinates that the words name, one bit each, until `wanted` are marked.

    Returns how many are marked.
    """
    for word in words:
        if marked == wanted:
            break
        place = np.int64(word & mask)
        bit = np.uint8(1 << (place & 7))
        if place < length and not marks[place >> 3] & bit:
            marks[place >> 3] |= bit
            marked += 1
    return marked


@njit(nogil=True, cache=True)
def _list(marks: Any, inverted: bool, places: Any) -> None:
    """The marked coordinates in order, or the unmarked ones; as many as `places` holds.

    Without a branch on a mark, which the processor would guess wrong at nearly every mark.
    """
    flip = np.uint8(255 if inverted else 0)
    place, count = 0, 0
    while count < places.size:
        places[count] = place
        count += ((marks[place >> 3] ^ flip) >> np.uint8(place & 7)) & 1
        place += 1
