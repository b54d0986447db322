"""Privacy losses of a random number of Gaussian rounds: in closed form, or on a grid if there is a coin.

A profile gives δ at ε and ε at δ, from above, in one direction of a pair of neighbours.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.fft import next_fast_len
from scipy.special import log_ndtr

from skelmix.accounting.bisection import boundary
from skelmix.accounting.gaussian.losses import DIVERGENCE_ERROR, Losses, sampled_gaussian
from skelmix.accounting.gaussian.transforms import convolution_mixture
from skelmix.accounting.participations import Participations
from skelmix.arrays import FloatArray

_TAIL = 1e-15  # mass that a composition may cut off; it counts as an infinite loss
_ORDERS = 20  # exponents of the Chernoff bounds that say where to cut


class Profile(Protocol):
    """δ at ε, and the least ε at δ."""

    def delta(self, epsilon: float) -> float: ...

    def epsilon(self, delta: float) -> float: ...


@dataclass(frozen=True)
class GaussianSum:
    """Contributions without a coin: Σ_k P(K = k)·H_ε(N(mu·√k, 1)‖N(0, 1)), the same in both directions."""

    mu: float
    participations: Participations

    def delta(self, epsilon: float) -> float:
        counts, masses, above = self.participations.masses()
        terms = masses * gaussian_deltas(epsilon, self.mu * np.sqrt(counts))
        return min(1.0, math.fsum(terms) * (1 + 1e-12) + above + 1e-300)  # what underflows

    def epsilon(self, delta: float) -> float:
        if self.delta(0.0) <= delta:
            return 0.0
        high = 1.0
        while self.delta(high) > delta:
            high *= 2
            if high > 1e15:
                return math.inf
        low = high / 2 if high > 1 else 0.0
        return boundary(lambda epsilon: self.delta(epsilon) <= delta, low, high, relative=1e-12)


def gaussian_deltas(epsilon: float, mu: FloatArray) -> FloatArray:
    """H_ε(N(mu,1)‖N(0,1)) for each mu >= 0, from above (Balle and Wang 2018, Theorem 8)."""
    mu = np.maximum(mu, 1e-300)
    near, far = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
    with np.errstate(invalid="ignore"):
        gap = np.where(np.isneginf(near), -np.inf, epsilon + far - near)
    size = np.where(np.isneginf(near), 0.0, 1 + np.abs(near) + epsilon)
    # digits lost: log_ndtr and its argument to a few roundings each, relative to |near| + |far| + epsilon
    exact = np.exp(near) * -np.expm1(np.minimum(0.0, gap))
    return np.asarray(exact * (1 + 1e-9) + 4e-15 * size * np.exp(near))


@dataclass(frozen=True, eq=False)
class GridSum:
    """Contributions with a coin, in one direction, with a proved bound on the rounding of the transforms."""

    losses: Losses
    allowance: float

    def delta(self, epsilon: float) -> float:
        delta_on_grid = max(0.0, self.losses.delta(epsilon))
        return min(1.0, delta_on_grid * (1 + 1e-9) + self.allowance)  # a sum of up to millions of terms

    def epsilon(self, delta: float) -> float:
        if delta <= self.allowance:
            return math.inf
        epsilon, step = self.losses.epsilon(delta - self.allowance), 1e-12
        while self.delta(epsilon) > delta and epsilon < math.inf:  # its sums lose digits that `delta` keeps
            epsilon, step = epsilon + step, 2 * step
        return epsilon


def _total(losses: Losses, participations: Participations) -> GridSum:
    """The loss of a random number of such rounds: the transform is E[φ^K], φ that of one round."""
    low, high = _ends(losses, participations)
    count = high - low + 1
    size = next_fast_len(max(count, len(losses.mass)), real=True)
    padded = np.zeros(size)
    padded[: len(losses.mass)] = losses.mass
    summed, error = convolution_mixture(np.roll(padded, losses.first), size, participations.generating)
    # what lies outside [low, high] wraps around; it is less than the tail, which is paid for
    mass = np.roll(summed, -low)[:count]
    infinite = _TAIL + participations.expected * losses.infinite
    divergences = participations.most * DIVERGENCE_ERROR  # assumed of each round
    return GridSum(Losses(losses.interval, low, mass, infinite), error + divergences)


def _ends(losses: Losses, participations: Participations) -> tuple[int, int]:
    """Where the total loss lies, up to the tail, in intervals: Chernoff bounds at a few exponents."""
    index = losses.first + np.arange(len(losses.mass))
    cost, width = math.log(2 / _TAIL), len(losses.mass)
    high = max(0, participations.most * int(index[-1]))
    low = min(0, participations.most * int(index[0]))
    with np.errstate(divide="ignore"):
        log_mass = np.log(losses.mass)
    for i in range(1, _ORDERS + 1):
        order = i / width
        up, down = (
            participations.log_moment(float(np.logaddexp.reduce(log_mass + sign * order * index)))
            for sign in (1, -1)
        )
        high = min(high, math.ceil((up + cost) / order))
        low = max(low, math.floor(-(down + cost) / order))
    return low, high


@functools.lru_cache(maxsize=32)
def directions(
    mu: float, coin: float, participations: Participations, interval: float
) -> tuple[Profile, Profile]:
    """With the vector against without it, and the other way round."""
    if coin == 1:
        exact = GaussianSum(mu, participations)
        return exact, exact
    forward, reverse = (_total(losses, participations) for losses in sampled_gaussian(mu, coin, interval))
    return forward, reverse
