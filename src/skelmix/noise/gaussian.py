"""The discrete Gaussian and the sum of several."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, arb_poly, ctx
from numpy.typing import ArrayLike, NDArray

from skelmix.arrays import FloatArray
from skelmix.noise.certified import ball
from skelmix.noise.law import BallLaw, Number, exact, integers
from skelmix.validation import positive, whole


@dataclass(frozen=True, init=False)
class DiscreteGaussian(BallLaw):
    """N_Z(0, σ²) with σ² = `variance` > 0: P(X = k) proportional to exp(-k²/(2σ²)).

    `parameter` is σ² as given; the property `variance` is the law's true variance, a little below σ².
    """

    parameter: Number

    def __init__(self, variance: Number) -> None:
        positive(variance=variance)
        object.__setattr__(self, "parameter", exact(variance))

    @property
    def mean(self) -> float:
        return 0.0

    @property
    def variance(self) -> float:
        k, mass = self._weights()
        return float(2 * (mass * k.astype(np.float64) ** 2).sum() / (1 + 2 * mass.sum()))

    @property
    def symmetric(self) -> bool:
        return True

    def _weights(self) -> tuple[NDArray[np.int64], FloatArray]:
        parameter = float(self.parameter)
        k = np.arange(1, math.ceil(9 * math.sqrt(parameter)) + 3, dtype=np.int64)
        return k, np.exp(-(k.astype(np.float64) ** 2) / (2 * parameter))

    def log_pmf(self, k: ArrayLike) -> FloatArray:
        values = integers(k).astype(np.float64)
        return np.asarray(
            -(values**2) / (2 * float(self.parameter)) - math.log1p(2 * self._weights()[1].sum())
        )

    def sum_of(self, n: int) -> DiscreteGaussianSum:
        whole(1, n=n)
        return DiscreteGaussianSum(self.parameter, int(n))

    def log_tail(self, distance: float) -> float:
        # sub-Gaussian with its parameter (Canonne, Kamath and Steinke 2020, Corollary 17)
        return -distance * distance / (2 * float(self.parameter))

    def _half(self, tail_bits: int) -> list[arb]:
        """Weights exp(-k²/(2σ²)), k = 0, 1, …, by two ratios."""
        step = (-1 / (2 * ball(self.parameter))).exp()
        last = max(2, self.support_bound(-(tail_bits + 8) * math.log(2))[1])
        weight, ratio, square = arb(1), step, step * step
        weights = [weight]
        for _ in range(last):
            weight, ratio = weight * ratio, ratio * square
            weights.append(weight)
        return weights

    def _total(self, half: list[arb]) -> arb:
        total = half[-1] * (half[-1] / half[-2]) / (1 - half[-1] / half[-2])
        total = arb(0).union(total)
        for weight in reversed(half[1:]):
            total = total + weight
        return 1 + 2 * total

    def _pmf_ball(self, k: int) -> arb:
        total = self._total(self._half(ctx.prec))
        return (-(arb(k) ** 2) / (2 * ball(self.parameter))).exp() / total

    def masses(self, tail_bits: int) -> tuple[int, list[arb]]:
        half = self._half(tail_bits)
        inverse = 1 / self._total(half)
        return 0, [weight * inverse for weight in half]


@dataclass(frozen=True, init=False)
class DiscreteGaussianSum(BallLaw):
    """The sum of `copies` independent N_Z(0, `variance`), log-concave as they are.

    Balls around its masses are the coefficients of a power: quick for a few copies, or narrow ones. Its
    float64 masses come from direct convolutions of non-negative terms, so that tails keep their relative
    accuracy: the relative error is at most about 2^-52·copies·(terms of a convolution), as the errors of the
    factors add up. Masses below e^-300 are not kept and count as zero there.
    """

    parameter: Number
    copies: int

    def __init__(self, variance: Number, copies: int) -> None:
        positive(variance=variance)
        whole(1, copies=copies)
        object.__setattr__(self, "parameter", exact(variance))
        object.__setattr__(self, "copies", int(copies))

    @property
    def mean(self) -> float:
        return 0.0

    @property
    def variance(self) -> float:
        return self.copies * DiscreteGaussian(self.parameter).variance

    @property
    def symmetric(self) -> bool:
        return True

    def log_pmf(self, k: ArrayLike) -> FloatArray:
        values = np.abs(integers(k))
        half = _gaussian_sum_masses(Fraction(self.parameter), self.copies)
        inside = values < len(half)
        with np.errstate(divide="ignore"):
            return np.where(inside, np.log(half[np.where(inside, values, 0)]), -np.inf)

    def sum_of(self, n: int) -> DiscreteGaussianSum:
        whole(1, n=n)
        return DiscreteGaussianSum(self.parameter, self.copies * int(n))

    def log_tail(self, distance: float) -> float:
        return -distance * distance / (2 * self.copies * float(self.parameter))  # sub-Gaussian parameters add

    def _pmf_ball(self, k: int) -> arb:
        return self._up_to(abs(k))[-1]

    def masses(self, tail_bits: int) -> tuple[int, list[arb]]:
        return 0, self._up_to(max(2, self.support_bound(-tail_bits * math.log(2))[1]))

    def _up_to(self, last: int) -> list[arb]:
        """Balls around P(S = k), k = 0..last.

        They are the coefficients of (Σ P(X = j)·z^j)^copies over |j| <= K, plus at most copies·P(|X| > K),
        which is small beside the last.
        """
        bits = ctx.prec - math.floor(self.log_tail(last) / math.log(2))
        _, half = DiscreteGaussian(self.parameter).masses(bits)
        reach = len(half)  # K + 1
        beyond = 2 * self.copies * (-(arb(reach) ** 2) / (2 * ball(self.parameter))).exp()  # as in log_tail
        power = arb_poly(half[:0:-1] + half) ** self.copies
        middle = (reach - 1) * self.copies
        missing = arb(0).union(beyond)
        return [power[middle + k] + missing for k in range(last + 1)]


_CUT = 300.0  # natural logarithm: masses below e^-300 are not kept


@functools.lru_cache(maxsize=32)
def _gaussian_sum_masses(parameter: Fraction, copies: int) -> FloatArray:
    """P(S = k) for k = 0, 1, … of the sum of `copies` discrete Gaussians."""
    reach = math.ceil(math.sqrt(2 * _CUT * copies * float(parameter))) + 1
    k = np.arange(-reach, reach + 1)
    # masses of the sum and of N_Z(0, nσ²) differ by a factor of at most exp(10·n·e^(-π²σ²)), here 1 + n·4e-21
    # (Kairouz, Liu and Steinke 2021, Theorem 9)
    if parameter >= 5 or copies == 1:
        return DiscreteGaussian(parameter * copies).pmf(k[reach:])
    single = DiscreteGaussian(parameter).pmf(k)
    single = single[single > 0]
    result = single
    for bit in bin(copies)[3:]:
        result = _convolved(result, result, reach)
        if bit == "1":
            result = _convolved(result, single, reach)
    return np.ascontiguousarray(result[len(result) // 2 :])


def _convolved(a: FloatArray, b: FloatArray, reach: int) -> FloatArray:
    whole_range = np.convolve(a, b)
    excess = max(0, len(whole_range) // 2 - reach)
    return whole_range[excess : len(whole_range) - excess]
