"""Conditional rounding: the rounded norm is bounded, and a row that cannot pass fails loudly."""

import math

import numpy as np
import pytest

from skelmix.encoding.conditional_rounding import BETA, largest_rounded_square, round_conditionally
from skelmix.errors import InvalidInput
from skelmix.noise.entropy import ReproducibleEntropy


def test_the_bound_is_the_formula():
    c, d = 64.0, 65_536
    likely = c**2 + d / 4 + math.sqrt(2 * math.log(1 / BETA)) * (c + math.sqrt(d) / 2)
    assert largest_rounded_square(c, d) == math.floor(likely)
    assert largest_rounded_square(1e-3, 1) == 1  # the other branch: (c + √d)² = 1.002
    assert largest_rounded_square(64.0, 65_536, beta=1e-9) > math.floor(likely)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_rounded_row_is_short_and_next_to_its_vector(dtype):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 64))
    x *= 4 / np.linalg.norm(x, axis=1, keepdims=True)
    x = x.astype(dtype)
    bound = largest_rounded_square(4.0, 64)
    integers = round_conditionally(x, bound, entropy=ReproducibleEntropy(1))
    assert (integers.astype(np.int64) ** 2).sum(axis=1).max() <= bound
    assert np.abs(integers - x).max() < 1


def test_the_condition_bites():
    x = np.full((1, 64), 0.5)
    squares = {
        int((round_conditionally(x, 25, entropy=ReproducibleEntropy(seed)) ** 2).sum()) for seed in range(40)
    }
    assert max(squares) <= 25  # unconditionally the mean is 32


def test_a_row_that_cannot_pass_is_an_error_with_a_remedy():
    with pytest.raises(InvalidInput, match=r"row 1.*clip"):
        round_conditionally(np.array([[0.0, 0.0], [9.0, 0.0]]), 80, retries=5)
