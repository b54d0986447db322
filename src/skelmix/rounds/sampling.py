"""The draw of a round's participants: secret and exact, no probability is rounded."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.noise.entropy import Entropy
from skelmix.validation import one_of, whole


def poisson(population: int, probability: Fraction, entropy: Entropy) -> NDArray[np.int64]:
    """Draw each of `population` participants independently with exactly the given probability.

    The result is sorted and may be empty.

    Sixty-four uniform bits are compared with the probability; a tie, which 64 bits cannot decide, is resolved
    by an exact draw for the rest of it.
    """
    whole(0, population=population)
    if not 0 <= probability <= 1:
        raise InvalidInput(f"probability = {probability}: must be in [0, 1]")
    if probability == 1:
        return np.arange(population)
    threshold, rest = divmod(probability.numerator << 64, probability.denominator)
    draws = np.empty(population, np.uint64)
    entropy.fill(draws)
    sampled = draws < np.uint64(threshold)
    for tie in np.flatnonzero(draws == np.uint64(threshold)):
        sampled[tie] = entropy.integers_below(probability.denominator) < rest
    return np.flatnonzero(sampled)


def fixed_size(population: int, size: int, entropy: Entropy) -> NDArray[np.int64]:
    """A uniform subset of exactly `size` participants (Floyd's algorithm), sorted."""
    whole(1, population=population)
    whole(0, population, size=size)
    sampled: set[int] = set()
    for last in range(population - size, population):
        draw = entropy.integers_below(last + 1)
        sampled.add(last if draw in sampled else draw)
    return np.array(sorted(sampled), dtype=np.int64)


def draw_cohort(sampling: str, population: int, expected: int, entropy: Entropy) -> NDArray[np.int64]:
    """The participants of one round, by the plan's way of sampling: poisson, fixed or none (everyone)."""
    one_of(("poisson", "fixed", "none"), sampling=sampling)
    if sampling == "poisson":
        return poisson(population, Fraction(expected, population), entropy)
    return np.arange(population) if sampling == "none" else fixed_size(population, expected, entropy)
