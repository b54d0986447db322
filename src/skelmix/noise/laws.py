"""Integer noise laws: Poisson, Skellam, discrete Gaussian, binomial.

Laws are frozen and comparable. A float parameter stands for its exact binary value; an int or a Fraction for itself: laws with equal
parameters are equal, whatever the type. `pmf` and `log_pmf` are float64, for analysis only; sampling and certified accounting
use the balls (`masses`, `pmf_ball`, `cdf_ball`).
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, ctx
from numpy.typing import ArrayLike, NDArray
from scipy import special

from skelmix.errors import InvalidInput
from skelmix.noise.certified import ball, precision, thresholds
from skelmix.validation import positive, whole

Number = int | float | Fraction
FloatArray = NDArray[np.float64]


def _integers(k: ArrayLike) -> NDArray[np.int64]:
    values = np.asarray(k)
    if values.dtype.kind not in "iu":
        raise InvalidInput(f"k has dtype {values.dtype}: must be integers")
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
        """ln P(X = k), -inf outside the support, in float64 for analysis (relative error of the mass about 1e-12)."""

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


def _poissonian_rate(distance: float, variance: float) -> float:
    """Bennett's bound: ln P(X - mean >= t) <= -V·h(t/V), h(u) = (1+u)ln(1+u) - u, for Poissonian tails."""
    u = distance / variance
    if u < 1e-4:
        return -variance * u * u * (0.5 - u / 6)
    return -variance * ((1 + u) * math.log1p(u) - u)


@dataclass(frozen=True)
class Poisson(BallLaw):
    """Poisson(rate), rate > 0."""

    rate: Number

    def __post_init__(self) -> None:
        positive(rate=self.rate)

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
        values = _integers(k)
        rate = float(self.rate)
        known = np.maximum(values, 0).astype(np.float64)
        return np.where(values < 0, -np.inf, special.xlogy(known, rate) - rate - special.gammaln(known + 1))

    def sum_of(self, n: int) -> Poisson:
        whole(1, n=n)
        return Poisson(Fraction(self.rate) * int(n))

    def log_tail(self, distance: float) -> float:
        return _poissonian_rate(distance, self.variance)  # the upper tail; the lower one is lighter

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
        return _spread(mode, top, tail_bits, lambda k: rate / (k + 1), lambda k: inverse * k)


Ratio = Callable[[int], arb]


def _spread(mode: int, top: arb, tail_bits: int, up: Ratio, down: Ratio) -> tuple[int, list[arb]]:
    """Masses outwards from the mode by the ratios up(k) = f(k+1)/f(k) and down(k) = f(k-1)/f(k), until both tails are small.

    Where the support ends, its end is marked by one mass of exactly zero.
    """
    upper = _outwards(mode, 1, top, tail_bits, up)
    lower = _outwards(mode, -1, top, tail_bits, down)
    lower.reverse()
    return mode - len(lower), [*lower, top, *upper]


def _outwards(k: int, step: int, mass: arb, tail_bits: int, ratio: Ratio) -> list[arb]:
    small = arb(2) ** -tail_bits
    found: list[arb] = []
    while not mass < small:
        mass = mass * ratio(k)
        k += step
        found.append(mass)
    return found


@dataclass(frozen=True)
class Skellam(BallLaw):
    """The paper's Sk(rate, rate): the difference of two independent Poisson(rate), variance 2·rate, rate > 0."""

    rate: Number

    def __post_init__(self) -> None:
        positive(rate=self.rate)

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
        values = np.abs(_integers(k)).astype(np.float64)
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
        """Backwards by I_{k-1} = I_{k+1} + (2k/x)·I_k, x = 2·rate: all terms positive, so the relative radius hardly grows."""
        _, last = self.support_bound(-tail_bits * math.log(2))
        last = max(last, 2)
        inverse = 1 / ball(self.rate)
        following, mass = self._pmf_ball(last + 1), self._pmf_ball(last)
        found = [following, mass]
        for k in range(last, 0, -1):
            following, mass = mass, following + inverse * k * mass
            found.append(mass)
        found.reverse()
        return 0, found


