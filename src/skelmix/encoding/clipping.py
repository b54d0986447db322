"""Clipping with a bound that holds exactly for the floats that are rounded next.

A privacy bound is about the numbers that enter the rounding, not about real numbers nearby. So each bound
here is checked on the final floats, in float64, with an upper bound on the error of the check itself; a row
that fails is scaled down with a margin for the rounding of its products, and checked again. What makes a
bound hold is the last check alone.

The error of the check: the square of a float32 is exact in float64 and that of a float64 has a relative
error of at most u = 2^-53 (and an absolute one of 2^-1074 where it underflows); a sum of n non-negative
terms in any order loses at most a relative (n-1)·u. So true sum <= computed·(1 + (n + 16)·2u) + n·2^-1074,
with room for the few roundings of the test itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.validation import positive, whole

MAX_BOUND = 2.0**52  # above it float64 no longer tells neighbouring integers apart
MIN_BOUND = 2.0**-400  # below it squares underflow
_TWO_U = 2.0**-52
_TINY = 2.0**-1074  # the smallest positive float64
_LARGEST_NORM = 2.0**100  # above it squares may overflow in float32
_ANY_ORDER = {"reassoc", "contract"}  # the error bound holds for every order of summation: let it vectorise


def clip_l2(x: NDArray[Any], bound: float) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Scale each row of x down, in place, until its exact L2 norm is at most `bound`.

    x is a C-contiguous (n, d) array of float32 or float64. A row whose computed norm, enlarged by the error
    of computing it, is within the bound keeps every bit; any other loses about 2^-23 (float32) or d·2^-51
    (float64) more of its length than exact arithmetic would take. Directions and signs survive; a zero row
    stays zero. Returns which rows changed, and upper bounds on the squared norms before. NaN or infinity
    raises `InvalidInput`.
    """
    _check(x, bound)
    changed = np.zeros(x.shape[0], np.bool_)
    squares = np.empty(x.shape[0], np.float64)
    bad = clip_l2_rows(x, float(bound), product_error(x.dtype), changed, squares)
    refuse_row(bad)
    return changed, squares


def clip_linf(x: NDArray[Any], bound: float) -> int:
    """Clamp every coordinate of x, in place, to [-bound, bound]; returns how many changed.

    The limit is the largest float of x's dtype that is <= bound.

    NaN stays NaN; infinity is clamped. It never raises a norm, so it keeps an L2 bound that already holds.
    """
    _check(x, bound)
    return int(clip_linf_rows(x, float_at_most(bound, x.dtype)))


def clip_mixture(x: NDArray[Any], c: float, linf: int) -> tuple[NDArray[np.bool_], int]:
    """Clip for the mixture mechanisms (Bao et al. 2022, Algorithm 5), in place.

    Afterwards Σ_j (x² + p - p²) <= c and ⌈|x_j|⌉ <= linf hold exactly for each row.

    With |x| = k + p (k whole, 0 <= p < 1) the clipped quantity is v = x² + p - p² = k² + (2k+1)·p, Eq. (4):
    the straight line between k² and (k+1)². (The printed line 3 has a plus before p²; Eq. (4) has the
    minus.) If the v of a row add up to more than c they are scaled to c and mapped back: k' = ⌊√v⌋,
    p' = (v - k'²)/(2k'+1). Then coordinates are clamped to the integer `linf` >= 1, as Theorem 5 asks for
    the ceiling. Works on a C-contiguous (n, d) float array; returns which rows changed and how many
    coordinates were clamped. A row inside both bounds keeps every bit; signs survive; NaN or infinity raises.
    """
    _check(x, c)
    whole(1, linf=linf)
    changed = np.zeros(x.shape[0], np.bool_)
    shade = 1.0 - product_error(x.dtype)
    bad, touched = _clip_mixture(x, float(c), float_at_most(float(linf), x.dtype), shade, changed)
    refuse_row(bad)
    return changed, int(touched)


def _check(x: NDArray[Any], bound: float) -> None:
    positive(bound=bound)
    if not MIN_BOUND <= bound <= MAX_BOUND:
        raise InvalidInput(f"bound = {bound}: must be within 2^-400..2^52; change the scale")
    if (
        x.dtype not in (np.float32, np.float64)
        or x.ndim != 2
        or not x.flags.c_contiguous
        or not x.flags.writeable
    ):
        raise InvalidInput("x must be a writable C-contiguous (participants, d) array of float32 or float64")


class BadRow(InvalidInput):
    """A row that cannot be clipped; `row` is its number, from 0."""

    def __init__(self, row: int) -> None:
        super().__init__(
            f"vectors has NaN or infinity in row {row}, or numbers so large that they overflow when rotated "
            "and scaled: repair or rescale it"
        )
        self.row = row


def refuse_row(row: int) -> None:
    """Raise `BadRow` if there is a bad row: if row is not negative."""
    if row >= 0:
        raise BadRow(row)


def float_at_most(bound: float, dtype: np.dtype[Any]) -> Any:
    value = dtype.type(bound)
    return np.nextafter(value, dtype.type(0)) if float(value) > bound else value


