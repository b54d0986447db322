"""Contour integrals: how far hockey-stick divergences under many small coordinates are from the Gaussian's.

For Re t = u the divergence of the product pair, given one more observation N(0,1) against N(s,1), is an
integral of E[Π r_{x_j}^t]·exp((t²-t)s²/2)·e^(ε(1-t))/(t(t-1)) over the line; so is the Gaussian's.
`contour_errors` bounds the integral of the modulus of the difference in three ranges of ω = Im t: by
`Expansion.error` and `TiltedExpansion.error`; by a bound on |E r_x^t| on a grid with a Lipschitz constant;
and by the smoothing alone.
Proof: docs/explanation/gaussian-certificates.md, section 3.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from skelmix.accounting.gaussian.expansion import Expansion, Ratios
from skelmix.accounting.gaussian.level_sums import tilted_modulus
from skelmix.accounting.gaussian.tilted import TiltedExpansion
from skelmix.arrays import FloatArray

STEP = 1.0  # distance between the real parts of contours, in units of 1/mu
_DECAY = 3.5  # the integrals end at Ω with Ω·s = this
_FINE, _COARSE = 0.02, 0.2  # widths of the intervals of ω, in units of 1/mu
_FINE_END = 10.0  # the Gaussian factor is e^-50 there
GRID = 0.2  # largest change of ω·ln r and of t·x·χ over one cell of the Lipschitz grid
_FINE_GRID, _FINE_GRID_END = 0.05, 9.0  # a finer grid up to this ω, in units of 1/mu, where decay is slow
_MOST_SHRINKS = 40  # most times the series' range is shrunk: that ends far below any x that matters
_SEGMENT = 1.35  # the middle range is cut into segments of ω with this ratio


@dataclass(frozen=True)
class Contour:
    """The lines Re t = u and Re t = 1 - u, u = 1/2 + offset, with e(t) for both on a grid of ω."""

    offset: float
    nodes: FloatArray  # values of ω, from 0
    error: FloatArray  # radius²·e(t) at nodes[1:], the larger of both lines; finite
    distance: FloatArray  # |t² - t|, so that error/distance is a bound on the interval before nodes[1:]
    on_axis: float  # radius²·e(u)
    reduction: float = 0.0  # the Gaussians that the release is compared with have mu² less by up to this

    @property
    def start(self) -> float:
        """Where the series end; 0 if they prove nothing on this line."""
        return float(self.nodes[-1]) if len(self.nodes) else 0.0


def contour(
    expansion: Expansion, radius: float, mu: float, offset: float, tilted: TiltedExpansion | None = None
) -> Contour:
    """The contour up to the ω beyond which the series prove that the integrand is small."""
    longest = min(1.4 / expansion.c + _FINE_END / mu, tilted.end if tilted else math.inf)
    nodes = np.concatenate(
        [np.arange(0.0, _FINE_END, _FINE), np.arange(_FINE_END, max(longest * mu, 2 * _FINE_END), _COARSE)]
    )
    nodes = nodes / mu
    error, reduction = np.zeros(len(nodes)), 0.0
    for u in {0.5 + offset, 0.5 - offset}:
        error = np.maximum(error, expansion.error(u + 1j * nodes))
        if tilted:
            error = np.maximum(error, tilted.error(u, nodes))
            reduction = max(reduction, radius**2 * tilted.reduction(u))
    error *= radius**2
    # stop where the error outweighs the Gaussian's decay: the middle range has a better bound from there
    hopeless = ~((nodes * mu < 4) | (error < (nodes * mu) ** 2 / 4)) | ~np.isfinite(error)
    count = int(np.argmax(hopeless)) if hopeless.any() else len(nodes)
    distance = np.hypot(offset**2 - 0.25 - nodes**2, 2 * offset * nodes)  # |t² - t|, grows with ω
    # the expansion's own error/|t² - t| grows with ω; of the other only both parts do
    distance = distance[: max(count - 1, 0)] if tilted else distance[1:count]
    return Contour(offset, nodes[:count], error[1:count], distance, float(error[0]), reduction)


def contour_end(smoothing: float) -> float:
    """Ω: beyond it the smoothing alone makes the integrand small."""
    return _DECAY / smoothing


def _series_integral(line: Contour, mu_squared: float, end: float) -> float:
    """Upper sum of exp(-ω²mu²/2)·(exp(radius²e) - 1)/|t² - t| as far as the series go.

    On each interval of ω the Gaussian factor is largest on the left, exp(radius²e) - 1 on the right; |t² - t|
    is taken where `contour` says.
    """
    inside = line.nodes[:-1] < end
    left, right, error = line.nodes[:-1][inside], line.nodes[1:][inside], line.error[inside]
    with np.errstate(over="ignore"):
        body = np.exp(error + _gaussian(line, left, mu_squared)) * -np.expm1(-error) / line.distance[inside]
    return float((body * (right - left)).sum())


def _gaussian(line: Contour, omega: FloatArray, mu_squared: float) -> FloatArray:
    """ln |exp((t²-t)m²/2)| - (u²-u)·mu²/2 for the worst m² in [mu² - reduction, mu²]; falls with ω."""
    return -(omega**2) * (mu_squared / 2) + np.maximum(
        0.0, (omega**2 + 0.25 - line.offset**2) * (line.reduction / 2)
    )


def series_error(line: Contour, mu: float) -> float:
    """`contour_errors` with the first of its three ranges only, on one line and without smoothing."""
    integral = _series_integral(line, mu**2, math.inf)
    return (line.offset**2 - 0.25) * mu**2 / 2 + math.log(max(integral, 1e-300) / math.pi)


def contour_errors(
    lines: list[Contour], middle: Middle | None, radius: float, mu: float, smoothing: float
) -> FloatArray:
    """The logarithm of the error constant C_u for each line.

    |H_ε - the Gaussian's H_ε| <= C_u·e^(ε(1-u)), forwards on Re t = u, backwards on Re t = 1 - u.

    `mu` is that of the coordinates alone; the factor exp((u²-u)(mu²+smoothing²)/2) is taken out of all three
    ranges.
    """
    end = contour_end(smoothing)
    total2 = mu**2 + smoothing**2
    if middle is None:
        integrals = np.array([0.0 if line.start >= end else math.inf for line in lines])
    else:
        integrals = middle.integrals(lines, radius, mu, smoothing, end)
    errors = []
    for line, integral in zip(lines, integrals.tolist(), strict=True):
        integral += _series_integral(line, total2, end)
        # beyond Ω only the smoothing is used: |E r^t| <= E r^u <= exp(radius²(A(u) + e(u)))
        real = line.offset**2 - 0.25  # u² - u
        beyond = (math.exp(min(line.on_axis, 600.0)) + 1) * math.exp(max(0.0, -real * line.reduction / 2))
        integral += beyond * math.exp(-((end * smoothing) ** 2) / 2) / end
        possible = 0 < integral < math.inf
        errors.append(real * total2 / 2 + math.log(integral / math.pi) if possible else math.inf)
    return np.array(errors)


class Middle:
    """Bounds |E r_x^t| <= exp(x²·β(t)) for x in (0, b] and ω in [start, end].

    They serve where the series for x = b no longer prove anything. `near`: another one's, to start the search
    for splits from.
    """

    def __init__(
        self,
        values: Ratios,
        b: float,
        start: float,
        end: float,
        highest: float,
        near: Middle | None = None,
        mu: float = math.inf,
    ) -> None:
        count = max(1, math.ceil(math.log(end / start) / math.log(_SEGMENT)))
        edges = np.geomspace(start, end, count + 1).tolist()
        self.segments: list[_Segment] = []
        shrinks = near.segments[0].shrinks if near else 0
        for low, high in itertools.pairwise(edges):
            grid = _FINE_GRID if low * mu < _FINE_GRID_END else GRID
            self.segments.append(_Segment(values, b, low, high, highest, shrinks, grid))
            shrinks = self.segments[-1].shrinks

    def integrals(
        self, lines: list[Contour], radius: float, mu: float, smoothing: float, end: float
    ) -> FloatArray:
        """For each line, a bound on an integral over [line.start, end].

        The integrand is (|E Π r^t| + |Gaussian|)·exp(-ω²s²/2)/|t² - t|.

        Both factors are taken over the Gaussian's value on the axis, exp((u²-u)mu²/2).
        """
        values = np.zeros(len(lines))
        for segment in self.segments:
            starts = np.array([max(segment.low, line.start) for line in lines])
            high = min(segment.high, end)
            for low in np.unique(starts[starts < high]).tolist():  # lines with the same nodes
                same_start = np.flatnonzero(starts == low)
                nodes = np.linspace(low, high, math.ceil((high - low) / segment.width) + 1)
                left, right = nodes[:-1], nodes[1:]
                offset = np.array([[lines[i].offset] for i in same_start])
                worst = segment.log_bound(offset[:, 0], left, right)
                real = offset**2 - 0.25
                gaussian = np.array([_gaussian(lines[i], left, mu**2) for i in same_start])
                product = np.minimum(radius**2 * worst - real * mu**2 / 2, 700.0)
                distance = np.hypot(real - left**2, 2 * offset * left)
                body = (np.exp(product) + np.exp(gaussian)) * np.exp(-(left**2) * smoothing**2 / 2) / distance
                values[same_start] += (body * (right - left)).sum(axis=1)
        return values


class _Segment:
    """One range [low, high] of ω: series for x up to `split`, a grid with Lipschitz constants for the rest.

    Any split gives a bound. The largest widest·0.8^shrinks at which the series are good is taken, looked for
    from `near`, the shrinks of a neighbouring segment.
    """

    def __init__(
        self, values: Ratios, b: float, low: float, high: float, highest: float, near: int, grid: float
    ) -> None:
        self.low, self.high = low, high
        self.mass = values.mass
        self.error = 0.0 if values.table.sharp else 2 * values.table.error  # relative, of masses and ratios
        corners = np.array([highest + 1j * high, 1 - highest + 1j * high])
        chi = math.sqrt(values.chi_square)
        widest = min(b, 0.95 / (chi * abs(corners[0])))

        @functools.cache
        def series(shrinks: int) -> Expansion:
            return Expansion(values, widest * 0.8**shrinks, 1 - highest, highest)

        def good(shrinks: int) -> bool:
            expansion = series(shrinks)
            return bool((expansion.error(corners) <= 0.25 * values.chi_square * low**2).all())

        self.shrinks = _first(good, near)
        self.series = series(self.shrinks)
        self.whole = series(0) if widest == b else None
        self.split = widest * 0.8**self.shrinks
        self.width = grid / (b * chi)
        self.spans = list(self._spans(values, b, grid / (chi * math.hypot(high, highest))))

    def _spans(self, values: Ratios, b: float, width: float) -> Iterator[tuple[float, float, FloatArray]]:
        """Pieces of (split, b] inside unit cells, at most `width` wide: (low, high, rows).

        rows: ln r in the middle, the smaller and the larger one of both ends, and |r_end - r_start|.
        """
        for s in range(math.floor(self.split), math.ceil(b)):
            low, high = max(self.split, float(s)), min(b, s + 1.0)
            if low >= high:
                continue
            start, end = values.lift(low), values.lift(high)
            edges = np.linspace(0.0, 1.0, math.ceil((high - low) / width) + 1).tolist()
            for a, z in itertools.pairwise(edges):
                middle = start + (end - start) * ((a + z) / 2)
                ends = start + (end - start) * a, start + (end - start) * z
                logs = np.log1p((middle, np.minimum(*ends), np.maximum(*ends)))
                rows = np.stack([*logs, np.abs(ends[1] - ends[0])])
                yield low + a * (high - low), low + z * (high - low), rows

    def log_bound(self, offsets: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
        """The bound β for each offset (rows) on each interval of ω (columns).

        It is an upper bound on ln|E r_x^t|/x² over 0 < x <= b, on Re t = 1/2 + offset and 1/2 - offset.
        """
        u = np.concatenate([0.5 + offsets, 0.5 - offsets])[:, None]
        # Re A falls with ω: taken on the left; e grows: on the right
        bound = self.series.gaussian(u + 1j * left).real + self.series.error(u + 1j * right)
        size, step = np.hypot(u, right), float(right[0] - left[0])
        for low, high, rows in self.spans:
            modulus, spread, steep, total = tilted_modulus(
                self.mass, rows, offsets, float(left[0] + right[0]) / 2, step, len(left)
            )
            # Lipschitz in ω and in x; the margin covers rounding, levels left out and the table's own error
            change = step / 2 * spread[:, None] + size * (steep / 2)[:, None]
            margin = (1e-10 + self.error * (1 + size * high)) * np.maximum(total, 1.0)[:, None]
            log = np.log(modulus + change + margin)
            bound = np.maximum(bound, np.where(log < 0, log / high**2, log / low**2))
        if (
            self.whole
        ):  # the series for all of (0, b]: better on the inner lines, where few levels spoil the grid
            other = self.whole.gaussian(u + 1j * left).real + self.whole.error(u + 1j * right)
            bound = np.minimum(bound, other)
        return np.asarray(np.maximum(*np.split(bound, 2)))


def _first(good: Callable[[int], bool], near: int) -> int:
    """A number that is good, while the one before it is not; or 0, or `_MOST_SHRINKS`.

    The search goes in growing steps from `near`, then by halves.
    """
    bad, fine, step = -1, _MOST_SHRINKS, 1
    while fine - bad > 1:
        near = near if bad < near < fine else (bad + fine) // 2
        if good(near):
            fine, near = near, near - step
        else:
            bad, near = near, near + step
        step *= 2
    return fine
