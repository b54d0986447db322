"""Records as fixed-point integers, so that a silo's sum is exact.

Record-level privacy compares two silos that differ by one record. Sums of floats could then differ by more
than that record, since each addition rounds. So a record's vector g becomes integers in units of 2^-f: scaled
by γ/√D·2^f and rounded, rotated by signs and a ±1 Hadamard matrix in exact integers, cut to the kept
coordinates, clipped. What comes out is a function of the record alone. Sums of it in int64 are exact modulo
2^64, and at the end each coordinate is rounded stochastically to a multiple of 2^f by f uniform bits. With
b bits on the wire and b + f <= 64 it does not matter if the int64 sum wraps around: a silo may hold any
number of records.

Where the bound needs nothing but the L2 norm of the whole vector, the clip comes before the rotation, which
keeps that norm times √D exactly, and one rotation of the sum serves all records.

The clip is certified as in `clipping`: the square sum of the very integers that are added up is computed in
float64 with an upper bound on its own error (it would overflow int64), and an integer vector above the bound
is scaled down towards zero until it passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.noise.entropy import Entropy
from skelmix.noise.scratch_memory import scratch
from skelmix.validation import bits as check_bits
from skelmix.validation import positive, whole

_MOST_FRACTION_BITS = 32
_CHUNK = 1 << 20  # coordinates rounded at a time
_TWO_U = 2.0**-52
_HEADROOM = 4.0  # how far above the bound a record may be before it is cut to the kept coordinates


class Steps(NamedTuple):
    """The numbers that the kernel reads, in units of 2^-f."""

    factor: float  # factor from a record's vector to units
    longest: float  # a scaled vector above this norm is scaled down before it is rounded
    squares: float  # bound on the square sum of the integers that are added up
    linf: int  # bound on their magnitude
    transform: bool  # whether each record is rotated


@dataclass(frozen=True)
class FixedPoint:
    """How a record's vector becomes integers; every choice is public and made by the plan, never by data.

    dimension: coordinates of a record's vector. length: D, coordinates after the rotation; equal to dimension
    without one. kept: coordinates that are kept, D unless some are dropped. scale: γ. l2, linf: bounds on the
    clipped vector on the integer grid (linf may be infinite). bits: b, width of a coordinate on the wire.
    rotate: whether there is a rotation at all.

    Example:

        >>> grid = FixedPoint(63_610, 65_536, 65_536, scale=64.0, l2=64.0, linf=1.25, bits=8, rotate=True)
        >>> grid.fraction_bits, grid.dtype.name, grid.rotates_records
        (24, 'int32', True)
    """

    dimension: int
    length: int
    kept: int
    scale: float
    l2: float
    linf: float
    bits: int
    rotate: bool

    def __post_init__(self) -> None:
        whole(1, dimension=self.dimension)
        whole(1, self.length, kept=self.kept)
        positive(scale=self.scale, l2=self.l2)
        check_bits(self.bits)
        if not 2.0**-400 <= self.scale <= 2.0**400 or not 2.0**-60 <= self.l2 <= 2.0**30 or not self.linf > 0:
            raise InvalidInput(
                f"scale = {self.scale}, l2 = {self.l2}, linf = {self.linf}: must be within 2^-400..2^400, "
                "2^-60..2^30 and above 0; change the scale"
            )
        whole(self.dimension, length=self.length)
        if not self.rotate and not self.dimension == self.length == self.kept:
            raise InvalidInput("without a rotation no coordinate can be padded or dropped: pass rotate=True")

    @property
    def rotates_records(self) -> bool:
        """Whether each record is rotated and then clipped; otherwise the sum is rotated once."""
        return self.rotate and (self.linf < self.l2 or self.kept < self.length)

    @property
    def width(self) -> int:
        """Coordinates of a silo's running sum."""
        return self.kept if self.rotates_records or not self.rotate else self.dimension

    @property
    def _root(self) -> float:
        """The factor √D by which the unnormalised rotation lengthens a vector."""
        return math.sqrt(self.length) if self.rotate else 1.0

    @property
    def _reach(self) -> float:
        """The norm on the integer grid that a record may have before it is cut to the kept coordinates."""
        if self.kept == self.length:
            return self.l2
        return _HEADROOM * self.l2 * math.sqrt(self.length / self.kept)

    @cached_property
    def _format(self) -> tuple[int, np.dtype[Any]]:
        """The integer type of a record's coordinates: int32 where it leaves enough fraction bits, else int64.

        32 bits take half the time. No coordinate of a rotated record exceeds its norm, so nothing wraps
        around before the clip.
        """
        largest = self._reach if self.rotates_records or not self.rotate else self._reach / self._root
        narrow = min(_MOST_FRACTION_BITS, 30 - math.ceil(math.log2(largest)))
        if narrow >= 8 + 0.5 * math.log2(self.length):  # room for the rotation's rounding errors
            return narrow, np.dtype(np.int32)
        return min(_MOST_FRACTION_BITS, 61 - math.ceil(math.log2(largest))), np.dtype(np.int64)

    @property
    def fraction_bits(self) -> int:
        """The number of fraction bits f: a unit of the sum is 2^-f, and f + bits <= 64."""
        return self._format[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The integers of one record."""
        return self._format[1]

    @cached_property
    def steps(self) -> Steps:
        unit = 2.0**self.fraction_bits
        norm = self._reach * unit / self._root  # largest norm of a scaled record
        shrink = 1.0 if self.rotates_records or not self.rotate else 1.0 / self.length
        # rounding to units nearly always adds less than 2 units to the norm; the check below finds the rest
        largest = min(self.linf, self.l2)
        margin = 0.0 if self.kept < self.length else min(0.5, 2.0**-24 + 2.0 / norm)
        return Steps(
            factor=self.scale / self._root * unit,
            longest=norm * (1.0 - margin),
            squares=self.l2 * self.l2 * unit * unit * shrink * (1.0 - 4.0 * _TWO_U),
            linf=min(math.floor(Fraction(largest) * (1 << self.fraction_bits)), np.iinfo(self.dtype).max),
            transform=self.rotates_records,
        )


def round_sum(total: NDArray[np.int64], fraction_bits: int, entropy: Entropy) -> NDArray[np.int64]:
    """A sum in units of 2^-f, rounded stochastically to integers, (width,) int64: exact and without bias.

    s becomes ⌊s/2^f⌋ + 1 with probability (s mod 2^f)/2^f, else ⌊s/2^f⌋, for negative s as well: f uniform
    bits are added and the low f bits dropped. A sum that wrapped around, and so is known modulo 2^64 only,
    gives a result that is right modulo 2^(64-f).
    """
    whole(1, _MOST_FRACTION_BITS, fraction_bits=fraction_bits)
    rounded = np.empty(total.shape, np.int64)
    with scratch(min(_CHUNK, total.size), np.uint32) as words:
        for start in range(0, total.size, _CHUNK):
            piece = total[start : start + _CHUNK]
            entropy.fill(words[: piece.size])
            _round(piece, words, fraction_bits, rounded[start : start + _CHUNK])
    return rounded


@njit(nogil=True, cache=True)
def _round(total: Any, words: Any, fraction_bits: int, out: Any) -> None:
    unused, shift = np.uint32(32 - fraction_bits), np.int64(fraction_bits)
    for i in range(total.size):
        out[i] = (total[i] + np.int64(words[i] >> unused)) >> shift
