"""Facts about the certified tables and the exact sampler."""

import math
import time
import tracemalloc
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from helpers.hypothesis_tests import follows
from helpers.injected_entropy import InjectedEntropy
from helpers.precise import mp
from skelmix.errors import InvalidInput
from skelmix.noise import table as module
from skelmix.noise.certified import thresholds
from skelmix.noise.entropy import ReproducibleEntropy
from skelmix.noise.laws import Binomial, DiscreteGaussian, DiscreteGaussianSum, Poisson, Skellam
from skelmix.noise.table import ExactSampler, sampler

ONES = (1 << 64) - 1


def _sample(exact, *pieces):
    source = InjectedEntropy(*pieces)
    result = exact.sample(1, entropy=source)
    assert source.pieces == []  # neither fewer nor more bits were drawn
    return int(result[0])


def _words(value):
    """The pieces of one 64-bit uniform number: sixteen bits, then 48 more (and sixteen spare ones)."""
    return np.array([value >> 48], np.uint16), np.array([(value << 16) & ONES], np.uint64)


def _more(value):
    return value.to_bytes(8, "little")


def test_an_injected_word_inside_a_step_takes_no_more_bits():
    assert _sample(sampler(Skellam(5.95)), np.array([0x8000], np.uint16)) == 0


def test_injected_bits_on_both_sides_of_every_threshold_give_the_two_neighbours():
    exact = sampler(Skellam(5.95))
    steps = [int(t) for t in exact.steps]
    apart = [i for i, t in enumerate(steps) if not {t - 1, t + 1} & {0, ONES, *steps}]
    assert len(apart) > len(steps) - 6  # only in the last tails do thresholds touch
    for index in apart:
        threshold = steps[index]
        assert _sample(exact, *_words(threshold - 1)) == exact.first + index
        assert _sample(exact, *_words(threshold + 1)) == exact.first + index + 1


def test_an_injected_boundary_cell_is_settled_by_64_more_bits():
    law = Skellam(5.95)
    exact = sampler(law)
    first, longer = thresholds(law, 128)
    for k in (-20, -3, 0, 4, 17):
        threshold = int(exact.steps[k - exact.first])
        rest = longer[k - first] - (threshold << 64)
        assert 0 <= rest < 1 << 64
        assert _sample(exact, *_words(threshold), _more(rest - 1)) == k
        assert _sample(exact, *_words(threshold), _more(rest + 1)) == k + 1


def test_an_injected_second_tie_is_settled_by_the_next_64_bits():
    law = Skellam(5.95)
    exact = sampler(law)
    threshold = int(exact.steps[-exact.first])
    first128, t128 = thresholds(law, 128)
    first192, t192 = thresholds(law, 192)
    rest = t128[-first128] - (threshold << 64)
    last = t192[-first192] - (t128[-first128] << 64)
    assert _sample(exact, *_words(threshold), _more(rest), _more(last - 1)) == 0
    assert _sample(exact, *_words(threshold), _more(rest), _more(last + 1)) == 1


def test_injected_zeros_and_ones_reach_the_far_tails():
    law = Skellam(5.95)
    exact = sampler(law)
    first, steps = thresholds(law, 128)
    middle = 1 << 40
    tail = _sample(exact, *_words(0), _more(middle))
    assert tail < exact.first
    assert tail == first + next(i for i, t in enumerate(steps) if t >= middle)
    assert _sample(exact, *_words(ONES), _more(ONES - middle)) == -tail
    assert _sample(sampler(Poisson(3)), *_words(0), _more(5)) == 0  # a law that ends at zero


def test_a_value_that_does_not_fit_the_dtype_is_an_error_not_a_wrap():
    exact = ExactSampler(Skellam(0.25))
    exact.largest = 10
    with pytest.raises(OverflowError, match="does not fit"):
        _sample(exact, *_words(0), _more(0), _more(0), _more(1))


RATE = 0.25


SIZE = 10**7


def _skellam_cdf(k):
    with mpmath.workdps(40):
        return float(
            sum(mpmath.exp(-2 * mp(RATE)) * mpmath.besseli(abs(j), 2 * mp(RATE)) for j in range(-40, k + 1))
        )


CUTS = range(-7, 7)


def test_samples_follow_the_law_and_wrong_ones_do_not():
    samples = sampler(Skellam(RATE)).sample(SIZE, entropy=ReproducibleEntropy(11))
    assert follows(samples, _skellam_cdf, CUTS)
    wider = sampler(Skellam(RATE * 1.01)).sample(SIZE, entropy=ReproducibleEntropy(12))
    assert not follows(wider, _skellam_cdf, CUTS)  # variance off by one part in a hundred
    assert not follows(samples + 1, _skellam_cdf, CUTS)
    cut = samples[np.abs(samples) <= 6 * math.sqrt(2 * RATE)]
    assert cut.size < SIZE
    assert not follows(cut, _skellam_cdf, CUTS)  # tail cut at six sigma


