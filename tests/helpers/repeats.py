"""A test for noise that repeats: two releases of the same input agree in few coordinates by chance.

A repeated stream leaves the law of each single release right, so that the distinguishing game does not see
it; but whoever holds two releases with the same noise subtracts them and has the vectors bare.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from skelmix.errors import InvalidInput
from skelmix.noise.laws import Law


def agreement_p_value(one: NDArray[Any], other: NDArray[Any], law: Law) -> float:
    """The probability that independent noise of this law agrees in this many coordinates or more.

    It is exactly binomial.

    one, other: what was released for the *same* vector, whose rounding can only lower the chance to agree;
    same shape, integers modulo a number larger than the noise. Values near 0 mean that the noise repeats.
    """
    if one.shape != other.shape or one.size == 0:
        raise InvalidInput(f"shapes {one.shape} and {other.shape}: pass two releases of the same shape")
    low, high = law.support_bound(-50.0)
    chance = float(np.sum(law.pmf(np.arange(low, high + 1)) ** 2))
    return float(binom.sf(np.count_nonzero(one == other) - 1, one.size, min(chance, 1.0)))
