"""Numbers in mpmath's precision."""

from fractions import Fraction
from typing import Any

import mpmath

from skelmix.noise.law import Number


def mp(value: Number) -> Any:
    """The number in mpmath's precision, exact up to it."""
    exact = Fraction(value)
    return mpmath.mpf(exact.numerator) / exact.denominator
