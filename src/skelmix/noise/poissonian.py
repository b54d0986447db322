"""The Poisson and Skellam laws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, ctx
from numpy.typing import ArrayLike

from skelmix.arrays import FloatArray
from skelmix.noise.certified import ball, precision
from skelmix.noise.law import BallLaw, Number, bennett, exact, integers, spread
from skelmix.validation import positive, whole


@dataclass(frozen=True)
class Poisson(BallLaw):
    """The law Poisson(rate), rate > 0."""

    rate: Number

    def __post_init__(self) -> None:
        positive(rate=self.rate)
        object.__setattr__(self, "rate", exact(self.rate))

    @property
    def mean(self) -> float:
        return float(self.rate)

    @property
    def variance(self) -> float:
        return float(self.rate)

    @property
    def symmetric(self) -> bool:
        return False

    def log_pmf(self, k: ArrayLike) -> FloatArray:
        from scipy import special  # only analysis needs it: clients start faster without

        values = integers(k)
        rate = float(self.rate)
        known = np.maximum(values, 0).astype(np.float64)
        return np.where(values < 0, -np.inf, special.xlogy(known, rate) - rate - special.gammaln(known + 1))

    def sum_of(self, n: int) -> Poisson:
        whole(1, n=n)
        return Poisson(Fraction(self.rate) * int(n))

    def log_tail(self, distance: float) -> float:
        return bennett(distance, self.variance)  # the upper tail; the lower one is lighter

    def _pmf_ball(self, k: int) -> arb:
        if k < 0:
            return arb(0)
        rate = ball(self.rate)
        return (rate.log() * k - rate - arb(k + 1).lgamma()).exp()

    def masses(self, tail_bits: int) -> tuple[int, list[arb]]:
        rate, inverse = ball(self.rate), 1 / ball(self.rate)
        mode = math.floor(self.rate)
        with precision(ctx.prec + 64):  # the logarithms of the mode's mass cancel
            top = self._pmf_ball(mode)
        return spread(mode, top, tail_bits, lambda k: rate / (k + 1), lambda k: inverse * k)


@dataclass(frozen=True)
class Skellam(BallLaw):
    """The paper's Sk(rate, rate), rate > 0: the difference of two Poisson(rate), variance 2·rate."""

    rate: Number

    def __post_init__(self) -> None:
        positive(rate=self.rate)
        object.__setattr__(self, "rate", exact(self.rate))

    @property
    def mean(self) -> float:
        return 0.0

    @property
    def variance(self) -> float:
        return 2.0 * float(self.rate)

    @property
    def symmetric(self) -> bool:
        return True

    def log_pmf(self, k: ArrayLike) -> FloatArray:
        values = np.abs(integers(k)).astype(np.float64)
        return _log_scaled_bessel(values, 2.0 * float(self.rate))

    def sum_of(self, n: int) -> Skellam:
        whole(1, n=n)
        return Skellam(Fraction(self.rate) * int(n))

    def log_tail(self, distance: float) -> float:
        x = 2.0 * float(self.rate)  # the best t in exp(x(cosh t - 1) - t·distance) is asinh(distance/x)
        return distance * distance / (x + math.hypot(x, distance)) - distance * math.asinh(distance / x)

    def _pmf_ball(self, k: int) -> arb:
        return (2 * ball(self.rate)).bessel_i(arb(abs(k)), scaled=True)

    def masses(self, tail_bits: int) -> tuple[int, list[arb]]:
        """All masses by the backward recurrence I_{k-1} = I_{k+1} + (2k/x)·I_k, x = 2·rate.

        All terms are positive, so nothing cancels.
        """
        _, last = self.support_bound(-tail_bits * math.log(2))
        last = max(last, 2)
        inverse = 1 / ball(self.rate)
        following, mass = self._pmf_ball(last + 1), self._pmf_ball(last)
        balls = [following, mass]
        for k in range(last, 0, -1):
            following, mass = mass, following + inverse * k * mass
            balls.append(mass)
        balls.reverse()
        return 0, balls


def _log_scaled_bessel(order: FloatArray, x: float) -> FloatArray:
    """ln(e^-x I_order(x)), order >= 0; by Debye's expansion where x is large or the mass underflows."""
    from scipy import special  # only analysis needs it: clients start faster without

    if x >= _DEBYE_FROM:
        return _debye(order, x)
    with np.errstate(divide="ignore", under="ignore", invalid="ignore"):
        near = np.log(special.ive(order, x))
    return np.where(near > -600, near, _debye(order, x))


_DEBYE_FROM = 2000.0


def _debye(order: FloatArray, x: float) -> FloatArray:
    """ln(e^-x I_order(x)) by the uniform expansion (DLMF 10.41.3) in powers of 1/√(order² + x²), four terms.

    The first term left out is below 1/root^5 (root = √(order² + x²)): under 1e-16 where root >= 2000, and
    under 1e-9 where it stands in for an underflow, since a mass below e^-600 has an order above 60.
    """
    root = np.hypot(order, x)
    t = (order / root) ** 2
    exponent = order * order / (root + x) - order * np.arcsinh(order / x)  # root - x - order·asinh(order/x)
    u1 = (3 - 5 * t) / 24
    u2 = (81 - 462 * t + 385 * t**2) / 1152
    u3 = (30375 - 369603 * t + 765765 * t**2 - 425425 * t**3) / 414720
    u4 = (4465125 - 94121676 * t + 349922430 * t**2 - 446185740 * t**3 + 185910725 * t**4) / 39813120
    series = (u1 + (u2 + (u3 + u4 / root) / root) / root) / root
    return np.asarray(exponent - 0.5 * np.log(2 * math.pi * root) + np.log1p(series))
