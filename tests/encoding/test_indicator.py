"""The clip indicator: the joint vector keeps its bound, who is absent leaves no trace, the clip finds its
place."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skelmix.encoding.indicator import LARGEST_CLIP, SMALLEST_CLIP, AdaptiveClip, ClipIndicator
from skelmix.errors import InvalidInput

weights = st.floats(2.0**-20, 2.0)
clips = st.floats(-50, 50).map(lambda power: 2.0**power)


def exact_square(row):
    return sum(Fraction(float(value)) ** 2 for value in row)


def rows(seed, dtype, count=6, dimension=37):
    """Vectors of every size: far within, at and far beyond any clip norm, and zeros."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.uniform(-20, 20, (count, 1))
    return np.concatenate([rng.normal(size=(count, dimension)) * sizes, np.zeros((1, dimension))]).astype(
        dtype
    )


@settings(deadline=None)  # kernels may be compiled first
@given(weights, clips, st.integers(0, 2**32), st.sampled_from([np.float32, np.float64]))
def test_the_joint_vector_has_the_stated_bound_exactly(weight, clip, seed, dtype):
    indicator = ClipIndicator(weight)
    joint = indicator.append(rows(seed, dtype), clip)
    assert joint.dtype == dtype
    assert all(exact_square(row) <= Fraction(indicator.norm) ** 2 for row in joint)


@given(weights)
def test_the_bound_is_that_of_the_theory_rounded_up(weight):
    norm, square = Fraction(ClipIndicator(weight).norm), 1 + Fraction(weight) ** 2 / 4
    assert square <= norm**2 <= square * (1 + Fraction(1, 2**48))


@given(weights, st.integers(0, 2**32))
def test_a_vector_at_the_bound_reaches_it(weight, seed):
    vector = np.random.default_rng(seed).normal(size=(1, 50)) * 1e6
    indicator = ClipIndicator(weight)
    square = exact_square(indicator.append(vector, 3.0)[0])
    assert square >= Fraction(indicator.norm) ** 2 * (1 - Fraction(1, 10**10))


def test_the_indicator_says_who_was_within():
    vectors = np.array([[3.0, 4.0], [3.0, 4.1], [0.0, 0.0], [0.0, -5.0001]])
    joint = ClipIndicator(0.5).append(vectors, 5.00001)
    assert joint[:, -1].tolist() == [0.25, -0.25, 0.25, -0.25]
    assert np.allclose(joint[0, :2], vectors[0] / 5.00001, rtol=1e-15)
    assert np.allclose(joint[1, :2], vectors[1] / np.linalg.norm(vectors[1]))


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_who_contributes_nothing_sends_zeros_in_the_last_coordinate_too(broken):
    vectors = np.ones((4, 3), np.float32)
    vectors[2, 1] = broken
    joint = ClipIndicator().append(vectors, 1.0, contributes=np.array([True, False, True, True]))
    assert not joint[1].any()
    assert not joint[2].any()
    assert joint[0].all()
    assert joint[3].all()


def test_a_vector_too_large_to_be_divided_by_the_clip_is_clipped_not_dropped():
    vectors = np.full((1, 2), 1e24, np.float32)
    clip = 2.0**-49
    with np.errstate(over="ignore"):
        assert np.isinf(vectors / np.float32(clip)).all()
    joint = ClipIndicator(0.1).append(vectors, clip)
    assert np.allclose(joint[0], [0.5**0.5, 0.5**0.5, -0.05])


def test_the_input_is_left_alone():
    vectors = np.full((2, 2), 7.0)
    ClipIndicator().append(vectors, 1.0)
    assert (vectors == 7.0).all()


@given(weights, clips, st.integers(1, 50), st.integers(0, 2**32))
def test_splitting_undoes_appending_on_a_sum(weight, clip, count, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, 5)) * clip
    norms = np.linalg.norm(vectors, axis=1)
    indicator = ClipIndicator(weight)
    vector, fraction = indicator.split(indicator.append(vectors, clip).sum(0), clip, count)
    expected = (vectors * np.minimum(1, clip / norms)[:, None]).sum(0)
    assert np.allclose(vector, expected, rtol=1e-9, atol=1e-9 * clip)
    assert fraction == pytest.approx((norms <= clip).mean(), abs=1e-9)


def test_the_fraction_is_clamped():
    indicator = ClipIndicator(0.1)
    assert indicator.split(np.array([0.0, 9.0]), 1.0, 10)[1] == 1.0
    assert indicator.split(np.array([0.0, -9.0]), 1.0, 10)[1] == 0.0


@pytest.mark.parametrize("start", [1 / 30, 30.0])
@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.8])
def test_a_start_thirty_times_off_finds_the_quantile(start, quantile):
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(400, 20)) * rng.lognormal(0, 0.3, (400, 1)) / 20**0.5
    indicator, path = ClipIndicator(0.1), AdaptiveClip(start, quantile, rate=0.2)
    clip = path.start
    for _ in range(150):
        noisy = indicator.append(vectors, clip).sum(0) + rng.normal(size=21) * 0.65
        clip = path.next(clip, indicator.split(noisy, clip, len(vectors))[1])
    within = (np.linalg.norm(vectors, axis=1) <= clip).mean()
    assert abs(within - quantile) < 0.1


def test_the_clip_stays_within_its_range():
    path = AdaptiveClip(rate=5.0)
    assert path.next(LARGEST_CLIP, 0.0) == LARGEST_CLIP
    assert path.next(SMALLEST_CLIP, 1.0) == SMALLEST_CLIP


@pytest.mark.parametrize("weight", [0, -1, np.nan, 3.0, 1e-9])
def test_weights_without_a_use_are_refused(weight):
    with pytest.raises(InvalidInput, match="weight"):
        ClipIndicator(weight)


@pytest.mark.parametrize(
    "call",
    [
        lambda i: i.append(np.ones(3), 1.0),
        lambda i: i.append(np.ones((2, 3), np.int64), 1.0),
        lambda i: i.append(np.ones((2, 3)), 0.0),
        lambda i: i.append(np.ones((2, 3)), 2.0**51),
        lambda i: i.append(np.ones((2, 3)), 1.0, contributes=np.array([True])),
        lambda i: i.split(np.array([np.nan, 0.0]), 1.0, 1),
        lambda i: i.split(np.ones((2, 2)), 1.0, 1),
        lambda i: i.split(np.ones(2), 1.0, 0),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(InvalidInput):
        call(ClipIndicator())