def product_error(dtype: np.dtype[Any]) -> float:
    """Relative error of (factor rounded to dtype)·x rounded to dtype: twice half a unit in the last place."""
    return float(np.finfo(dtype).eps)


@njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def sum_of_squares(line: Any) -> float:
    """An upper bound on Σ x², in float64 (see the top of this file); infinite or NaN if it overflows."""
    total = 0.0
    for j in range(line.size):
        value = np.float64(line[j])
        total += value * value
    return total * (1.0 + (line.size + 16) * _TWO_U) + line.size * _TINY


@njit(nogil=True, cache=True)
def _shrink_if_overflowing(line: Any) -> bool:
    """Divide by the largest magnitude when squares overflow; False when the row is not finite."""
    largest = 0.0
    for value in line:
        if not math.isfinite(value):
            return False
        largest = max(largest, abs(np.float64(value)))
    for j in range(line.size):
        line[j] = np.float64(line[j]) / largest
    return True


@njit(nogil=True, cache=True)
def clip_l2_rows(x: Any, bound: float, error: float, changed: Any, norms: Any) -> int:
    """Clip all rows; returns the first row that is not finite, or -1."""
    d = x.shape[1]
    limit = bound * bound * (1.0 - 2.0 * _TWO_U)
    margin = 1.0 - error - 2.0 * (d + 32) * _TWO_U
    for row in range(x.shape[0]):
        line = x[row]
        squares = sum_of_squares(line)
        norms[row] = squares
        if not math.isfinite(squares):
            if not _shrink_if_overflowing(line):
                return row
            changed[row] = True
            squares = sum_of_squares(line)
        tries = 0
        while squares > limit:
            changed[row] = True
            if tries == 8:  # only subnormal numbers come here: their products round by more than the margin
                line[:] = 0  # so small that it is within any bound
                break
            _scale(line, bound / math.sqrt(squares) * margin)
            squares = sum_of_squares(line)
            tries += 1
    return -1


@njit(nogil=True, cache=True)
def _scale(line: Any, factor: float) -> None:
    typed = line.dtype.type(factor)
    for j in range(line.size):
        line[j] *= typed


@njit(nogil=True, cache=True)
def clip_linf_rows(x: Any, bound: Any) -> int:
    touched = 0
    flat = x.reshape(-1)
    for j in range(flat.size):
        value = flat[j]
        touched += (value > bound) | (value < -bound)
        flat[j] = bound if value > bound else (-bound if value < -bound else value)
    return touched


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def _plus(total: float, term: float) -> float:
    """Add two numbers; only this sum may be reordered by the compiler, the terms may not."""
    return total + term


@njit(nogil=True, cache=True)
def mixture_norm(line: Any) -> float:
    """An upper bound on Σ (k² + (2k+1)p), in float64: each term has a relative error of at most 4u."""
    total = 0.0
    for j in range(line.size):
        size = abs(np.float64(line[j]))
        k = np.floor(size)
        total = _plus(total, k * k + (2.0 * k + 1.0) * (size - k))
    return total * (1.0 + (line.size + 16) * _TWO_U) + line.size * _TINY


@njit(nogil=True, cache=True)
def _clip_mixture(x: Any, c: float, linf: Any, shade: float, changed: Any) -> tuple[int, int]:
    touched = 0
    d = x.shape[1]
    limit = c * (1.0 - _TWO_U)
    margin = 1.0 - 2.0 * (d + 32) * _TWO_U
    for row in range(x.shape[0]):
        line = x[row]
        norm = mixture_norm(line)
        if not norm < _LARGEST_NORM:
            if not _shrink_if_overflowing(line):
                return row, 0
            # undo the division as far as the integer grid reaches, so that large rows keep their direction
            _scale(line, 2.0**40)
            changed[row] = True
            norm = mixture_norm(line)
        tries = 0
        while norm > limit:
            changed[row] = True
            if tries == 8:
                line[:] = 0
                break
            _shrink(line, x.dtype.type(c / norm * margin), x.dtype.type(shade))
            norm = mixture_norm(line)
            tries += 1
        clamped = clip_linf_rows(x[row : row + 1], linf)
        touched += clamped
        changed[row] |= clamped > 0
    return -1, touched


@njit(nogil=True, cache=True, error_model="numpy")
def _shrink(line: Any, factor: Any, shade: Any) -> None:
    """Map each value to the y with v(y) = factor·v(|value|), keeping its sign.

    `shade` makes sure that rounding does not go up. It works in the precision of the row, since the next
    check decides, and without branches, so that it vectorises.
    """
    unit = line.dtype.type(1)
    for j in range(line.size):
        size = abs(line[j])
        k = np.floor(size)
        v = (k * k + (k + k + unit) * (size - k)) * factor
        k = np.floor(np.sqrt(v))
        k -= line.dtype.type(k * k > v)
        line[j] = math.copysign((k + (v - k * k) / (k + k + unit)) * shade, line[j])