@pytest.mark.parametrize(
    "law",
    [
        Skellam(16),
        Skellam(5000),
        Skellam(10**8),
        Poisson(3),
        DiscreteGaussian(2.5),
        Binomial(30, 0.3),
        Skellam(Fraction(0.37) / 216),
    ],
    ids=repr,
)
def test_samples_of_every_law_follow_it(law):
    size = 10**6
    samples = sampler(law).sample(size, entropy=ReproducibleEntropy(13))
    sigma = math.sqrt(law.variance)
    cuts = sorted({round(law.mean + sigma * z) for z in np.arange(-4, 4.01, 0.25)})

    def cdf(k):
        return float(law.cdf_ball(k).mid())

    assert follows(samples, cdf, cuts)
    assert not follows(samples + 1 + int(sigma / 20), cdf, cuts)


@pytest.mark.parametrize("shape", [0, 1, 63, 64, 65, module.CHUNK + 1, (3, 5), (0, 4), ()])
def test_shapes(shape):
    result = sampler(Skellam(2)).sample(shape)
    assert result.shape == ((shape,) if isinstance(shape, int) else shape)


@pytest.mark.parametrize("shape", [-1, (2, -3), 2.5, None, True, "4"])
def test_shapes_that_are_none_are_refused(shape):
    with pytest.raises(InvalidInput, match=r"shape = .*must be an integer >= 0; .*pass"):
        sampler(Skellam(2)).sample(shape)


def test_a_numpy_integer_is_a_shape():
    assert sampler(Skellam(np.int64(2))).sample(np.int32(7)).shape == (7,)


def test_every_position_is_repaired():
    for size in (1, 64, 100, 1000, 70_000):
        result = sampler(Skellam(10**7)).sample(size, entropy=ReproducibleEntropy(size))
        assert not np.any(result == sampler(Skellam(10**7)).sentinel)
        assert np.all(np.abs(result) < 10 * math.sqrt(2e7))


@pytest.mark.parametrize(
    ("law", "dtype"),
    [(Skellam(16), np.int8), (Skellam(5000), np.int16), (Skellam(10**8), np.int32), (Poisson(300), np.int16)],
)
def test_the_dtype_is_the_smallest_safe_one_and_wider_outputs_hold_the_same_values(law, dtype):
    exact = sampler(law)
    assert exact.dtype == dtype
    narrow = exact.sample(5000, entropy=ReproducibleEntropy(1))
    assert narrow.dtype == dtype
    wide = np.empty(5000, np.int64)
    assert exact.sample(5000, out=wide, entropy=ReproducibleEntropy(1)) is wide
    np.testing.assert_array_equal(wide, narrow)


def test_outputs_that_do_not_fit_are_refused():
    exact = sampler(Skellam(5000))
    for out in (
        np.empty(5, np.int8),
        np.empty(5, np.uint16),
        np.empty(5),
        np.empty(10, np.int16)[::2],
        np.empty(6, np.int16),
    ):
        with pytest.raises(InvalidInput, match="out"):
            exact.sample(5, out=out)


def test_laws_that_are_too_wide_are_refused():
    with pytest.raises(InvalidInput, match="draw its summands"):
        sampler(DiscreteGaussianSum(1000, 2000))
    with pytest.raises(InvalidInput, match="2e8"):
        sampler(Skellam(2 * 10**8))


def test_memory_beyond_the_output_does_not_grow_with_it():
    exact, peaks = sampler(Skellam(16)), []
    for size in (10**6, 10**7):
        out = np.empty(size, np.int8)
        tracemalloc.start()
        exact.sample(size, out=out)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 3 << 20
    assert peaks[1] < peaks[0] + (1 << 16)


def test_tables_are_cached_by_law():
    assert sampler(Skellam(0.5)) is sampler(Skellam(Fraction(1, 2)))


@pytest.mark.parametrize(
    ("law", "seconds"),
    [(Skellam(5000), 0.05), (Poisson(10**4), 0.05), (DiscreteGaussian(10**4), 0.05), (Skellam(500_000), 1.0)],
)
def test_tables_are_built_in_time(law, seconds):
    times = []
    for _ in range(3):
        thresholds.cache_clear()
        start = time.process_time()
        ExactSampler(law)
        times.append(time.process_time() - start)
    assert min(times) < seconds


def test_default_randomness_is_the_systems_and_does_not_repeat():
    assert not np.array_equal(sampler(Skellam(16)).sample(100), sampler(Skellam(16)).sample(100))
