"""Joint vectors of an adaptive clip, row by row: a numba kernel. See `indicator` for what they mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.encoding.clipping import float_at_most, product_error
from skelmix.encoding.record_sum import LANES, Counts, square_sum
from skelmix.noise.scratch_memory import scratch

_LARGEST_SQUARES = 2.0**1000  # a larger sum of squares may have overflowed
_TWO_U = 2.0**-52


def join_rows(rows: NDArray[Any], clip_norm: float, height: float, out: NDArray[Any]) -> Counts:
    """out = each row in units of the clip norm, clipped to norm 1, then ±height; see `AdaptiveClip.join`."""
    half, error = float_at_most(height, rows.dtype), product_error(rows.dtype)
    with scratch(LANES, np.float64) as lanes:
        broken, clipped, squares = _join_rows(rows, clip_norm, half, error, lanes, out)
    return Counts(broken, clipped, 0, squares)


@njit(nogil=True, cache=True)
def _join_rows(
    rows: Any, clip: float, half: Any, error: float, lanes: Any, out: Any
) -> tuple[int, int, float]:
    """out = the joint vectors; returns how many rows were broken, how many clipped, and Σ‖row‖².

    Computed norms are upper bounds (see `clipping`), and the margin covers the rounding of the products, so
    that the first d coordinates of a joint vector have an exact norm of at most 1.
    """
    d = rows.shape[1]
    kind = out.dtype.type
    above = 1.0 + (d + 16) * _TWO_U
    margin = 1.0 - error - 2.0 * (d + 32) * _TWO_U
    broken, clipped, total = 0, 0, 0.0
    for row in range(rows.shape[0]):
        line, joint = rows[row], out[row]
        squares = square_sum(line, lanes)
        if not squares <= _LARGEST_SQUARES:  # NaN too
            broken += 1
            squares = 0.0
        total += squares
        factor, mark = 0.0, kind(0)
        if squares > 0.0:
            norm = math.sqrt(squares * above)
            mark = half if norm <= clip else -half
            clipped += norm > clip
            factor = min(1.0 / clip, margin / norm)
        if factor == 0.0:
            joint[:] = 0
            continue
        for j in range(d):
            joint[j] = kind(np.float64(line[j]) * factor)
        joint[d] = mark
    return broken, clipped, total
