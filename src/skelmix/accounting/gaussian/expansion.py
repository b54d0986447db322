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
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.accounting.gaussian.level_sums import power_sums
from skelmix.accounting.gaussian.noise_tables import NoiseTable
from skelmix.arrays import ComplexArray, FloatArray
from skelmix.errors import PrivacyUnattainable

MOMENTS = 10  # L, even
LOGARITHM = 6  # I
_PARTS = 32  # subintervals of a piece
_DEGREE = 16  # highest power of τ; higher ones are folded into it, which is an upper bound for |τ| <= _WIDEST
_WIDEST = 1.5
_INVALID = 0.9  # |w| must stay below this for the logarithm's series


@dataclass(frozen=True)
class Ratios:
    """The quantities that a coordinate's divergence is made of.

    P_0 on k = -reach..reach as `mass`, and ln r_1 on the same k.
    """

    mass: FloatArray
    table: NoiseTable
    reach: int

    _whole: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict, repr=False, compare=False)

    def _shifted(self, shift: int) -> tuple[FloatArray, FloatArray]:
        """r_s(k) - 1 = f(k-s)/f(k) - 1 for an integer s, and ln r_s(k), added up from the steps; kept."""
        if shift not in self._whole:
            steps = self.table.log_ratios()  # index 0 is k = 1 - table.reach
            total = np.zeros(2 * self.reach + 1)
            first = self.table.reach - 1 - self.reach
            for i in range(shift):
                total += steps[first - i : first - i + 2 * self.reach + 1]
            self._whole[shift] = np.expm1(total), total
        return self._whole[shift]

    @cached_property
    def chi_square(self) -> float:
        """χ² = E[(r_1 - 1)²]."""
        return float(self.mass @ self.lift(1.0) ** 2)

    def lift(self, x: float) -> FloatArray:
        """r_x - 1, with nothing cancelling when it is small."""
        whole = math.floor(x)
        part = x - whole
        if part == 0:
            return self._shifted(whole)[0]
        if whole == 0:
            return part * self._shifted(1)[0]
        return np.asarray((1 - part) * self._shifted(whole)[0] + part * self._shifted(whole + 1)[0])

    def log(self, x: float) -> FloatArray:
        """ln r_x."""
        return self._shifted(int(x))[1] if x == int(x) else np.log1p(self.lift(x))


def ratios(table: NoiseTable, largest_shift: int) -> Ratios:
    """The ratios at all levels whose mass is above 1e-100.

    Shifts by up to `largest_shift` stay inside the table.
    """
    reach = min(table.reach - 1 - largest_shift, int(np.count_nonzero(table.mass > 1e-100)))
    half = table.mass[: reach + 1]
    return Ratios(np.concatenate([half[:0:-1], half]), table, reach)


