"""Bisection: where a condition begins to hold, between a number that fails and one that works."""

from __future__ import annotations

from collections.abc import Callable


def boundary(
    holds: Callable[[float], bool],
    fails: float,
    works: float,
    *,
    absolute: float = 0.0,
    relative: float = 1e-15,
) -> float:
    """A number at which the condition holds, within a tolerance of one at which it does not.

    The condition is monotone between `fails` and `works`, in either order. `works` itself is returned,
    unchecked, when nothing nearer to `fails` holds.

    Example:

        >>> boundary(lambda x: x * x >= 2, fails=0.0, works=2.0, absolute=1e-9)
        1.414213562...
    """
    while abs(works - fails) > max(absolute, relative * abs(works)):
        middle = (fails + works) / 2
        if middle in (fails, works):  # neighbouring floats
            break
        fails, works = (fails, middle) if holds(middle) else (middle, works)
    return works
