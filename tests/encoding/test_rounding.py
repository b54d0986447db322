"""Facts about exact stochastic rounding."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.hypothesis_tests import follows
from helpers.injected_entropy import InjectedEntropy
from skelmix.encoding import rounding
from skelmix.encoding.rounding import round_and_noise, round_into_sum, round_stochastic
from skelmix.encoding.threads import at_most
from skelmix.errors import InvalidInput
from skelmix.noise.entropy import ReproducibleEntropy
from skelmix.noise.laws import Skellam
from skelmix.noise.table import sampler

FLOATS = [np.float32, np.float64]
ALL_WORDS = np.arange(1 << 16, dtype=np.uint16)
HARD = [
    0.3,
    0.5,
    -0.3,
    1.75,
    -2.6,
    1e-3,
    2.0**-17,
    3e-9,
    -1e-30,
    1e-40,
    5e-324,
    0.0,
    -0.0,
    7.0,
    1 - 2.0**-24,
    12345.678,
    1e9 + 0.5,
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", HARD)
def test_over_all_sixteen_bit_words_the_share_of_steps_is_exact(value, dtype):
    x = dtype(value)
    magnitude = Fraction(abs(float(x)))
    whole, p = math.floor(magnitude), magnitude % 1
    cells = p * 65536
    full, rest = math.floor(cells), cells % 1
    sign = -1 if x < 0 else 1

    def steps(*more):
        result = round_stochastic(np.full(1 << 16, x), entropy=InjectedEntropy(ALL_WORDS, *more))
        away = (result.astype(np.int64) * sign) - whole
        assert set(np.unique(away)) <= {0, 1}
        return int(away.sum())

    if rest == 0:
        assert steps() == full
        return
    # one word ties: it goes up if the next 64 bits lie below the rest of p, and asks again if they tie
    next_bits = math.floor(rest * 2**64)
    if next_bits:
        assert steps((next_bits - 1).to_bytes(8, "little")) == full + 1
    assert steps((next_bits + 1).to_bytes(8, "little")) == full
    tie, beyond = next_bits.to_bytes(8, "little"), (rest * 2**64) % 1
    if beyond == 0:
        assert steps(tie) == full
    else:
        last = math.floor(beyond * 2**64)
        assert steps(tie, *([(last + 1).to_bytes(8, "little")])) == full


@pytest.mark.parametrize("dtype", FLOATS)
def test_tiny_values_are_rounded_up_as_rarely_as_they_should(dtype):
    x = dtype(2.0**-100)  # 80 zeros, then the 20th bit of the next 64 decides
    word, zeros = np.zeros(1, np.uint16), bytes(8)
    below, above = ((1 << 44) - 1).to_bytes(8, "little"), (1 << 44).to_bytes(8, "little")
    assert round_stochastic(np.array([x]), entropy=InjectedEntropy(word, zeros, below)) == [1]
    assert round_stochastic(np.array([x]), entropy=InjectedEntropy(word, zeros, above)) == [0]
    assert round_stochastic(np.array([x]), entropy=InjectedEntropy(word, b"\x01" + bytes(7))) == [0]
    assert round_stochastic(np.array([-x]), entropy=InjectedEntropy(word, zeros, below)) == [-1]


@given(st.lists(st.floats(-(2**31) + 1, 2**31 - 1, width=64), min_size=1, max_size=50), st.integers(0, 10))
@settings(max_examples=60, deadline=None)
def test_the_result_is_one_of_the_two_neighbours(values, seed):
    x = np.array(values)
    result = round_stochastic(x, entropy=ReproducibleEntropy(seed)).astype(np.float64)
    assert np.all((result == np.floor(x)) | (result == np.ceil(x)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_integers_stay_as_they_are(dtype):
    x = np.array([0, 1, -1, 255, -70000, 2**24, -(2**31) + 128, 2**31 - 128], dtype)
    for _ in range(20):
        np.testing.assert_array_equal(round_stochastic(x), x.astype(np.int64))


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_is_unbiased_and_a_bias_would_be_seen(dtype):
    x = np.full(4_000_000, -2.3, dtype)
    p = float(3 + np.float64(x[0]))  # P(result = -2)
    result = round_stochastic(x, entropy=ReproducibleEntropy(31))
    assert follows(result, lambda k: {-3: 1 - p}[k], [-3])
    assert not follows(result, lambda k: {-3: 1 - p + 0.003}[k], [-3])


def _settled_alone(x, entropy_seed):
    """The same roundings coordinate by coordinate, from the same words, in plain Python."""
    words = np.empty(x.size, np.uint16)
    entropy = ReproducibleEntropy(entropy_seed)
    entropy.fill(words)
    result = []
    for value, word in zip(x.tolist(), words.tolist(), strict=True):
        magnitude = Fraction(abs(value))
        cells = (magnitude % 1) * 65536
        up = word < math.floor(cells)
        if word == math.floor(cells) and cells % 1:
            up = Fraction(entropy.integers_below(1 << 64), 1 << 64) < cells % 1
        result.append((-1 if value < 0 else 1) * (math.floor(magnitude) + up))
    return np.array(result)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 7, 1023, 1024, 1025, 40_000])
def test_the_kernel_agrees_with_plain_fractions_bit_for_bit(dtype, size):
    x = (np.random.default_rng(size).standard_normal(size) * 5).astype(dtype)
    np.testing.assert_array_equal(round_stochastic(x, entropy=ReproducibleEntropy(4)), _settled_alone(x, 4))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("total_dtype", [np.int32, np.int64])
def test_sums_agree_with_plain_fractions_bit_for_bit(dtype, total_dtype):
    x = (np.random.default_rng(1).standard_normal((13, 5000)) * 2).astype(
        dtype
    )  # one tile, all rows in one buffer
    total = np.arange(5000, dtype=total_dtype)
    round_into_sum(x, total, ReproducibleEntropy(9))
    expected = _settled_alone(x.reshape(-1), 9).reshape(13, 5000).sum(0) + np.arange(5000)
    np.testing.assert_array_equal(total, expected)


@pytest.mark.parametrize(
    "shape", [(3, 9000), (100, 8192), (300, 5000), (17, 70_000), (70_000, 3), (1, 1), (0, 5)]
)
def test_sums_of_any_shape_cover_every_coordinate_once(shape):
    x = np.random.default_rng(2).integers(-50, 50, shape).astype(np.float32)
    total = np.zeros(shape[1], np.int64)
    round_into_sum(x, total)
    np.testing.assert_array_equal(total, x.sum(0, dtype=np.float64))
    fractional = np.zeros(shape[1], np.int64)
    round_into_sum(x + np.float32(0.25), fractional)
    assert np.all((fractional >= total) & (fractional <= total + shape[0]))


def test_threads_do_not_change_a_reproducible_result():
    x = (np.random.default_rng(3).standard_normal((64, 32_768)) * 3).astype(np.float32)
    results = []
    for threads in (1, 2):
        with at_most(threads):
            total = np.zeros(x.shape[1], np.int32)
            round_into_sum(x, total, ReproducibleEntropy(5))
            out = np.empty(x.shape, np.uint8)
            round_and_noise(x, sampler(Skellam(3)), out, ReproducibleEntropy(6), bits=7)
            results.append((total, out))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_the_fused_pass_is_rounding_plus_noise_modulo_the_width():
    x = (np.random.default_rng(4).standard_normal(200_000) * 40).astype(np.float32)
    law = sampler(Skellam(16))
    plain = round_and_noise(x, law, np.empty(x.shape, np.int64), ReproducibleEntropy(7))
    for dtype, bits in (
        (np.uint8, None),
        (np.uint8, 3),
        (np.uint8, 1),
        (np.uint16, 10),
        (np.uint32, None),
        (np.uint32, 31),
    ):
        out = round_and_noise(x, law, np.empty(x.shape, dtype), ReproducibleEntropy(7), bits=bits)
        modulus = 1 << (bits or 8 * np.dtype(dtype).itemsize)
        np.testing.assert_array_equal(out, plain % modulus)
    np.testing.assert_array_equal(
        round_and_noise(x, law, np.empty(x.shape, np.int32), ReproducibleEntropy(7)), plain
    )


def test_the_fused_pass_adds_noise_of_the_right_law():
    x = np.zeros(2_000_000, np.float32)
    law = Skellam(2)
    out = round_and_noise(x, sampler(law), np.empty(x.shape, np.int32), ReproducibleEntropy(8))

    def cdf(k):
        return float(law.cdf_ball(k).mid())

    assert follows(out, cdf, range(-8, 9))
    doubled = round_and_noise(
        x + np.float32(0.02), sampler(law), np.empty(x.shape, np.int32), ReproducibleEntropy(8)
    )
    assert not follows(doubled, cdf, range(-8, 9))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 2.0**31, -3e9])
@pytest.mark.parametrize("place", [0, 1500, 4999])
def test_values_that_have_no_32_bit_neighbour_are_refused(dtype, bad, place):
    x = np.ones((2, 5000), dtype)
    x[1, place] = bad
    with pytest.raises(InvalidInput, match="2\\^31"):
        round_stochastic(x)
    with pytest.raises(InvalidInput, match="2\\^31"):
        round_into_sum(x, np.zeros(5000, np.int32))


def test_wrong_shapes_and_dtypes_are_refused():
    x = np.ones((2, 4), np.float32)
    calls = [
        lambda: round_stochastic(np.ones(3, np.int32)),
        lambda: round_stochastic(x, out=np.empty((2, 5), np.int32)),
        lambda: round_and_noise(x, None, np.empty((2, 4), np.float32)),
        lambda: round_and_noise(x, None, np.empty((2, 4), np.uint64)),
        lambda: round_and_noise(x, None, np.empty((2, 4), np.uint8), bits=9),
        lambda: round_and_noise(x, None, np.empty((2, 4), np.int32), bits=8),
        lambda: round_into_sum(x, np.zeros(5, np.int32)),
        lambda: round_into_sum(x, np.zeros(4, np.int16)),
        lambda: round_into_sum(x, np.zeros(8, np.int32)[::2]),
        lambda: round_into_sum(x[None], np.zeros(4, np.int32)),
    ]
    for call in calls:
        with pytest.raises(InvalidInput):
            call()


def test_views_that_are_not_contiguous_are_rounded_too():
    x = np.arange(20, dtype=np.float64).reshape(4, 5)
    np.testing.assert_array_equal(round_stochastic(x.T), x.T)
    total = np.zeros(4, np.int64)
    round_into_sum(x.T, total)
    np.testing.assert_array_equal(total, x.sum(1))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 4)])
def test_any_shape_is_kept(shape):
    assert round_stochastic(np.zeros(shape)).shape == shape


def test_the_last_value_of_the_range_is_accepted():
    assert rounding.floats_of(np.dtype(np.float64)).largest.view(np.float64) == 2**31 - 1
    assert rounding.floats_of(np.dtype(np.float32)).largest.view(np.float32) == 2**31 - 128
    assert round_stochastic(np.array([2.0**31 - 1.5])) in (2**31 - 2, 2**31 - 1)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_nothing_to_round_adds_nothing(shape):
    total = np.arange(shape[1], dtype=np.int64)
    round_into_sum(np.zeros(shape, np.float32), total)
    np.testing.assert_array_equal(total, np.arange(shape[1]))