def _log_scaled_bessel(order: FloatArray, x: float) -> FloatArray:
    """ln(e^-x I_order(x)) for order >= 0, from the scaled Bessel function, or Debye's expansion where that underflows."""
    with np.errstate(divide="ignore", under="ignore", invalid="ignore"):
        result = np.atleast_1d(np.log(special.ive(order, x)))
    far = np.atleast_1d(~(result > -600))
    if far.any():
        nu = np.atleast_1d(order)[far]
        result[far] = _debye(nu, x)
    return result.reshape(np.shape(order))


def _debye(nu: FloatArray, x: float) -> FloatArray:
    """ln(e^-x I_nu(x)) by the uniform expansion in 1/nu (DLMF 10.41.3), five terms; used for masses below e^-600 only."""
    root = np.hypot(nu, x)
    t = nu / root
    # root - x + nu·ln(x/(nu + root)), written so that nothing cancels
    exponent = nu * nu / (root + x) - nu * np.arcsinh(nu / x)
    t2 = t * t
    u1 = t * (3 - 5 * t2) / 24
    u2 = t2 * (81 - 462 * t2 + 385 * t2**2) / 1152
    u3 = t * t2 * (30375 - 369603 * t2 + 765765 * t2**2 - 425425 * t2**3) / 414720
    u4 = (
        t2**2
        * (4465125 - 94121676 * t2 + 349922430 * t2**2 - 446185740 * t2**3 + 185910725 * t2**4)
        / 39813120
    )
    series = u1 / nu + u2 / nu**2 + u3 / nu**3 + u4 / nu**4
    return np.asarray(exponent - 0.5 * np.log(2 * math.pi * root) + np.log1p(series))


@dataclass(frozen=True, init=False)
class DiscreteGaussian(BallLaw):
    """N_Z(0, σ²) with σ² = `variance` > 0: P(X = k) proportional to exp(-k²/(2σ²)).

    `parameter` is σ² as given; the property `variance` is the law's true variance, a little below σ².
    """

    parameter: Number

    def __init__(self, variance: Number) -> None:
        positive(variance=variance)
        object.__setattr__(self, "parameter", variance)

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
        values = _integers(k).astype(np.float64)
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
        found = [weight]
        for _ in range(last):
            weight, ratio = weight * ratio, ratio * square
            found.append(weight)
        return found

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
class DiscreteGaussianSum(Law):
    """The sum of `copies` independent N_Z(0, `variance`). No closed form: float64 masses only, no exact sampler.

    A sum of this law is drawn by adding the copies. The masses come from direct convolutions (repeated squaring) of
    non-negative float64 terms, so each carries a relative error of at most about 2^-53·(terms)·(2·log2(copies)), below 1e-9 here,
    in the tails as well, but for what is cut: every factor is cut where its mass is below e^-`_CUT` of the total.
    """

    parameter: Number
    copies: int

    def __init__(self, variance: Number, copies: int) -> None:
        positive(variance=variance)
        whole(1, copies=copies)
        object.__setattr__(self, "parameter", variance)
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
        values = np.abs(_integers(k))
        half = _gaussian_sum_masses(Fraction(self.parameter), self.copies)
        inside = values < len(half)
        with np.errstate(divide="ignore"):
            return np.where(inside, np.log(half[np.where(inside, values, 0)]), -np.inf)

    def sum_of(self, n: int) -> DiscreteGaussianSum:
        whole(1, n=n)
        return DiscreteGaussianSum(self.parameter, self.copies * int(n))

    def log_tail(self, distance: float) -> float:
        return -distance * distance / (2 * self.copies * float(self.parameter))  # sub-Gaussian parameters add


_CUT = 300.0  # natural logarithm: masses below e^-300 are not kept


