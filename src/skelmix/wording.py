"""Numbers as people read them: sensible digits, never rounded towards a stronger claim, right plurals."""

from __future__ import annotations

import math


def up(value: float) -> str:
    """A number in four digits, rounded up: what is printed is never stronger than what was proved.

    Example:

        >>> up(2.99911), up(1_455.2)
        ('3', '1,456')
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    value = max(value, 1e-300)  # below, the digits asked for are not there
    digits = 3 - math.floor(math.log10(abs(value)))
    return f"{math.ceil(value * 10.0**digits * (1 - 1e-12)) / 10.0**digits:,.6g}"


def figure(value: float, digits: int = 4) -> str:
    """A number in four digits, or as many as given, as a person writes it; larger ones whole, with commas.

    Example:

        >>> figure(1.00537), figure(1_904.6), figure(290_208.2947), figure(0.00001234)
        ('1.005', '1,905', '290,208', '1.234e-05')
    """
    large = 999.5 <= abs(value) < 1e12
    return f"{value:,.0f}" if large else f"{value:.{digits}g}"


def beside_error(value: float, error: float) -> str:
    """A number with the decimals that its standard error makes sensible: two digits of the error.

    The error itself, written so, has as many decimals as the number. Where no error is known: six digits.

    Example:

        >>> beside_error(1_234.567, 7.02), beside_error(7.02, 7.02), beside_error(1_234.567, 1_041.0)
        ('1,234.6', '7.0', '1,235')
    """
    if not 0 < error < math.inf:
        return f"{value:.6g}"
    decimals = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:z,.{min(decimals, 12)}f}"  # z: never "-0.0"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the singular or the plural.

    Example:

        >>> counted(1, "round"), counted(1_000, "round")
        ('1 round', '1,000 rounds')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
