"""Privacy-loss distributions of Poisson-sampled Gaussian rounds, on a grid, rounded to the private side.

A distribution is the law of ln(P/Q) under P at multiples of an interval. One round is put on the grid by
"connect the dots" (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022, Algorithm 1): its hockey-stick
divergences are the exact ones at the multiples and above them in between. Rounds are composed by fast Fourier
transforms (`transforms`), whose rounding is bounded and counted in δ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.fft import next_fast_len
from scipy.special import log_ndtr

from skelmix.accounting.gaussian.transforms import convolution, convolution_power
from skelmix.arrays import FloatArray

_FARTHEST = 9.98  # deviations beyond which the mass is below e^-50
_TAIL = 1e-15  # mass that a composition may cut off; it counts as an infinite loss
_ORDERS = 20  # exponents of the Chernoff bounds that say where to cut

DIVERGENCE_ERROR = 2.0**-50  # assumed of the divergences of one round, and taken off δ once per round


@dataclass(frozen=True)
class Losses:
    """mass[k] at the loss (first + k)·interval, and `infinite` at infinity.

    rounding: bound on the sum of the errors that transforms have left in `mass`. `delta` and `epsilon` take
    the masses as they stand; whoever makes a claim adds `rounding` to δ.
    """

    interval: float
    first: int
    mass: FloatArray
    infinite: float
    rounding: float = 0.0

    def delta(self, epsilon: float) -> float:
        """H_ε(P‖Q), from above."""
        skip = max(0, math.floor(epsilon / self.interval) - self.first)
        gap = epsilon - (self.first + np.arange(skip, len(self.mass))) * self.interval
        return self.infinite + float(-np.expm1(np.minimum(gap, 0.0)) @ self.mass[skip:])

    def epsilon(self, delta: float) -> float:
        """The least ε >= 0 with H_ε(P‖Q) <= δ; infinity if there is none."""
        if self.infinite > delta:
            return math.inf
        skip = max(0, -self.first)  # ε is not negative: from the loss 0 on
        if skip >= len(self.mass) or (self.first > 0 and self.delta(0.0) <= delta):
            return 0.0
        mass = self.mass[skip:]
        losses = (self.first + np.arange(skip, len(self.mass))) * self.interval
        upper = self.infinite + np.cumsum(mass[::-1])[::-1]  # mass of P from each loss on
        lower = np.cumsum((mass * np.exp(-losses))[::-1])[::-1]  # mass of Q from each loss on
        too_much = upper - np.exp(np.minimum(losses, 700.0)) * lower > delta  # H_ε at each loss
        too_much[-1] = False  # only `infinite` is beyond the last one
        k = int(np.flatnonzero(too_much)[-1]) + 1 if too_much.any() else 0
        if not (upper[k] > delta and lower[k] > 0):
            return float(losses[k])
        # between the loss before k and k itself H_ε = upper - e^ε·lower
        return min(float(losses[k]), max(0.0, math.log((upper[k] - delta) / lower[k])))

    def repeated(self, rounds: int) -> Losses:
        """The loss of `rounds` such rounds."""
        if rounds == 1:
            return self
        low, high = _ends(self.mass, rounds)
        count = high - low + 1
        size = next_fast_len(max(count, len(self.mass)), real=True)
        # what lies outside [low, high] wraps around; it is less than the tail, which is paid for
        power, error = convolution_power(self.mass, rounds, size)
        mass = np.roll(power, -low)[:count]
        infinite = _TAIL - math.expm1(rounds * math.log1p(-self.infinite))
        return Losses(
            self.interval, self.first * rounds + low, mass, infinite, error + rounds * self.rounding
        )

    def __add__(self, other: Losses) -> Losses:
        """The loss of a round of each; the intervals are the same."""
        count = len(self.mass) + len(other.mass) - 1
        size = next_fast_len(count, real=True)
        mass, error = convolution(self.mass, other.mass, size)
        mass = mass[:count]
        rounding = error + (self.rounding + other.rounding) * (1 + 1e-9)
        infinite = self.infinite + other.infinite - self.infinite * other.infinite
        low, high = (int(np.searchsorted(np.cumsum(side), _TAIL)) for side in (mass, mass[::-1]))
        kept = mass[low : count - high].copy()
        kept[0] += mass[:low].sum()  # upwards, and what is cut off above counts as infinite
        return Losses(self.interval, self.first + other.first + low, kept, infinite + _TAIL, rounding)


def _ends(mass: FloatArray, rounds: int) -> tuple[int, int]:
    """Where the sum of `rounds` indices lies, up to the tail: Chernoff bounds at a few exponents."""
    low, high = 0, (len(mass) - 1) * rounds
    cost = math.log(2 / _TAIL) + 1e-13 * rounds  # the logarithms below are right to 1e-13
    growth = np.exp(np.arange(len(mass)) / len(mass))
    up, down = mass, mass
    for i in range(1, _ORDERS + 1):
        up, down = up * growth, down / growth
        order = i / len(mass)
        high = min(high, math.ceil((rounds * math.log(up.sum()) + cost) / order))
        low = max(low, math.floor(-(rounds * math.log(down.sum()) + cost) / order))
    return low, high


def hockey_stick(epsilon: FloatArray, mu: float) -> FloatArray:
    """H_ε(N(mu,1)‖N(0,1)) for each ε, of either sign."""
    near, far = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
    return np.asarray(np.exp(near) * -np.expm1(np.minimum(0.0, epsilon + far - near)))


def sampled_gaussian(mu: float, q: float, interval: float) -> tuple[Losses, Losses]:
    """One round, (1-q)·N(0,1) + q·N(mu,1) against N(0,1), and the other way round; 0 < q <= 1, mu > 0."""
    farthest = mu * _FARTHEST + mu**2 / 2  # largest loss before sampling
    top, bottom = (_sampled(sign * farthest, q) for sign in (1, -1))
    forward = _connected(*_grid(bottom, top, interval), interval, mu, q, False)
    if q == 1:
        return forward, forward  # a Gaussian pair is symmetric
    return forward, _connected(*_grid(-top, -bottom, interval), interval, mu, q, True)


def _sampled(loss: float, q: float) -> float:
    """ln(1 - q + q·e^loss)."""
    return float(np.logaddexp(np.log1p(-q), math.log(q) + loss)) if q < 1 else loss


def _unsampled(loss: FloatArray, q: float) -> FloatArray:
    """The inverse of `_sampled`; -infinity where the loss is below every possible one.

    Three forms, each where it loses no digits: below -1 only q > 1/2 gives anything finite, and there 1 - q
    is exact.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.log(np.maximum(np.exp(np.minimum(loss, 0.0)) - (1 - q), 0.0)) - math.log(q)
        near = np.log1p(np.maximum(np.expm1(np.minimum(loss, 1.0)) / q, -1.0))
        high = loss - math.log(q) + np.log1p((q - 1) * np.exp(-np.maximum(loss, 1.0)))
        return np.where(loss < -1, low, np.where(loss < 1, near, high))


