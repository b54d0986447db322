"""How far one coordinate's cumulant function is from a Gaussian's, for every value x in (0, b] at once.

K_x(t) = ln E[r_x^t] under P_0, r_x = dP_x/dP_0, and A(t) = (t² - t)χ²/2 with χ² = E[(r_1 - 1)²].
`Expansion.error(t)` bounds e(t) = sup |K_x(t)/x² - A(t)| over 0 < x <= b for complex t. On each piece [lo,
hi] of a unit cell r_x is affine in x, so that with v = r_x - 1 everything is a polynomial in x and t plus
remainders:

    E[r^t] = 1 + w,  w = Σ_{l<L} C(t,l)·E[v^l] + R,  |R| <= |C(t,L)|·E[|v|^L max(1, r^(Re t - L))],
    ln(1+w) = Σ_{i<=I} (-1)^(i+1) w^i/i + remainder.

The polynomial in x is bounded on subintervals by its Taylor form; nothing is sampled. Proof:
docs/explanation/gaussian-certificates.md, section 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.accounting.ratios import NoiseTable
from skelmix.accounting.sums import power_sums
from skelmix.errors import PrivacyUnattainable

FloatArray = NDArray[np.float64]

MOMENTS = 10  # L, even
LOGARITHM = 6  # I
_PARTS = 32  # subintervals of a piece
_DEGREE = 16  # in τ; higher powers are folded into it, which is an upper bound for |τ| <= _WIDEST
_WIDEST = 1.5
_INVALID = 0.9  # |w| must stay below this for the logarithm's series


@dataclass(frozen=True)
class Ratios:
    """P_0 on k = -reach..reach as `mass`, and ln r_1 on the same k: what a coordinate's divergence is made
    of.
    """

    mass: FloatArray
    table: NoiseTable
    reach: int

    def log_shift(self, shift: int) -> FloatArray:
        """ln r_s(k) = ln f(k-s)/f(k), for an integer s, added up from the steps."""
        steps = self.table.log_ratios()  # index 0 is k = 1 - table.reach
        total = np.zeros(2 * self.reach + 1)
        first = self.table.reach - 1 - self.reach
        for i in range(shift):
            total += steps[first - i : first - i + 2 * self.reach + 1]
        return total

    def lift(self, x: float) -> FloatArray:
        """r_x - 1, with nothing cancelling when it is small."""
        whole = math.floor(x)
        here = np.expm1(self.log_shift(whole)) if whole else np.zeros(2 * self.reach + 1)
        part = x - whole
        if part == 0:
            return here
        return np.asarray((1 - part) * here + part * np.expm1(self.log_shift(whole + 1)))


def ratios(table: NoiseTable, largest_shift: int) -> Ratios:
    """As far out as the masses are above 1e-50, so that shifts by up to `largest_shift` stay inside the
    table.
    """
    reach = min(table.reach - 1 - largest_shift, int(np.count_nonzero(table.mass > 1e-50)))
    half = table.mass[: reach + 1]
    return Ratios(np.concatenate([half[:0:-1], half]), table, reach)


def chi_square(values: Ratios) -> float:
    """χ² = E[(r_1 - 1)²]."""
    return float(values.mass @ values.lift(1.0) ** 2)


def pieces(b: float) -> list[tuple[float, float]]:
    """(0, b] cut at the integers, and finer where a cell is wide against x."""
    found = [(0.0, min(b, 1.0))]
    for s in range(1, math.ceil(b)):
        high, parts = min(b, s + 1.0), math.ceil(4 / s)
        edges = np.linspace(s, high, max(1, math.ceil(parts * (high - s))) + 1)
        found.extend(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    return found


@dataclass(frozen=True)
class _Piece:
    """All in τ = c·(t - 1/2), with moments in units of c."""

    low: float
    high: float
    terms: FloatArray  # (subinterval, degree in τ): bounds on the coefficients of (K_x/x² - A)/(c²(t²-t))
    sizes: FloatArray  # bounds on |E v^l|/c^l, l = 0..L-1, over the piece
    remainder: float  # E[|v|^L max(1, r^(u-L))]/c^L over the piece


class Expansion:
    """e(t) for one law and all x in (0, b], t with real part in [lowest, highest]."""

    def __init__(self, values: Ratios, b: float, lowest: float, highest: float) -> None:
        self.chi2 = chi_square(values)
        self.c = b * math.sqrt(self.chi2)
        # float64: masses and lifts to `error`, sums of at most 1e6 terms; χ makes an error of a lift relative
        table = values.table
        self.rounding = 1e-10 + (0.0 if table.sharp else 200 * table.error / math.sqrt(self.chi2))
        self.pieces = [self._piece(values, low, high, lowest, highest) for low, high in pieces(b)]

    def _piece(self, values: Ratios, low: float, high: float, lowest: float, highest: float) -> _Piece:
        start = values.lift(low) if low else np.zeros(len(values.mass))
        end = values.lift(high)
        sizes = np.maximum(np.abs(start), np.abs(end)) / self.c
        worst = np.ones(len(values.mass))
        for lift in (start, end):
            for u in (lowest, highest):
                worst = np.maximum(worst, np.exp((u - MOMENTS) * np.log1p(lift)))
        summand = values.mass * sizes**MOMENTS * worst
        remainder = float(summand.sum())
        if not summand[[0, -1]].max() <= 1e-20 * remainder:
            raise PrivacyUnattainable(
                f"the noise is too small for linf = {high:.4g}: likelihood ratios in its tails "
                "cannot be bounded; lower linf or raise the noise, or use bound='gdp' or bound='rdp'"
            )
        joint, rows = power_sums(values.mass, start, end, self.c, MOMENTS)
        moments, size = _moments(joint), _sizes(rows, low == 0)
        return _Piece(low, high, self._bounds(moments, low, high), size, remainder)

    def _bounds(self, moments: FloatArray, low: float, high: float) -> FloatArray:
        """Bounds on |coefficient of τ^a| for x in each of the subintervals, already over x²."""
        series = _cumulants(moments, self.c)
        width = high - low
        square = np.array([low * low, 2 * low * width, width * width]) * (self.chi2 / (2 * self.c**2))
        series[0, :3] -= square
        if low == 0:  # the terms in x² cancel exactly: E[v²] = x²χ² on the first cell
            series = series[:, 2:] / high**2
            series[:, 0] = 0.0
        degrees = np.arange(series.shape[1])
        half = 0.5 / _PARTS
        centres = (np.arange(_PARTS) + 0.5) / _PARTS
        powers = centres[:, None] ** degrees
        slopes = degrees * centres[:, None] ** np.maximum(degrees - 1, 0)
        bends = degrees * (degrees - 1) * (centres + half)[:, None] ** np.maximum(degrees - 2, 0)
        bound = (
            np.abs(powers @ series.T)
            + half * np.abs(slopes @ series.T)
            + half**2 / 2 * (bends @ np.abs(series).T)
        )
        if low > 0:
            bound /= ((low + width * (centres - half)) ** 2)[:, None]
        return _undominated(_folded(bound))

    def gaussian(self, t: NDArray[Any]) -> NDArray[Any]:
        """A(t)."""
        return np.asarray((t * t - t) * (self.chi2 / 2))

    def error(self, t: NDArray[Any]) -> FloatArray:
        """e(t); infinite where the series do not prove anything. Grows with |Im t| at a fixed real part."""
        tau = self.c * np.abs(t - 0.5)
        y = self.c**2 * np.abs(t * t - t)
        factors = [self.c * np.abs(t - i) for i in range(2, MOMENTS)]
        worst = np.zeros(t.shape)
        powers = np.vander(tau, _DEGREE + 1, increasing=True)
        for piece in self.pieces:
            close = (powers @ piece.terms.T).max(axis=1)
            product, size = np.ones(t.shape), np.zeros(t.shape)
            for l in range(2, MOMENTS):
                size += piece.sizes[l] * product / math.factorial(l)
                product = product * factors[l - 2]
            size *= y
            rest = y * piece.remainder * product / math.factorial(MOMENTS)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                missing = rest / (1 - size - rest) + size ** (LOGARITHM + 1) / ((LOGARITHM + 1) * (1 - size))
            missing[~((size + rest < _INVALID) & (tau < _WIDEST))] = np.inf
            total = y * close + missing / (piece.high**2 if piece.low == 0 else piece.low**2)
            worst = np.maximum(worst, total)
        return np.asarray(worst * (1 + 1e-9) + np.abs(self.gaussian(t)) * self.rounding)


def _folded(bound: FloatArray) -> FloatArray:
    weights = _WIDEST ** np.arange(bound.shape[1] - _DEGREE)
    return np.column_stack([bound[:, :_DEGREE], bound[:, _DEGREE:] @ weights])


def _undominated(rows: FloatArray) -> FloatArray:
    """The rows that are not below another one in every column: the others cannot be the largest for any t."""
    kept: list[FloatArray] = []
    for row in rows[np.argsort(-rows.sum(axis=1))]:
        if not any((row <= other).all() for other in kept):
            kept.append(row)
    return np.array(kept)


def _moments(joint: FloatArray) -> FloatArray:
    """(L, L): coefficient of p^i in E[(a + p·(b-a))^l], from E[a^i (b-a)^j]."""
    found = np.zeros((MOMENTS, MOMENTS))
    for l in range(2, MOMENTS):
        for i in range(l + 1):
            found[l, i] = math.comb(l, i) * joint[l - i, i]
    return found


def _sizes(rows: FloatArray, first: bool) -> FloatArray:
    """Bounds on |E[v^l]| over a piece, from the rows of `power_sums`: even l are convex in x, odd l need not
    be.
    """
    starts, ends, middles, widest = rows
    if first:  # E[v^l] = p^l·E[b^l]
        return np.abs(ends)
    found = np.maximum(starts, ends)
    for l in range(3, MOMENTS, 2):
        found[l] = abs(middles[l]) + l / 2 * widest[l - 1]
    return np.asarray(found)


def _cumulants(moments: FloatArray, c: float) -> FloatArray:
    """Coefficients (degree in τ, degree in p) of Σ_{i<=I} (-1)^(i+1) w^i/i, over c²(t² - t)."""
    quotient = np.zeros((MOMENTS - 2, MOMENTS))  # w over c²(t² - t)
    falling = np.ones(1)
    for l in range(2, MOMENTS):
        quotient[: l - 1] += np.outer(falling, moments[l]) / math.factorial(l)
        falling = np.convolve(falling, [c * (0.5 - l), 1.0])
    factor = np.zeros((3, 1))  # c²(t² - t) in τ
    factor[0, 0], factor[2, 0] = -c * c / 4, 1.0
    following = _product(factor, quotient)
    power, total = quotient, quotient
    for i in range(2, LOGARITHM + 1):
        power = _product(power, following)
        total = _sum(total, power * ((-1) ** (i + 1) / i))
    return total


@njit(cache=True, nogil=True)
def _product(a: FloatArray, b: FloatArray) -> FloatArray:
    """Of two polynomials in two variables."""
    found = np.zeros((a.shape[0] + b.shape[0] - 1, a.shape[1] + b.shape[1] - 1))
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            if b[i, j] != 0:
                for k in range(a.shape[0]):
                    for l in range(a.shape[1]):
                        found[i + k, j + l] += b[i, j] * a[k, l]
    return found


def _sum(a: FloatArray, b: FloatArray) -> FloatArray:
    found = np.zeros(np.maximum(a.shape, b.shape))
    found[: a.shape[0], : a.shape[1]] += a
    found[: b.shape[0], : b.shape[1]] += b
    return found
