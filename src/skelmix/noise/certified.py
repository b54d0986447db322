"""Certified CDFs: from balls around the masses of a log-concave integer law to integers floor(F(k)·2^bits).

Every number is an `arb` ball that contains the true value. A floor is used only where the whole ball has
the same floor; otherwise everything is computed again with more precision.
"""

from __future__ import annotations

import functools
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Protocol

from flint import arb, ctx, fmpq

_PRECISION_LOCK = threading.RLock()  # flint's working precision is shared by all threads
_GUARD_BITS = 64
_MOST_GUARD_BITS = 1024


class CertifiedLaw(Protocol):
    """What the table needs to know about an integer law. It must be log-concave."""

    def __hash__(self) -> int: ...

    @property
    def symmetric(self) -> bool:
        """P(X = k) = P(X = -k) for all k."""

    def masses(self, tail_bits: int) -> tuple[int, list[arb]]:
        """Balls around P(X = k) for consecutive k from the first returned value on.

        At least all k with a mass above 2^-tail_bits; for a symmetric law k = 0, 1, … only. The working
        precision is the caller's. An end of the support is marked by one mass of exactly zero.
        """

    def exact_cdf(self, k: int) -> Fraction | None:
        """P(X <= k) where it is rational and affordable, else None."""


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Ball arithmetic with this many bits; threads take turns."""
    with _PRECISION_LOCK, ctx.workprec(bits):
        yield


def ball(value: int | float | Fraction) -> arb:
    """The ball around an exact rational; a float stands for its exact binary value."""
    exact = Fraction(value)
    return arb(fmpq(exact.numerator, exact.denominator))


def _beyond(outer: arb, inner: arb) -> arb:
    """A ball around the mass beyond `outer`, the last of falling masses: log-concave tails are geometric."""
    ratio = outer / inner
    if not ratio < 1:
        return arb(0).union(arb(1))
    return arb(0).union(outer * ratio / (1 - ratio))


class _NotUnique(Exception):
    pass


def _floor(law: CertifiedLaw, k: int, scaled: arb, bits: int) -> int:
    unique = scaled.floor().unique_fmpz()
    if unique is not None:
        return int(unique)
    if scaled.rad() < arb(2) ** -(
        _MOST_GUARD_BITS // 2
    ):  # no precision separates this ball from a boundary: is the value a whole number?
        exact = law.exact_cdf(k)
        if exact is not None:
            return (exact.numerator << bits) // exact.denominator
    raise _NotUnique


def _symmetric_thresholds(law: CertifiedLaw, bits: int, tail_bits: int) -> tuple[int, list[int]]:
    _, masses = law.masses(tail_bits)
    unit = arb(2) ** bits
    tail = _beyond(masses[-1], masses[-2]) * unit
    below: list[int] = []
    above: list[int] = []
    for k in range(len(masses) - 1, -1, -1):  # tail = P(X > k)·2^bits = P(X < -k)·2^bits
        if not tail < 1:
            below.append(_floor(law, -k - 1, tail, bits))
            above.append(_floor(law, k, unit - tail, bits))
        tail = tail + masses[k] * unit
    above.reverse()
    return -len(below), below + above


def _general_thresholds(law: CertifiedLaw, bits: int, tail_bits: int) -> tuple[int, list[int]]:
    first, masses = law.masses(tail_bits)
    unit = arb(2) ** bits
    split = max(range(len(masses)), key=lambda i: float(masses[i]))
    floors: list[int] = []
    low = _beyond(masses[0], masses[1]) * unit
    start = first
    for i in range(split):
        low = low + masses[i] * unit
        if low < 1:
            start = first + i + 1
        else:
            floors.append(_floor(law, first + i, low, bits))
    high = _beyond(masses[-1], masses[-2]) * unit
    upper: list[int] = []
    for i in range(len(masses) - 1, split - 1, -1):
        if not high < 1:
            upper.append(_floor(law, first + i, unit - high, bits))
        high = high + masses[i] * unit
    upper.reverse()
    return start, floors + upper


@functools.lru_cache(maxsize=8)
def thresholds(law: CertifiedLaw, bits: int) -> tuple[int, list[int]]:
    """`(first, T)` with T[i] = floor(F(first + i)·2^bits), certified, for every k with 1 <= T < 2^bits - 1.

    Values below `first` have F·2^bits < 1, values from first + len(T) on have (1 - F)·2^bits < 1 (or <= 1).
    """
    build = _symmetric_thresholds if law.symmetric else _general_thresholds
    guard = _GUARD_BITS
    while True:
        try:
            with precision(bits + 2 * guard):
                return build(law, bits, bits + guard)
        except _NotUnique:
            if guard > _MOST_GUARD_BITS:
                raise
            guard *= 2


def resolve(law: CertifiedLaw, drawn: int, bits: int, more: Callable[[], int]) -> int:
    """The sample for a uniform number that begins with the `bits` bits `drawn`; `more()` gives 64 more.

    The uniform number U lies in [drawn, drawn + 1)/2^bits. The sample is the k with F(k-1) <= U < F(k); it
    is known as soon as T[k-1] < drawn < T[k], since then the whole interval of U lies inside the step. Only
    `drawn` equal to some T, or all zeros or all ones (which stand for both tails), leaves it open. No
    probability is rounded.
    """
    while True:
        first, steps = thresholds(law, bits)
        index = bisect_left(steps, drawn)
        tie = index < len(steps) and steps[index] == drawn
        if not tie and 0 < drawn < (1 << bits) - 1:
            return first + index
        drawn = (drawn << 64) | more()
        bits += 64
