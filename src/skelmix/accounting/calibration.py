"""The least noise that reaches a target, found from the private side."""

from __future__ import annotations

import math
from collections.abc import Callable

from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.validation import positive

GAP = 4e-4
"""Relative distance between the last noise that failed and the one returned; below the promised 0.1 %."""


def least_noise(
    epsilon_of: Callable[[float], float],
    target_epsilon: float,
    low: float,
    high: float,
    *,
    guess: float | None = None,
    step: float = 1.25,
    remedy: str = "raise epsilon or delta, sample fewer participants or run fewer rounds",
) -> float:
    """The least noise in [low, high] with epsilon_of(noise) <= target_epsilon, from above.

    `epsilon_of` falls as noise grows (infinity: no bound there). Guarantee: the returned noise was itself
    evaluated and meets the target, and a noise at most 0.1 % smaller was evaluated and violates it; if `low`
    already meets the target, it is returned. Raises `PrivacyUnattainable`, with `remedy`, when `high` does
    not meet it. It takes about ten evaluations; a `guess` near the answer saves a few, and `step` says by
    which factor the guess may be off.
    """
    positive(target_epsilon=target_epsilon, low=low, high=high)
    if low >= high:
        raise InvalidInput(f"low = {low!r}, high = {high!r}: low must be below high")
    start = math.sqrt(low * high) if guess is None else min(max(guess, low), high)
    bad, good, bad_excess, good_excess = _bracket(epsilon_of, target_epsilon, low, high, start, step, remedy)
    if bad == good:
        return low
    side = 0
    while math.exp(good - bad) > 1 + GAP:
        x = _next(bad, good, bad_excess, good_excess)
        excess = _excess(epsilon_of(math.exp(x)), target_epsilon)
        if excess > 0:
            bad, bad_excess = x, excess
            good_excess, side = (good_excess / 2 if side == 1 else good_excess), 1
        else:
            good, good_excess = x, excess
            bad_excess, side = (bad_excess / 2 if side == -1 else bad_excess), -1
    noise = math.exp(good)
    if epsilon_of(noise) > target_epsilon:  # checked again, so that the returned noise is one that was proved
        raise PrivacyUnattainable(
            f"epsilon_of({noise!r}) is not reproducible: it met the target before, not now"
        )
    return noise


def _excess(epsilon: float, target: float) -> float:
    """ln(ε/target), a smooth function whose root is the answer; NaN counts as no bound."""
    if epsilon <= 0:
        return -50.0
    return math.log(epsilon / target) if epsilon < math.inf else math.inf


def _bracket(
    epsilon_of: Callable[[float], float],
    target: float,
    low: float,
    high: float,
    start: float,
    step: float,
    remedy: str,
) -> tuple[float, float, float, float]:
    """A bracket around the root, walking from `start` in growing steps.

    (log bad, log good, their excesses); bad == good if low is good.
    """
    point, excess = start, _excess(epsilon_of(start), target)
    while True:
        if excess > 0:
            if point >= high:
                raise PrivacyUnattainable(
                    f"no noise up to {high:.6g} reaches epsilon = {target:.6g}; {remedy}"
                )
            following = min(high, point * step)
        else:
            if point <= low:
                return math.log(point), math.log(point), excess, excess
            following = max(low, point / step)
        next_excess = _excess(epsilon_of(following), target)
        if (next_excess > 0) != (excess > 0):
            pair = ((point, excess), (following, next_excess))
            (bad, over), (good, under) = pair if excess > 0 else pair[::-1]
            return math.log(bad), math.log(good), over, under
        point, excess, step = following, next_excess, step**2


def _next(bad: float, good: float, bad_excess: float, good_excess: float) -> float:
    """A point strictly inside (bad, good), all in logarithms, by false position.

    It is kept off the ends, and is the midpoint where false position is undefined.
    """
    width = good - bad
    if not math.isfinite(bad_excess) or good_excess <= -50.0:
        return bad + width / 2
    margin = min(0.45 * width, 0.45 * GAP)
    x = bad + width * bad_excess / (bad_excess - good_excess)
    # A little past the estimate, towards the wider side: that catches the root between two close points.
    x += margin if x - bad < width / 2 else -margin
    return min(max(x, bad + margin), good - margin)