def _grid(bottom: float, top: float, interval: float) -> tuple[int, int]:
    return math.floor(bottom / interval), math.ceil(top / interval)


def _connected(first: int, last: int, interval: float, mu: float, q: float, swapped: bool) -> Losses:
    """The masses from the divergences at first..last, in units of the interval.

    With e^l = 1 + (e^ε - 1)/q they are q·H_l of the Gaussian pair; swapped, with e^-l = 1 + (e^-ε - 1)/q,
    they are q·e^(ε-l)·H_l.
    """
    epsilon = np.arange(first, last + 1, dtype=np.float64) * interval
    if swapped:
        loss = -_unsampled(-epsilon, q)
        inside = loss < np.inf
        loss = np.where(inside, loss, 0.0)
        delta = np.where(inside, q * np.exp(np.minimum(epsilon - loss, 700.0)) * hockey_stick(loss, mu), 0.0)
    else:
        loss = _unsampled(epsilon, q)
        inside = loss > -np.inf
        delta = np.where(
            inside, q * hockey_stick(np.where(inside, loss, 0.0), mu), -np.expm1(np.minimum(epsilon, 0.0))
        )
    delta = np.minimum.accumulate(np.clip(delta, 0.0, 1.0))
    if len(delta) == 1:
        return Losses(interval, first, 1 - delta, float(delta[0]))
    fall, growth = np.diff(delta), math.expm1(interval)
    mass = np.concatenate(
        [
            [1 - delta[0] + fall[0] / growth],
            (fall[1:] - fall[:-1] * (1 + growth)) / growth,
            [fall[-1] / math.expm1(-interval)],
        ]
    )
    return Losses(interval, first, np.maximum(mass, 0.0), float(delta[-1]))
