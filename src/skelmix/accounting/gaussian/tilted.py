"""The distance of one coordinate's cumulant function from a Gaussian's, for large coordinates.

`Expansion` works outwards from x = 0 and ends where |t|·x·χ is about 1. Here x is in [low, high] with any
|t|·x·χ: the moments are taken under the noise law tilted by r^u, which is nearly Gaussian again, and what is
expanded is the quotient of E[r_x^t] and the Gaussian's exp(x²·A(t)), which is nearly 1. With a middle x0 and
a half width d of a piece of the unit cell [s, s+1], L = ln r_{x0}, W = d·(r_{s+1} - r_s)/r_{x0}, |θ| <= 1,

    E[r_x^t] = Σ_{j<J} C(t,j)·θ^j·E[r_{x0}^u W^j e^(iωL)] + R,    x = x0 + θd,    t = u + iω,

and all series in ω have an explicit remainder. Where E[r_x^u] is below the Gaussian's, the comparison is with
a smaller Gaussian, A(t) = (t² - t)χ'²/2 with χ' < χ: what is bounded by it is bounded by that of χ. Proof:
docs/explanation/gaussian-certificates.md, section 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skelmix.accounting.gaussian.expansion import Ratios
from skelmix.accounting.gaussian.tilted_kernels import coefficients, raise_to, spread, tilted_sums
from skelmix.arrays import FloatArray
from skelmix.errors import PrivacyUnattainable

_NARROW = 1 / 16  # half width of a piece, at most: as a share of x, and times |t|·χ
_TRUNCATION = 1e-9  # roughly what the series in ω leave out at the largest ω


@dataclass(frozen=True)
class _Piece:
    """Bounds on |E[r_x^t]/exp(x²·A(t)) - 1| for |x - x0| <= d, on each line."""

    low: float
    middle: float
    half: float
    terms: FloatArray  # (line, n): coefficients of y^n, not negative
    squares: FloatArray  # (line): χ'² <= χ², of the Gaussian that E[r_x^t] is compared with
    weights: FloatArray  # (line, j): E[r^u |W|^j] over the Gaussian's E[r^u]; j = J with the largest power
    highest: FloatArray  # (line, j): E[r^u |W|^j |L-m|^N]/((x0·χ')^N·N!), likewise
    count: int  # N, even
    rounding: FloatArray  # (line): of the sums, over all of the range of ω


class TiltedExpansion:
    """e(t) for one law and all x in [low, high], on the lines Re t = u for u in `lines`, |Im t| <= end.

    e(t) bounds |K_x(t)/x² - (t² - t)χ'²/2|, where χ'² depends on x and u and is in [χ² - reduction(u), χ²].
    """

    def __init__(self, values: Ratios, low: float, high: float, lines: FloatArray, end: float) -> None:
        self.lines, self.end = lines, end
        self.chi2 = values.chi_square
        chi = math.sqrt(self.chi2)
        largest = math.hypot(float(np.abs(lines).max()), end) * chi
        # float64: sums of at most 1e5 terms, each to some 1e-14; what a table's own error does to ln r
        table = values.table
        self.rounding = 1e-11 + (0.0 if table.sharp else 200 * table.error / chi)
        self.pieces = [self._piece(values, a, b) for a, b in _cuts(low, high, largest)]

    def _piece(self, values: Ratios, low: float, high: float) -> _Piece:
        middle, half = (low + high) / 2, (high - low) / 2
        whole = math.floor(middle)
        lift, start, stop = values.lift(middle), values.lift(float(whole)), values.lift(whole + 1.0)
        logs, slope = np.log1p(lift), (stop - start) * (half / (1 + lift))
        y = self.end * middle * math.sqrt(self.chi2)
        count = _terms(y)
        squares = self._squares(values.mass, logs, lift, middle)
        sums, absolute, outer = tilted_sums(
            values.mass, logs, slope, self.lines, squares, middle, count, self.end
        )
        if not outer.max() <= 1e-20:
            raise PrivacyUnattainable(
                f"the noise is too small for linf = {high:.4g}: likelihood ratios in its tails "
                "cannot be bounded; lower linf or raise the noise, or use bound='gdp' or bound='rdp'"
            )
        terms = np.array(
            [
                coefficients(sums[i], u, square, middle, half)
                for i, (u, square) in enumerate(zip(self.lines.tolist(), squares.tolist(), strict=True))
            ]
        )
        weights, highest, wide = absolute
        factor = np.array([spread(u, self.end, self.chi2, middle, half) for u in self.lines.tolist()])
        rounding = self.rounding * math.exp(y * y / 2) * (factor * wide).sum(axis=1)
        return _Piece(low, middle, half, terms, squares, weights, highest, count, rounding)

    def _squares(self, mass: FloatArray, logs: FloatArray, lift: FloatArray, x: float) -> FloatArray:
        """Where E[r_x^u] is below the Gaussian's, a smaller Gaussian that fits on the axis; any would do."""
        squares = np.full(len(self.lines), self.chi2)
        for i, u in enumerate(self.lines.tolist()):
            size = u * u - u
            if abs(size) > 0.01:
                moment = float(mass @ (np.expm1(u * logs) - u * lift))
                squares[i] = min(self.chi2, 2 * math.log1p(moment) / (size * x * x))
        return np.asarray(np.maximum(squares, 0.5 * self.chi2))

    def _index(self, u: float) -> int:
        return int(np.flatnonzero(self.lines == u)[0])

    def reduction(self, u: float) -> float:
        """The largest χ² - χ'² on a line."""
        line = self._index(u)
        return self.chi2 - float(min(piece.squares[line] for piece in self.pieces))

    def error(self, u: float, omega: FloatArray) -> FloatArray:
        """e(t) at t = u + iω for a u of `lines`, ω >= 0; grows with ω; infinite where nothing is proved."""
        line, worst = self._index(u), np.zeros(omega.shape)
        for piece in self.pieces:
            raise_to(
                worst,
                omega,
                u,
                float(piece.squares[line]),
                piece.low,
                piece.middle,
                piece.half,
                piece.terms[line],
                piece.weights[line],
                piece.highest[line],
                piece.count,
                float(piece.rounding[line]),
            )
        return np.where(omega <= self.end, worst, np.inf)


def _cuts(low: float, high: float, largest: float) -> list[tuple[float, float]]:
    """The interval [low, high] cut at the integers and into narrow pieces.

    Their half width is at most `_NARROW` of x and of 1/(|t|χ).
    """
    cuts, start = [], low
    while start < high:
        cell = min(high, math.floor(start) + 1.0)
        widest = 2 * _NARROW * min(start, 1 / largest)
        stop = start + (cell - start) / math.ceil((cell - start) / widest)
        stop = cell if cell - stop < 1e-9 * cell else stop
        cuts.append((start, stop))
        start = stop
    return cuts


def _terms(y: float) -> int:
    """An even N with (y²/2)^(N/2)/(N/2)!·e^(y²) below `_TRUNCATION`."""
    half, term = 0, math.exp(y * y)
    while term > _TRUNCATION or half < 4:
        half += 1
        term *= y * y / 2 / half
    return 2 * half
