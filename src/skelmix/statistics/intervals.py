"""Confidence intervals from the known law of the noise; each covers at least as often as it says.

They are about the data set that was asked, not about a population that it may have been drawn from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skelmix.arrays import FloatArray

_SHARE_FOR_MEAN = 0.02  # share of the error probability that pays for the unknown mean inside a variance
_GRID = 129  # means m whose intervals are joined


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error and interval.

    Example: `Estimate(value=100.0, standard_error=2.0, low=96.1, high=103.9)`.
    """

    value: float
    standard_error: float
    low: float
    high: float

    def clamped(self, low: float = -math.inf, high: float = math.inf) -> Estimate:
        """The estimate and its interval moved into [low, high], where the truth is known to lie."""
        return Estimate(
            min(max(self.value, low), high),
            self.standard_error,
            min(max(self.low, low), high),
            min(max(self.high, low), high),
        )

    def scaled(self, factor: float, shift: float = 0.0) -> Estimate:
        """factor > 0 times the estimate, plus a shift."""
        return Estimate(
            factor * self.value + shift, factor * self.standard_error, factor * self.low + shift,
            factor * self.high + shift,
        )  # fmt: skip


def normal_quantile(error: float) -> float:
    """z with P(|Z| > z) = error for a standard normal Z."""
    from scipy.special import ndtri

    return float(-ndtri(error / 2))


def ratio_set(
    numerator: float, sd_numerator: float, denominator: float, sd_denominator: float, z: float, limit: float
) -> tuple[float, float]:
    """Fieller's interval for a ratio of two means with independent Gaussian noise, within [-limit, limit].

    The set of θ with |numerator - θ·denominator| <= z·√(sd_n² + θ² sd_d²), which covers exactly as often as
    z says, whatever the denominator; where it is not an interval, the smallest one around it. (Fieller 1954.)
    """
    a = denominator**2 - (z * sd_denominator) ** 2
    b = numerator * denominator
    c = numerator**2 - (z * sd_numerator) ** 2
    discriminant = b * b - a * c
    if a > 0:
        root = math.sqrt(max(discriminant, 0.0))
        low, high = (b - root) / a, (b + root) / a
        return min(max(low, -limit), limit), min(max(high, -limit), limit)
    if a == 0 or discriminant <= 0:
        return -limit, limit
    root = math.sqrt(discriminant)
    left, right = (b + root) / a, (b - root) / a  # a < 0: the set lies outside of [left, right]
    low = -limit if left >= -limit else max(right, -limit)
    high = limit if right <= limit else min(left, limit)
    return (low, high) if low <= high else (-limit, limit)


def mean_estimate(total: float, sd_total: float, count: float, sd_count: float, error: float) -> Estimate:
    """The mean of values in [-1, 1] from the noisy sum and the noisy count."""
    low, high = ratio_set(total, sd_total, count, sd_count, normal_quantile(error), 1.0)
    value = min(max(total / count, -1.0), 1.0) if count > 0 else (low + high) / 2
    value = min(max(value, low), high)
    known = max(count, sd_count)
    return Estimate(value, math.hypot(sd_total, value * sd_count) / known, low, high)


