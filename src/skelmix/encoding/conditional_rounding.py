"""Conditional rounding of the baselines: round again until the norm is small.

Kairouz, Liu and Steinke 2021, Proposition 22.

Stochastic rounding can lengthen a vector. The baselines' bounds need the length of the *rounded* vector, so
they reject outcomes longer than c̃; that costs a little bias, which the mixtures do not have.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.encoding.rounding import round_stochastic
from skelmix.errors import InvalidInput
from skelmix.noise.entropy import Entropy
from skelmix.validation import positive, probability, whole

BETA = math.exp(-0.5)
RETRIES = 200  # each try succeeds with probability at least 1 - β: all fail with probability below 10^-43


def largest_rounded_square(norm: float, dimension: int, beta: float = BETA) -> int:
    """The largest squared L2 norm of a rounded vector that is accepted: the integer ⌊c̃²⌋.

    c̃² = min{(c + √d)², c² + d/4 + √(2 ln(1/β))·(c + √d/2)} for vectors of norm at most c > 0 in d
    dimensions; a rounding of any such vector passes with probability at least 1 - β.
    """
    positive(norm=norm)
    whole(1, dimension=dimension)
    probability(beta=beta)
    root = math.sqrt(dimension)
    always = (norm + root) ** 2
    likely = norm**2 + dimension / 4 + math.sqrt(2 * math.log(1 / beta)) * (norm + root / 2)
    return max(1, math.floor(min(always, likely)))


def round_conditionally(
    x: NDArray[Any],
    largest_square: int,
    *,
    out: NDArray[np.int32] | None = None,
    entropy: Entropy | None = None,
    retries: int = RETRIES,
) -> NDArray[np.int32]:
    """Round each row of x (n, d) stochastically until its squared norm is at most `largest_square`.

    Rows are independent; the integers go into `out`, if given. Raises `InvalidInput` when a row fails
    `retries` times, which for rows within the norm that `largest_square` was computed for does not happen.
    """
    integers = round_stochastic(x, out=out, entropy=entropy)
    for row in range(x.shape[0]):
        tries = 1
        while _square(integers[row]) > largest_square:
            if tries == retries:
                raise InvalidInput(
                    f"conditional rounding failed {retries} times in row {row}: its rounded norm stays above "
                    f"{math.sqrt(largest_square):.6g}; clip first, or raise the scale"
                )
            integers[row] = round_stochastic(x[row], entropy=entropy)
            tries += 1
    return integers


def _square(integers: NDArray[np.int32]) -> int:
    total = sum_of_integer_squares(integers)
    return int(total) if total < 2.0**53 else sum(int(value) ** 2 for value in integers)


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def sum_of_integer_squares(line: Any) -> float:
    """Σ x² of integers below 2^31: exact in any order while it is below 2^53."""
    total = 0.0
    for j in range(line.size):
        value = np.float64(line[j])
        total += value * value
    return total
