"""One voice for bad input: each check names the argument, the value and the remedy.

Checks take keyword arguments, `positive(noise=x)`, so that the message can say the caller's own word for
it, and return the checked value (or nothing when several were given).
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput

_DELTA = "for δ take well below 1/participants, e.g. 1e-5"


def _fail(name: str, value: object, need: str, remedy: str) -> InvalidInput:
    try:
        shown = repr(value)
    except ValueError:  # Python does not print integers of over 4300 digits
        shown = "a number of thousands of digits"
    return InvalidInput(f"{name} = {shown}: must be {need}; {remedy}")


def _real(name: str, value: Any, need: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _fail(name, value, need, f"got {type(value).__name__}, pass a number")
    try:
        number = float(value)
    except OverflowError:
        raise _fail(name, value, need, "pass one below 1e308") from None
    if not math.isfinite(number):
        raise _fail(name, value, need, "NaN and infinity are not accepted, pass a finite number")
    return number


def positive(**named: Any) -> None:
    """Each value is a finite real number > 0."""
    for name, value in named.items():
        if _real(name, value, "a number > 0") <= 0:
            raise _fail(name, value, "a number > 0", "pass a larger one, e.g. 1.0")


def non_negative(**named: Any) -> None:
    """Each value is a finite real number >= 0."""
    for name, value in named.items():
        if _real(name, value, "a number >= 0") < 0:
            raise _fail(name, value, "a number >= 0", "pass 0 or more")


def probability(**named: Any) -> None:
    """Each value is a real number strictly between 0 and 1 (δ, for one)."""
    for name, value in named.items():
        if not 0 < _real(name, value, "strictly between 0 and 1") < 1:
            raise _fail(
                name,
                value,
                "strictly between 0 and 1",
                _DELTA if name.startswith("delta") else "take e.g. 0.95",
            )


def fraction(**named: Any) -> None:
    """Each value is a real number in [0, 1)."""
    for name, value in named.items():
        if not 0 <= _real(name, value, "in [0, 1)") < 1:
            raise _fail(name, value, "in [0, 1)", "pass a fraction, e.g. 0.1 for one in ten")


def whole(low: int, high: int | None = None, /, **named: Any) -> None:
    """Each value is an integer in [low, high]."""
    need = f"an integer >= {low}" if high is None else f"an integer in {low}..{high}"
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise _fail(name, value, need, f"got {type(value).__name__}, pass an int")
        if int(value) < low or (high is not None and int(value) > high):
            raise _fail(
                name, value, need, f"pass {low} or more" if int(value) < low else f"pass {high} or less"
            )


def bits(value: Any) -> None:
    """The width of a coordinate on the wire is an integer in 1..32."""
    whole(1, 32, bits=value)


def one_of(allowed: tuple[str, ...], **named: Any) -> None:
    """Each value is one of the allowed words."""
    for name, value in named.items():
        if value not in allowed:
            raise _fail(name, value, "one of " + ", ".join(allowed), f"for example pass {allowed[0]!r}")


def cohort_within(expected: Any, population: Any) -> None:
    """A cohort is at least one participant and no larger than the population."""
    whole(1, expected=expected)
    whole(1, population=population)
    if expected > population:
        raise InvalidInput(
            f"expected = {expected}: a cohort cannot be larger than the population ({population}); "
            "lower the cohort or correct the population"
        )


def real_vectors(vectors: Any, dimension: int, *, name: str = "vectors") -> NDArray[Any]:
    """The vectors as rows, (participants, dimension), without a copy; a (dimension,) vector becomes one row.

    Accepts float32, float64 and integers: NumPy arrays and anything with `__array__` (torch CPU tensors among
    them) without importing its library. Wrong shape, wrong dtype and no participants raise `InvalidInput`.
    NaN and infinity are left to the clip, which finds them.
    """
    detach = getattr(vectors, "detach", None)
    array = np.asarray(detach() if callable(detach) else vectors)
    if array.dtype not in (np.float32, np.float64) and array.dtype.kind not in "iu":
        raise InvalidInput(
            f"{name} has dtype {array.dtype}: must be real numbers; pass it as float32 or float64"
        )
    if array.ndim == 1:
        array = array[None, :]
    if array.ndim != 2 or array.shape[1] != dimension:
        raise InvalidInput(
            f"{name} has shape {np.shape(vectors)}: must be ({dimension},) or (participants, {dimension}); "
            "set the plan's dimension to the length of your vectors"
        )
    if array.shape[0] == 0:
        raise InvalidInput(
            f"{name} has shape {array.shape}, it is empty: pass the vector of at least one participant"
        )
    return array