def variance_estimate(sums: FloatArray, deviations: FloatArray, error: float) -> Estimate:
    """The variance of values t in [-1, 1] from noisy sums of 1, t and 2t² - 1.

    At the true mean m, the variance θ makes Σt² - 2mΣt + (m² - θ)n zero, which is linear in the released
    sums: an interval as Fieller's for each m, and their union over an interval for m that takes a small part
    of the error probability. The left-hand side is stationary in m there, so the union is hardly wider.
    """
    (count, first, second), (sd_count, sd_first, sd_second) = sums, deviations
    share = _SHARE_FOR_MEAN * error
    ends = ratio_set(first, sd_first, count, sd_count, normal_quantile(share), 1.0)
    z = normal_quantile(error - share)
    lows, highs = [], []
    for m in np.linspace(*ends, _GRID).tolist():
        # second/2 - 2m·first + (1/2 + m²)·count - θ·count = rest - θ'·count with θ' = θ - 1/2 - m²
        rest = second / 2 - 2 * m * first
        sd_rest = math.hypot(sd_second / 2, 2 * m * sd_first)
        low, high = ratio_set(rest, sd_rest, count, sd_count, z, 2.0)
        shift = 0.5 + m * m
        lows.append(low + shift)
        highs.append(high + shift)
    low, high = (min(max(end, 0.0), 1.0) for end in (min(lows), max(highs)))
    known = max(count, sd_count)
    m = min(max(first / known, -1.0), 1.0)
    value = min(max((second / known + 1) / 2 - m * m, low), high)
    spread = math.hypot(sd_second / 2, 2 * m * sd_first, (0.5 + m * m - value) * sd_count)
    return Estimate(value, spread / known, low, high)


@dataclass(frozen=True, eq=False)
class CumulativeNoise:
    """The noise of sums of the first 0, 1, 2, … of some counts: variances, and covariances with the last sum.

    Example: `CumulativeNoise.independent(3.0, 60).of_differences(0.5).max()`.
    """

    variances: FloatArray
    covariances: FloatArray

    @classmethod
    def independent(cls, deviation: float, count: int) -> CumulativeNoise:
        """Of counts with independent noise of the same standard deviation."""
        variances = deviation**2 * np.arange(count + 1, dtype=np.float64)
        return cls(variances, variances)

    def of_differences(self, p: float) -> FloatArray:
        """The standard deviation of each sum less p times the last one."""
        squares = self.variances - 2 * p * self.covariances + p**2 * self.variances[-1]
        deviations: FloatArray = np.sqrt(np.maximum(squares, 0.0))
        return deviations


class OrderedCounts:
    """Noisy counts of ordered bins, asked for a quantile.

    With D_k = (values in the first k bins) - p·(all values), the p-quantile lies in the bin j with
    D_{j-1} < 0 <= D_j.
    """

    def __init__(self, counts: FloatArray, edges: FloatArray, noise: CumulativeNoise) -> None:
        self._edges, self._noise = edges, noise
        self._cumulative = np.concatenate([[0.0], np.cumsum(counts)])

    def quantile(self, p: float, error: float) -> Estimate:
        """The p-quantile: interpolated within its bin; an interval of whole bins."""
        z = normal_quantile(error)
        first, last = self._bins(p, z)
        low, high = float(self._edges[first]), float(self._edges[last + 1])
        return Estimate(self._value(p), (high - low) / (2 * z), low, high)

    def _differences(self, p: float) -> FloatArray:
        differences: FloatArray = self._cumulative - p * self._cumulative[-1]
        return differences

    def _bins(self, p: float, z: float) -> tuple[int, int]:
        """The first and last bin that the quantile may lie in.

        The first is the first k at which D_k is not significantly negative, the last one follows the last k
        at which D_k is not significantly positive; each is wrong only if the test at the true bin is.
        """
        differences = self._differences(p)
        count = len(differences) - 1
        margin = z * self._noise.of_differences(p)
        not_negative = np.flatnonzero(differences[1:] >= -margin[1:])
        not_positive = np.flatnonzero(differences[:-1] <= margin[:-1])
        first = int(not_negative[0]) if not_negative.size else count - 1
        last = int(not_positive[-1]) if not_positive.size else 0
        return min(first, last), max(first, last)

    def _value(self, p: float) -> float:
        """Where D crosses zero; the middle when noise makes it cross several times."""
        first, last = self._bins(p, 0.0)
        left, right = (float(value) for value in self._differences(p)[[first, first + 1]])
        if first < last or not left < 0 <= right:
            return float(self._edges[first] + self._edges[last + 1]) / 2
        share = -left / (right - left)
        return float(self._edges[first] + share * (self._edges[first + 1] - self._edges[first]))