def pieces(b: float) -> list[tuple[float, float]]:
    """(0, b] cut at the integers, and finer where a cell is wide against x."""
    intervals = [(0.0, min(b, 1.0))]
    for s in range(1, math.ceil(b)):
        high, parts = min(b, s + 1.0), math.ceil(4 / s)
        edges = np.linspace(s, high, max(1, math.ceil(parts * (high - s))) + 1)
        intervals.extend(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    return intervals


@dataclass(frozen=True)
class _Piece:
    """The series on one piece, in τ = c·(t - 1/2), with moments in units of c."""

    low: float
    high: float
    terms: FloatArray  # (subinterval, degree in τ): bounds on the coefficients of (K_x/x² - A)/(c²(t²-t))
    sizes: FloatArray  # bounds on |E v^l|/c^l, l = 0..L-1, over the piece
    remainder: float  # E[|v|^L max(1, r^(u-L))]/c^L over the piece


class Expansion:
    """e(t) for one law and all x in (0, b], t with real part in [lowest, highest]."""

    def __init__(self, values: Ratios, b: float, lowest: float, highest: float) -> None:
        self.chi2 = values.chi_square
        self.c = b * math.sqrt(self.chi2)
        # float64: masses and lifts to `error`, sums of at most 1e6 terms; χ makes an error of a lift relative
        table = values.table
        self.rounding = 1e-10 + (0.0 if table.sharp else 200 * table.error / math.sqrt(self.chi2))
        self.pieces = [self._piece(values, low, high, lowest, highest) for low, high in pieces(b)]

    def _piece(self, values: Ratios, low: float, high: float, lowest: float, highest: float) -> _Piece:
        start, end = values.lift(low), values.lift(high)
        sizes = np.maximum(np.abs(start), np.abs(end)) / self.c
        worst = np.zeros(len(values.mass))
        for x in (low, high) if low else (high,):
            log = values.log(x)
            worst = np.maximum(worst, np.maximum((lowest - MOMENTS) * log, (highest - MOMENTS) * log))
        summand = values.mass * (sizes * sizes) ** (MOMENTS // 2) * np.exp(worst)
        remainder = float(summand.sum())
        if not summand[[0, -1]].max() <= 1e-20 * remainder:
            raise PrivacyUnattainable(
                f"the noise is too small for linf = {high:.4g}: likelihood ratios in its tails "
                "cannot be bounded; lower linf or raise the noise, or use bound='gdp' or bound='rdp'"
            )
        joint, rows = power_sums(values.mass, start, end, self.c, MOMENTS)
        return _Piece(low, high, self._bounds(joint, low, high), _sizes(rows, low == 0), remainder)

    def _bounds(self, joint: FloatArray, low: float, high: float) -> FloatArray:
        """Bounds on |coefficient of τ^a| for x in each of the subintervals, already over x²."""
        series = _cumulants(joint, self.c)
        width = high - low
        square = np.array([low * low, 2 * low * width, width * width]) * (self.chi2 / (2 * self.c**2))
        series[0, :3] -= square
        if low == 0:  # the terms in x² cancel exactly: E[v²] = x²χ² on the first cell
            series = series[:, 2:] / high**2
            series[:, 0] = 0.0
        powers, slopes, bends = _taylor(series.shape[1])
        bound = np.abs(powers @ series.T) + np.abs(slopes @ series.T) + bends @ np.abs(series).T
        if low > 0:
            bound /= ((low + width * np.arange(_PARTS) / _PARTS) ** 2)[:, None]
        return _undominated(_folded(bound))

    def gaussian(self, t: NDArray[Any]) -> NDArray[Any]:
        """A(t)."""
        return np.asarray((t * t - t) * (self.chi2 / 2))

    def error(self, t: NDArray[Any]) -> FloatArray:
        """e(t); infinite where the series do not prove anything. Grows with |Im t| at a fixed real part."""
        worst = np.zeros(t.shape)
        for piece in self.pieces:
            square = piece.high**2 if piece.low == 0 else piece.low**2
            _raise_to(worst.ravel(), t.ravel(), self.c, piece.terms, piece.sizes, piece.remainder, square)
        return np.asarray(worst * (1 + 1e-9) + np.abs(self.gaussian(t)) * self.rounding)


@njit(cache=True, nogil=True)
def _raise_to(
    worst: FloatArray,
    points: ComplexArray,
    c: float,
    terms: FloatArray,
    sizes: FloatArray,
    remainder: float,
    square: float,
) -> None:
    """worst[k] = max(worst[k], e(points[k]) on one piece), whose smallest x² is `square`."""
    count = len(points)
    tau, close, value = np.abs(points - 0.5) * c, np.zeros(count), np.empty(count)
    for i in range(len(terms)):  # Horner's rule for all points at once
        value[:] = terms[i, _DEGREE]
        for j in range(_DEGREE - 1, -1, -1):
            for k in range(count):
                value[k] = value[k] * tau[k] + terms[i, j]
        for k in range(count):
            close[k] = max(close[k], value[k])
    for k in range(count):
        t = points[k]
        y = c * c * abs(t * t - t)
        product, size = y, 0.0
        for l in range(2, MOMENTS):
            product /= l  # y·Π c|t - i| over 1 < i < l, over l!
            size += sizes[l] * product
            product *= c * abs(t - l)
        rest = remainder * product / MOMENTS
        if not (size + rest < _INVALID and tau[k] < _WIDEST):
            worst[k] = np.inf
            continue
        missing = rest / (1 - size - rest) + size ** (LOGARITHM + 1) / ((LOGARITHM + 1) * (1 - size))
        worst[k] = max(worst[k], y * close[k] + missing / square)


def _folded(bound: FloatArray) -> FloatArray:
    weights = _WIDEST ** np.arange(bound.shape[1] - _DEGREE)
    return np.column_stack([bound[:, :_DEGREE], bound[:, _DEGREE:] @ weights])


@njit(cache=True, nogil=True)
def _undominated(rows: FloatArray) -> FloatArray:
    """The rows that are not below another one in every column: the others cannot be the largest for any t."""
    kept = np.empty_like(rows)
    count = 0
    for i in np.argsort(-rows.sum(axis=1)):
        below = False
        for j in range(count):
            below = below or bool((rows[i] <= kept[j]).all())
        if not below:
            kept[count] = rows[i]
            count += 1
    return kept[:count]


@lru_cache(maxsize=4)
def _taylor(columns: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Taylor's form at the middle p of each subinterval of [0, 1].

    p^j; its slope over half a width; and a bound on the rest, from the second derivative.
    """
    degrees = np.arange(columns)
    half = 0.5 / _PARTS
    centres = ((np.arange(_PARTS) + 0.5) / _PARTS)[:, None]
    powers = centres**degrees
    slopes = half * degrees * centres ** np.maximum(degrees - 1, 0)
    bends = half**2 / 2 * degrees * (degrees - 1) * (centres + half) ** np.maximum(degrees - 2, 0)
    return powers, slopes, bends


def _sizes(rows: FloatArray, first: bool) -> FloatArray:
    """Bounds on |E[v^l]| over a piece, from the rows of `power_sums`.

    Even l are convex in x, odd l need not be.
    """
    starts, ends, middles, widest = rows
    if first:  # E[v^l] = p^l·E[b^l]
        return np.abs(ends)
    sizes = np.maximum(starts, ends)
    for l in range(3, MOMENTS, 2):
        sizes[l] = abs(middles[l]) + l / 2 * widest[l - 1]
    return np.asarray(sizes)


@njit(cache=True, nogil=True)
def _cumulants(joint: FloatArray, c: float) -> FloatArray:
    """Coefficients (degree in τ, degree in p) of the logarithm's series, over c²(t² - t).

    The series is Σ_{i<=I} (-1)^(i+1) w^i/i for w = Σ_l C(t,l)·E[(a + p·(b-a))^l], from joint[i, j] = E[a^i
    (b-a)^j].
    """
    quotient = np.zeros((MOMENTS - 2, MOMENTS))  # w over c²(t² - t)
    falling = np.zeros(MOMENTS)  # Π (t - i) over i = 2..l-1, in τ
    falling[0] = 1.0
    factorial = 1.0
    for l in range(2, MOMENTS):
        factorial *= l
        choose = 1.0
        for j in range(l + 1):
            for i in range(l - 1):
                quotient[i, j] += falling[i] * (choose * joint[l - j, j]) / factorial
            choose = choose * (l - j) / (j + 1)
        for i in range(l - 1, -1, -1):
            falling[i] = falling[i] * c * (0.5 - l) + (falling[i - 1] if i else 0.0)
    factor = np.zeros((3, 1))  # c²(t² - t) in τ
    factor[0, 0], factor[2, 0] = -c * c / 4, 1.0
    following = _product(factor, quotient)
    power = quotient
    total = np.zeros((MOMENTS - 2 + (LOGARITHM - 1) * (MOMENTS - 1), LOGARITHM * (MOMENTS - 1) + 1))
    for i in range(1, LOGARITHM + 1):
        total[: power.shape[0], : power.shape[1]] += power * ((-1.0) ** (i + 1) / i)
        if i < LOGARITHM:
            power = _product(power, following)
    return total


@njit(cache=True, nogil=True)
def _product(a: FloatArray, b: FloatArray) -> FloatArray:
    """The product of two polynomials in two variables."""
    product = np.zeros((a.shape[0] + b.shape[0] - 1, a.shape[1] + b.shape[1] - 1))
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            if b[i, j] != 0:
                for k in range(a.shape[0]):
                    for l in range(a.shape[1]):
                        product[i + k, j + l] += b[i, j] * a[k, l]
    return product
