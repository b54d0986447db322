"""Upper bounds on binomial probabilities, rounding error included.

Masses are built from the mode outwards by P(k+1)/P(k) = (n-k)/(k+1)·p/(1-p). Each step costs a relative error
of at most eight roundings, nothing cancels, and what is left out at the far ends only makes the masses larger
when they are normalised. scipy's tails are as good where they were tried, but state no bound.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from skelmix.arrays import FloatArray
from skelmix.errors import InvalidInput
from skelmix.validation import non_negative, whole

_UNIT = 2.0**-53
_SMALLEST = 1e-280  # masses this small, relative to the largest one, are not listed


@dataclass(frozen=True, eq=False)
class BinomialBounds:
    """Upper bounds on a binomial law: mass[i] for the count first + i, `below`/`above` for the others."""

    first: int
    mass: FloatArray
    below: float
    above: float

    @property
    def last(self) -> int:
        """The largest count that is listed."""
        return self.first + len(self.mass) - 1

    def at_most(self, count: int) -> float:
        """An upper bound on P(X <= count)."""
        if count < self.first:
            return self.below
        listed = math.fsum(self.mass[: count - self.first + 1])
        return min(1.0, (self.below + listed + (self.above if count > self.last else 0.0)) * (1 + 4 * _UNIT))

    def at_least(self, count: int) -> float:
        """An upper bound on P(X >= count)."""
        if count > self.last:
            return self.above
        listed = math.fsum(self.mass[max(0, count - self.first) :])
        return min(1.0, (self.above + listed + (self.below if count < self.first else 0.0)) * (1 + 4 * _UNIT))


@functools.lru_cache(maxsize=64)
def binomial(trials: int, probability: float) -> BinomialBounds:
    """Upper bounds on every mass of Bin(trials, probability), 0 <= probability <= 1.

    The law is that of the float given: round `probability` towards the side that is safe for you.
    """
    whole(0, 2**50, trials=trials)
    non_negative(probability=probability)
    if probability > 1:
        raise InvalidInput(f"probability = {probability!r}: must be at most 1")
    if probability in (0, 1) or trials == 0:
        return BinomialBounds(trials if probability == 1 else 0, np.ones(1), 0.0, 0.0)
    odds = probability / (1 - probability)
    mode = min(trials, math.floor((trials + 1) * probability))
    upwards, above = _steps(trials - mode, mode, odds)
    downwards, below = _steps(mode, trials - mode, 1 / odds)
    mass = np.concatenate([downwards[::-1], np.ones(1), upwards])
    scale = 1 / math.fsum(mass)
    scale *= 1 + 16 * _UNIT * (len(mass) + 8)  # eight roundings per step, here and in the normalisation
    mass = mass * scale * (1 + 2 * _UNIT)
    mass.setflags(write=False)
    return BinomialBounds(mode - len(downwards), mass, below * scale * 1.001, above * scale * 1.001)


def _steps(room: int, start: int, odds: float) -> tuple[FloatArray, float]:
    """(masses relative to the mode's, from the mode away, bound on what lies beyond them)."""
    count = 64 + math.ceil(8 * math.sqrt(room + 1) if room < 2**20 else 8192.0)
    while True:
        steps = np.arange(min(count, room), dtype=np.float64)
        masses: FloatArray = np.cumprod((room - steps) / (start + 1 + steps) * odds, dtype=np.float64)
        small = np.flatnonzero(masses < _SMALLEST)
        if len(small):
            kept = int(small[0]) + 1
            ratio = float((room - kept) / (start + 1 + kept) * odds)
            beyond = float(masses[kept - 1]) * ratio / (1 - ratio) if ratio < 1 else math.inf
            if kept < room and not beyond < 1e-270:
                raise InvalidInput("the binomial law is too wide to be listed; take fewer trials")
            return masses[:kept], max(0.0, beyond)
        if count >= room:
            return masses, 0.0
        count *= 2
