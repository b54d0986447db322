"""Ties of stochastic rounding: where sixteen random bits do not decide, more do."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.noise.entropy import Entropy

if TYPE_CHECKING:
    from skelmix.encoding.rounding import Floats


@njit(cache=True, nogil=True, inline="always")
def cut_bits(magnitude: Any, unit: Any) -> Any:
    """2^16 times the fractional part: exact, since both steps only shift the bits of a float."""
    return (magnitude - np.floor(magnitude)) * unit


@njit(cache=True, nogil=True)
def _tie_step(value: Any, unit: Any, drawn: Any) -> int:
    """What a tie adds to the rounding towards zero, decided by 64 more bits.

    0, or one step away from zero; 2 when they tie as well.
    """
    cut = np.float64(cut_bits(abs(value), unit))
    leading = np.uint64((cut - np.floor(cut)) * 18446744073709551616.0)  # exact: 2^64 only shifts the bits
    if drawn == leading:
        return 2
    return (-1 if value < 0 else 1) if drawn < leading else 0


@njit(cache=True)  # too short to release the interpreter's lock
def _tie_steps(x: Any, unit: Any, places: Any, drawn: Any, steps: Any) -> bool:
    """Set steps[j] to `_tie_step` of x[places[j]]; returns whether a tie is still open."""
    again = False
    for j in range(places.size):
        steps[j] = _tie_step(x[places[j]], unit, drawn[j])
        again |= steps[j] == 2
    return again


def settle_ties(x: NDArray[Any], places: NDArray[Any], floats: Floats, entropy: Entropy) -> NDArray[np.int64]:
    """What each settled tie adds to the provisional rounding towards zero."""
    drawn, steps = np.empty(places.size, np.uint64), np.empty(places.size, np.int64)
    entropy.fill(drawn)
    if _tie_steps(x, floats.unit, places, drawn, steps):  # one in 2^64
        for j in np.flatnonzero(steps == 2):
            value = Fraction(float(x[places[j]]))
            up = _settle(abs(value) * (1 << 80) % 1, entropy)
            steps[j] = (-1 if value < 0 else 1) if up else 0
    return steps


def _settle(rest: Fraction, entropy: Entropy) -> bool:
    """A sample of Bernoulli(rest): 64 bits at a time until decided."""
    while rest:
        rest *= 1 << 64
        drawn = entropy.integers_below(1 << 64)
        if drawn != rest.__floor__():
            return drawn < rest
        rest %= 1
    return False