@functools.lru_cache(maxsize=32)
def _gaussian_sum_masses(parameter: Fraction, copies: int) -> FloatArray:
    """P(S = k) for k = 0, 1, … of the sum of `copies` discrete Gaussians."""
    reach = math.ceil(math.sqrt(2 * _CUT * copies * float(parameter))) + 1
    k = np.arange(-reach, reach + 1)
    sigma2 = float(parameter)
    # Poisson summation: where σ² >= 5 the sum differs from N_Z(0, nσ²) by a relative amount below 1e-40·n
    if sigma2 >= 5 or copies == 1:
        return DiscreteGaussian(parameter * copies).pmf(k[reach:])
    power, result, left = DiscreteGaussian(parameter).pmf(k), None, copies
    power = power[power > 0]
    while True:
        if left & 1:
            result = power if result is None else _convolved(result, power, reach)
        left >>= 1
        if not left:
            break
        power = _convolved(power, power, reach)
    return np.ascontiguousarray(result[len(result) // 2 :])


def _convolved(a: FloatArray, b: FloatArray, reach: int) -> FloatArray:
    whole_range = np.convolve(a, b)
    excess = max(0, len(whole_range) // 2 - reach)
    return whole_range[excess : len(whole_range) - excess]


@dataclass(frozen=True)
class Binomial(BallLaw):
    """Bin(trials, probability), or with `centred` minus its mean, which must then be an integer.

    trials >= 1 and 0 < probability < 1, int, Fraction or the exact value of a float.
    """

    trials: int
    probability: Number
    centred: bool = False

    def __post_init__(self) -> None:
        whole(1, trials=self.trials)
        if not 0 < self.probability < 1:
            raise InvalidInput(f"probability = {self.probability!r}: must be strictly between 0 and 1")
        if self.centred and (Fraction(self.probability) * self.trials).denominator != 1:
            raise InvalidInput(
                f"trials = {self.trials}, probability = {self.probability!r}: a centred binomial needs an integer mean; "
                "with probability 1/2 take an even number of trials"
            )

    @property
    def _shift(self) -> int:
        return int(Fraction(self.probability) * self.trials) if self.centred else 0

    @property
    def mean(self) -> float:
        return 0.0 if self.centred else self.trials * float(self.probability)

    @property
    def variance(self) -> float:
        return float(self.trials * Fraction(self.probability) * (1 - Fraction(self.probability)))

    @property
    def symmetric(self) -> bool:
        return self.centred and Fraction(self.probability) == Fraction(1, 2)

    def log_pmf(self, k: ArrayLike) -> FloatArray:
        values = _integers(k) + self._shift
        n, p = self.trials, float(self.probability)
        inside = (values >= 0) & (values <= n)
        v = np.where(inside, values, 0).astype(np.float64)
        log_choose = -np.log1p(n) - special.betaln(n - v + 1, v + 1)
        return np.where(inside, log_choose + special.xlogy(v, p) + special.xlog1py(n - v, -p), -np.inf)

    def sum_of(self, n: int) -> Binomial:
        whole(1, n=n)
        return Binomial(self.trials * int(n), self.probability, self.centred)

    def log_tail(self, distance: float) -> float:
        # Hoeffding (1963), Theorem 1, and Bennett's inequality with steps of at most 1: the better one
        return min(-2 * distance * distance / self.trials, _poissonian_rate(distance, self.variance))

    def exact_cdf(self, k: int) -> Fraction | None:
        n, p = self.trials, Fraction(self.probability)
        k += self._shift
        if p == Fraction(1, 2) and n == 2 * k + 1:
            return Fraction(1, 2)
        if n * p.denominator.bit_length() > 1 << 16:
            return None
        up, down = p.numerator, p.denominator - p.numerator
        return Fraction(
            sum(math.comb(n, j) * up**j * down ** (n - j) for j in range(min(k, n) + 1)), p.denominator**n
        )

    def _pmf_ball(self, k: int) -> arb:
        k, n = k + self._shift, self.trials
        if not 0 <= k <= n:
            return arb(0)
        p = ball(self.probability)
        choose = arb(n + 1).lgamma() - arb(k + 1).lgamma() - arb(n - k + 1).lgamma()
        return (choose + p.log() * k + (1 - p).log() * (n - k)).exp()

    def masses(self, tail_bits: int) -> tuple[int, list[arb]]:
        n, shift = self.trials, self._shift
        odds = ball(Fraction(self.probability) / (1 - Fraction(self.probability)))
        inverse = 1 / odds
        mode = min(n, math.floor((n + 1) * Fraction(self.probability)))
        with precision(ctx.prec + 64):  # the logarithms of the mode's mass cancel
            top = self._pmf_ball(mode - shift)
        first, found = _spread(
            mode, top, tail_bits, lambda k: odds * (n - k) / (k + 1), lambda k: inverse * k / (n - k + 1)
        )
        return (0, found[mode - first :]) if self.symmetric else (first - shift, found)
