"""The grid of a silo's records, and the rounding of its sum."""

from fractions import Fraction

import numpy as np
import pytest

from helpers.hypothesis_tests import follows
from helpers.injected_entropy import InjectedEntropy
from skelmix.encoding.fixed_point import FixedPoint, round_sum
from skelmix.errors import InvalidInput
from skelmix.noise.entropy import system_entropy


def grid(**changes):
    given = dict(dimension=50, length=56, kept=56, scale=8.0, l2=8.0, linf=np.inf, bits=8, rotate=True)
    return FixedPoint(**given | changes)


def every_word(total, fraction_bits):
    """What round_sum makes of one sum for each of the 2^f equally likely words."""
    count = 1 << fraction_bits
    words = np.arange(count, dtype=np.uint32) << np.uint32(32 - fraction_bits)
    return round_sum(np.full(count, total, np.int64), fraction_bits, InjectedEntropy(words))


@pytest.mark.parametrize(
    "total", [0, 1, 5, 31, 32, 33, 1000, -1, -5, -31, -32, -33, -1000, 2**62 + 7, -(2**62) - 7]
)
def test_rounding_is_floor_plus_a_coin_of_the_exact_probability(total):
    rounded = every_word(total, 5)
    down, low = divmod(total, 32)  # Python's: floor, also for negatives
    assert set(rounded.tolist()) <= {down, down + 1}
    assert np.count_nonzero(rounded == down + 1) == low
    assert Fraction(int(rounded.sum()), 32) == Fraction(total, 32)  # no bias at all


def test_the_unused_bits_of_a_word_do_not_matter():
    words = np.array([0xFFFFFFFF, 0xF8000000, 0x07FFFFFF, 0], np.uint32)
    rounded = round_sum(np.full(4, -1), 5, InjectedEntropy(words))
    assert rounded.tolist() == [0, 0, -1, -1]


@pytest.mark.parametrize("fraction_bits", [1, 24, 32])
def test_a_sum_that_wrapped_around_is_right_modulo_the_wire(fraction_bits):
    random = np.random.default_rng(1)
    true = [int(x) * 2**20 + int(y) for x, y in random.integers(-(2**62), 2**62, (200, 2))]
    wrapped = np.array([(t + 2**63) % 2**64 - 2**63 for t in true], np.int64)
    words = random.integers(0, 2**32, 200, dtype=np.uint32)
    got = round_sum(wrapped, fraction_bits, InjectedEntropy(words))
    bits = 64 - fraction_bits
    expected = [
        (t + (int(w) >> (32 - fraction_bits))) >> fraction_bits for t, w in zip(true, words, strict=True)
    ]
    assert [int(z) % 2**bits for z in got] == [z % 2**bits for z in expected]


def test_rounding_follows_its_law():
    total = np.full(400_000, -3 * 2**24 + 2**23 + 2**21)  # -3 + 0.625
    rounded = round_sum(total, 24, system_entropy())
    law = lambda up: lambda cut: 0.0 if cut < -3 else 1 - up if cut < -2 else 1.0  # noqa: E731
    assert follows(rounded, law(0.625), [-4, -3, -2])
    assert not follows(rounded, law(0.615), [-4, -3, -2])
    truncated = np.trunc(total / 2**24).astype(np.int64)  # a planted defect: towards zero
    assert not follows(truncated, law(0.625), [-4, -3, -2])


def test_more_coordinates_than_are_rounded_at_once():
    total = np.arange(2_200_000, dtype=np.int64) << 32
    assert np.array_equal(round_sum(total, 32, system_entropy()), np.arange(2_200_000))


@pytest.mark.parametrize("linf", [np.inf, 0.5])
@pytest.mark.parametrize("l2", [2.0**-60, 0.1, 1.0, 64.0, 2.0**14, 2.0**22, 2.0**30])
@pytest.mark.parametrize("kept", [1024, 1000, 7])
def test_bits_and_fraction_bits_fit_64_and_records_fit_their_dtype(l2, linf, kept):
    fixed_point = grid(dimension=1000, length=1024, kept=kept, scale=l2, l2=l2, linf=linf, bits=32)
    assert 1 <= fixed_point.fraction_bits <= 32
    largest = fixed_point._reach * 2**fixed_point.fraction_bits
    if not fixed_point.rotates_records:
        largest /= 32
    assert largest * (1 + 1e-12) + fixed_point.length / 2 < np.iinfo(fixed_point.dtype).max
    assert 0 <= fixed_point.steps.linf <= np.iinfo(fixed_point.dtype).max


def test_records_are_rotated_where_the_clip_or_the_subset_needs_it():
    assert not grid().rotates_records
    assert grid(linf=0.5).rotates_records
    assert grid(kept=20).rotates_records
    assert not grid(linf=0.5, rotate=False, dimension=56).rotates_records
    assert (grid().width, grid(linf=0.5).width, grid(kept=20).width) == (50, 56, 20)


@pytest.mark.parametrize(
    "change",
    [{"kept": 57}, {"length": 49}, {"l2": 2.0**31}, {"linf": 0.0}, {"scale": 1e200}, {"rotate": False}],
)
def test_grids_that_do_not_fit_are_refused(change):
    with pytest.raises(InvalidInput):
        grid(**change)
