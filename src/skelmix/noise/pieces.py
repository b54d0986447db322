"""Skellam noise expanded from a seed: whoever drew the seed adds it, whoever gets the seed can remove it.

VERSION 1. A seed of 32 bytes and a rate r give as many independent draws of Sk(r, r) as there are
coordinates, exactly, on every machine. They are made in segments of 2^16 coordinates. Segment g (0, 1, …)
is made from AES-256-CTR under the seed, read in order from the counter block g·2^64 on: one little-endian
16-bit word per coordinate; then 64 bits, of which the upper 48 count, for each coordinate that its word
leaves open, in order; then 64 bits at a time for each coordinate that is open even then, in order
(`noise.table` says how the draw follows from them).

A change to any of this is a new version: two sides that expand a seed differently leave noise in the sum.
Drawing the few events of a small rate in place of all coordinates was measured: it gains at most a third.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numba import njit

from skelmix.arrays import WordArray
from skelmix.errors import InvalidInput
from skelmix.noise.entropy import SeedExpansion
from skelmix.noise.laws import Skellam
from skelmix.noise.scratch_memory import scratch
from skelmix.noise.table import buffers_for, sampler

VERSION = 1
SEGMENT = 1 << 16  # coordinates per stream of a seed; part of what both sides must agree on
LARGEST_RATE = 10**8
"""The largest rate of a piece: that of the largest exact table."""

Piece = tuple[bytes, Fraction]
"""seed, rate"""


def add_pieces(words: WordArray, pieces: Iterable[Piece], *, remove: bool = False) -> None:
    """Add the noise of all pieces to the words, in place, modulo the word size; `remove` undoes it.

    words: one-dimensional, contiguous, unsigned. Rates: positive, at most 10^8. The result depends on nothing
    else: not on the machine, its threads, or the width of the words.
    """
    if words.dtype.kind != "u" or words.ndim != 1 or not words.flags.c_contiguous:
        raise InvalidInput("words: must be a one-dimensional, contiguous, unsigned array")
    size = min(SEGMENT, words.size)
    with buffers_for(size) as buffers, scratch(size, np.int32) as room:
        for seed, rate in pieces:
            draws = sampler(Skellam(rate))
            for number, start in enumerate(range(0, words.size, SEGMENT)):
                segment = words[start : start + SEGMENT]
                noise = room.view(draws.dtype)[: segment.size]
                draws.fill(noise, buffers, SeedExpansion(seed, number.to_bytes(8, "big") + bytes(8)))
                _add(segment, noise, remove)


@njit(cache=True, nogil=True)
def _add(words: Any, noise: Any, remove: bool) -> None:
    sign = -1 if remove else 1
    for i in range(words.size):
        words[i] += sign * noise[i]
