"""Masses and likelihood ratios of a symmetric log-concave noise law, in float64 with a stated error.

Everything that the Gaussian certificates need of a law is here: f(k) for k = 0, 1, …, and the lift
f(k-1)/f(k) - 1 on both sides of zero, which is small where the noise is large and must not be taken as a
difference of floats.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
from flint import arb

from skelmix.arrays import FloatArray
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.noise.certified import precision
from skelmix.noise.laws import DiscreteGaussian, DiscreteGaussianSum, Law, Skellam

_MOST_LEVELS = 3e6  # noise levels on either side of zero: some ten seconds

_LOG_FLOAT = 640.0  # masses below e^-640 would leave the normal range of float64
_NATS_BEYOND = 60.0  # what the table leaves out is below e^-60 of the smallest mass that is used
# From this σ² on a sum of discrete Gaussians is one, to a relative 1e-19 per copy: Kairouz, Liu and Steinke
# (2021) bound the logarithm of the ratio of both pmfs by 10·Σ_{k<n} exp(-2π²σ²k/(k+1)).
_DIRECT_SUM = 5.0


@dataclass(frozen=True)
class NoiseTable:
    """f(k) for k = 0..reach and lift(k) = f(k-1)/f(k) - 1 for k = 1..reach.

    Guarantee: each mass has a relative error of at most `error`, each lift an error of at most `error`·(1 +
    lift) and, if `sharp`, of at most `error`·lift. The mass beyond `reach` is below e^-60 times the mass at
    the distance asked for.
    """

    mass: FloatArray
    lift: FloatArray
    error: float
    sharp: bool

    @property
    def reach(self) -> int:
        return len(self.mass) - 1

    def log_ratios(self) -> FloatArray:
        """ln f(k-1)/f(k) for k = 1-reach..reach: odd about k = 1/2, since the law is symmetric."""
        upper = np.log1p(self.lift)
        return np.concatenate([-upper[::-1], upper])


def noise_table(law: Law, distance: float) -> NoiseTable:
    """The table of `law` (Skellam or a sum of discrete Gaussians), for masses up to `distance` from zero.

    Raises `InvalidInput` for other laws and `PrivacyUnattainable` where masses at that distance are too small
    for float64: that noise is far too small for the distance.
    """
    if not isinstance(law, Skellam | DiscreteGaussian | DiscreteGaussianSum):
        raise InvalidInput(
            f"law = {law!r}: Gaussian certificates are proved for Skellam noise and for (sums of) discrete "
            "Gaussians"
        )
    if distance > _MOST_LEVELS:
        raise PrivacyUnattainable(
            f"noise of variance {law.variance:.4g} has more levels than a Gaussian certificate looks at "
            f"({_MOST_LEVELS:.0e}); lower the scale, or use bound='rdp'"
        )
    nats = -law.log_tail(distance + 2) + _NATS_BEYOND
    if nats > (_LOG_FLOAT if isinstance(law, Skellam) else 290.0):
        raise PrivacyUnattainable(
            f"noise of variance {law.variance:.4g} is too small for values up to {distance:.4g}: no Gaussian "
            "certificate; raise the noise or lower the clip norm or the scale"
        )
    return _table(law, 32 * math.ceil(nats / 32))


@functools.lru_cache(maxsize=32)
def _table(law: Law, nats: int) -> NoiseTable:
    if isinstance(law, Skellam):
        return _skellam_table(law, nats)
    copies = law.copies if isinstance(law, DiscreteGaussianSum) else 1
    parameter = float(law.parameter)  # type: ignore[attr-defined]
    reach = law.support_bound(-float(nats))[1]
    k = np.arange(reach + 1, dtype=np.int64)
    if copies == 1 or parameter >= _DIRECT_SUM:
        total = copies * parameter
        return NoiseTable(law.pmf(k), np.expm1((2 * k[1:] - 1) / (2 * total)), 1e-13 + 1e-19 * copies, True)
    mass = law.pmf(k)
    if not mass[-1] > 0:
        raise PrivacyUnattainable(
            f"{copies} shares of variance {parameter:.3g}: their sum is out of float64's range; "
            "raise the scale or the noise"
        )
    # direct convolutions of positive terms: relative errors of the factors add up, copy by copy
    error = (4 * reach + 8) * 2.0**-53 * copies
    return NoiseTable(mass, mass[:-1] / mass[1:] - 1, error, False)


def _skellam_table(law: Skellam, nats: int) -> NoiseTable:
    with precision(160):
        _, balls = law.masses(math.ceil(nats / math.log(2)))
        lifts = [_sharp(before / after - 1) for before, after in itertools.pairwise(balls)]
        masses = [_sharp(ball) for ball in balls]
    return NoiseTable(np.array(masses), np.array(lifts), 4e-16, True)


def _sharp(ball: arb) -> float:
    """The middle of a ball that is known to 2^-60: float64's own rounding is all that is lost."""
    if ball.rel_accuracy_bits() < 60:
        raise InvalidInput("ball arithmetic lost its precision: the noise is outside what was foreseen")
    return float(ball)
