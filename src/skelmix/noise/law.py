"""What every integer law offers, and what those with an exact sampler offer beyond."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import ArrayLike

from skelmix.arrays import FloatArray, IntArray
from skelmix.errors import InvalidInput
from skelmix.noise.certified import precision, thresholds

Number = int | float | Fraction


def exact(value: Number | np.integer[Any] | np.floating[Any]) -> Number:
    """The same number as a plain Python number; the caller has checked that it is real and finite."""
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.floating):
        near = float(value)
        return near if near == value else Fraction(*map(int, value.as_integer_ratio()))  # a long double
    return value


def integers(k: ArrayLike) -> IntArray:
    values = np.asarray(k)
    if values.dtype.kind not in "iu":
        raise InvalidInput(f"k has dtype {values.dtype}: must be integers; pass for example np.arange(-3, 4)")
    return values.astype(np.int64)


class Law(ABC):
    """A log-concave law on the integers."""

    @property
    @abstractmethod
    def mean(self) -> float: ...

    @property
    @abstractmethod
    def variance(self) -> float: ...

    @property
    @abstractmethod
    def symmetric(self) -> bool:
        """P(X = k) = P(X = -k) for all k."""

    @abstractmethod
    def log_pmf(self, k: ArrayLike) -> FloatArray:
        """ln P(X = k), -inf outside the support, in float64, for analysis."""

    def pmf(self, k: ArrayLike) -> FloatArray:
        """P(X = k) in float64, for analysis."""
        return np.exp(self.log_pmf(k))

    @abstractmethod
    def sum_of(self, n: int) -> Law:
        """The law of the sum of n independent copies."""

    @abstractmethod
    def log_tail(self, distance: float) -> float:
        """An upper bound on ln P(X - mean >= distance) and on ln P(X - mean <= -distance) (Chernoff)."""

    def support_bound(self, log_tail: float) -> tuple[int, int]:
        """`(low, high)`: the mass outside low..high is certainly below exp(log_tail), log_tail < 0."""
        if not log_tail < 0:
            raise InvalidInput(f"log_tail = {log_tail}: must be negative, e.g. math.log(1e-12)")
        goal = log_tail - math.log(2) - 1e-6 * (1 - log_tail)  # two tails, and room for rounding
        reach = math.sqrt(self.variance) + 1
        while self.log_tail(reach) > goal:
            reach *= 2
        inside = 0.0
        for _ in range(60):
            middle = (inside + reach) / 2
            inside, reach = (middle, reach) if self.log_tail(middle) > goal else (inside, middle)
            if reach - inside < 0.25:
                break
        return math.floor(self.mean - reach), math.ceil(self.mean + reach)


class BallLaw(Law):
    """A law whose masses ball arithmetic can enclose: it has certified CDFs and an exact sampler."""

    @abstractmethod
    def masses(self, tail_bits: int) -> tuple[int, list[arb]]:
        """See `CertifiedLaw.masses`."""

    @abstractmethod
    def _pmf_ball(self, k: int) -> arb: ...

    def exact_cdf(self, k: int) -> Fraction | None:
        return None

    def pmf_ball(self, k: int, precision_bits: int = 128) -> arb:
        """A ball around P(X = k), computed with this many bits (about as many are right)."""
        with precision(precision_bits + 64):
            return self._pmf_ball(int(k))

    def cdf_ball(self, k: int, precision_bits: int = 128) -> arb:
        """A ball around P(X <= k) of radius at most 2^-precision_bits, from the certified integer floor."""
        first, floors = thresholds(self, precision_bits + 1)
        index = int(k) - first
        with precision(precision_bits + 64):
            cell = arb(2) ** -(precision_bits + 1)
            if index < 0:
                return arb(0).union(cell)
            if index >= len(floors):
                return arb(1).union(1 - cell)
            return (arb(floors[index]) * cell).union((arb(floors[index]) + 1) * cell)


def bennett(distance: float, variance: float) -> float:
    """Bennett's bound: ln P(X - mean >= t) <= -V·h(t/V), h(u) = (1+u)ln(1+u) - u, for Poissonian tails."""
    u = distance / variance
    if u < 1e-4:
        return -variance * u * u * (0.5 - u / 6)
    return -variance * ((1 + u) * math.log1p(u) - u)


Ratio = Callable[[int], arb]


def spread(mode: int, top: arb, tail_bits: int, up: Ratio, down: Ratio) -> tuple[int, list[arb]]:
    """Masses outwards from the mode, by up(k) = f(k+1)/f(k) and down(k) = f(k-1)/f(k), until both are small.

    Where the support ends, its end is marked by one mass of exactly zero.
    """
    upper = _outwards(mode, 1, top, tail_bits, up)
    lower = _outwards(mode, -1, top, tail_bits, down)
    lower.reverse()
    return mode - len(lower), [*lower, top, *upper]


def _outwards(k: int, step: int, mass: arb, tail_bits: int, ratio: Ratio) -> list[arb]:
    small = arb(2) ** -tail_bits
    masses: list[arb] = []
    while not mass < small:
        mass = mass * ratio(k)
        k += step
        masses.append(mass)
    return masses
