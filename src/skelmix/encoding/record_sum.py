"""Add records, as clipped fixed-point integers, to a silo's exact sum: numba kernels.

Each record goes through the same operations in the same order, whatever comes with it; no sum of floats is
left to the compiler's choice of order. See `fixed_point` for what the steps mean.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.encoding.fixed_point import FixedPoint
from skelmix.encoding.hadamard import finish, layout, transform_block
from skelmix.encoding.subset import gather_line
from skelmix.noise.scratch_memory import scratch

LANES = 256  # partial sums of a square sum
_LARGEST_SQUARES = 2.0**1000
_TRIES = 8
_TWO_U = 2.0**-52


class Counts(NamedTuple):
    """What happened to a block of records; nothing of it may be released."""

    broken: int  # NaN, infinity or squares that overflow: counted as zero vectors
    clipped: int  # whose L2 norm was above the bound
    clamped: int  # coordinates above the L-infinity bound
    squared_norms: float  # Σ‖γg‖² of the others, as they came


def add_records(
    rows: NDArray[Any],
    signs: NDArray[np.int8],
    kept: NDArray[np.int32] | None,
    grid: FixedPoint,
    total: NDArray[np.int64],
) -> Counts:
    """total += each row's clipped integers, exact modulo 2^64.

    rows: C-contiguous (n, dimension) float32 or float64, any n, any values: a row with NaN or infinity counts
    as zero. signs: the rotation's, one per coordinate before or after padding. kept: places of the kept
    coordinates, None for all. total: (grid.width,) int64.
    """
    places = np.empty(0, np.int32) if kept is None else kept
    with (
        scratch(grid.length if grid.rotates_records else grid.dimension, grid.dtype) as line,
        scratch(places.size, grid.dtype) as part,
        scratch(LANES, np.float64) as lanes,
    ):
        broken, clipped, clamped, squares = _add_rows(
            rows, signs, places, grid.steps, line, part, lanes, total
        )
    return Counts(broken, clipped, clamped, squares * grid.scale * grid.scale)


@njit(nogil=True, cache=True)
def square_sum(line: Any, lanes: Any) -> float:
    """Σ x² in float64, always in the same order: element j in lane j mod 256, then lane by lane."""
    lanes[:] = 0.0
    size = line.size - line.size % LANES
    for start in range(0, size, LANES):
        block = line[start : start + LANES]
        for i in range(LANES):
            value = np.float64(block[i])
            lanes[i] += value * value
    for j in range(size, line.size):
        value = np.float64(line[j])
        lanes[j - size] += value * value
    total = 0.0
    for i in range(LANES):
        total += lanes[i]
    return total


@njit(nogil=True, cache=True)
def _to_units(source: Any, factor: float, signs: Any, flip: bool, out: Any) -> None:
    """out = source·factor rounded to integers, with the rotation's signs if `flip`; zeros behind."""
    kind = out.dtype.type
    for j in range(source.size):
        unit = kind(np.rint(np.float64(source[j]) * factor))
        out[j] = -unit if flip and signs[j] < 0 else unit
    out[source.size :] = 0


@njit(nogil=True, cache=True)
def _transform(line: Any) -> None:
    order, step, size = layout(line.size)
    for start in range(0, line.size, size):
        transform_block(line[start : start + size], order, step)
    finish(line, size)


@njit(nogil=True, cache=True)
def clip_units(line: Any, squares: float, lanes: Any) -> bool:
    """Scale integers towards zero, in place, until their square sum is at most `squares`.

    Returns whether they changed.

    Each square and each conversion to float64 has a relative error of at most 3·2^-53, a sum of n terms one
    of (n - 1)·2^-53: the factor below makes the computed sum an upper bound.
    """
    kind = line.dtype.type
    above = 1.0 + (line.size + 16) * _TWO_U
    squares_now = square_sum(line, lanes) * above
    tries = 0
    while squares_now > squares:
        if tries == _TRIES:
            line[:] = 0
            break
        shrink = math.sqrt(squares / squares_now) * (1.0 - 2.0 * (line.size + 32) * _TWO_U)
        for j in range(line.size):
            line[j] = kind(np.float64(line[j]) * shrink)  # drops the fraction: towards zero
        squares_now = square_sum(line, lanes) * above
        tries += 1
    return tries > 0


@njit(nogil=True, cache=True)
def _add_clamped(line: Any, linf: int, total: Any) -> int:
    clamped = 0
    kind = line.dtype.type
    high, low = kind(linf), kind(-linf)
    for j in range(line.size):
        value = line[j]
        clamped += (value > high) | (value < low)
        total[j] += min(max(value, low), high)
    return clamped


@njit(nogil=True, cache=True)
def _add_rows(
    rows: Any, signs: Any, kept: Any, steps: Any, line: Any, part: Any, lanes: Any, total: Any
) -> tuple[int, int, int, float]:
    broken, clipped, clamped, norms = 0, 0, 0, 0.0
    for row in range(rows.shape[0]):
        source = rows[row]
        norm_squared = square_sum(source, lanes)
        long = False
        if norm_squared <= _LARGEST_SQUARES:
            norms += norm_squared
            norm = math.sqrt(norm_squared) * steps.factor
            long = norm > steps.longest
            factor = steps.factor * (steps.longest / norm) if long else steps.factor
            _to_units(source, factor, signs, steps.transform, line)
        else:  # NaN too; it takes the same way and the same time as any other record
            broken += 1
            line[:] = 0
        if steps.transform:
            _transform(line)
        if kept.size > 0:
            gather_line(line, kept, part)
            long = clip_units(part, steps.squares, lanes)
            clamped += _add_clamped(part, steps.linf, total)
        else:
            long |= clip_units(line, steps.squares, lanes)
            clamped += _add_clamped(line, steps.linf, total)
        clipped += long
    return broken, clipped, clamped, norms
