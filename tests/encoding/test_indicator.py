"""The clip indicator: the joint vector keeps its bound, who is absent leaves no trace, the clip finds its
place."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skelmix.encoding.indicator import LARGEST_CLIP, SMALLEST_CLIP, AdaptiveClip
from skelmix.errors import InvalidInput

weights = st.floats(2.0**-20, 2.0)
clips = st.floats(-50, 50).map(lambda power: 2.0**power)


def exact_square(row):
    return sum(Fraction(float(value)) ** 2 for value in row)


def join(adaptive, vectors, clip):
    joint = np.empty((len(vectors), vectors.shape[-1] + 1), vectors.dtype)
    return joint, adaptive.join(vectors, clip, out=joint)


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
    adaptive = AdaptiveClip(weight=weight)
    joint, _ = join(adaptive, rows(seed, dtype), clip)
    assert joint.dtype == dtype
    assert all(exact_square(row) <= Fraction(adaptive.norm) ** 2 for row in joint)
    assert all(exact_square(row[:-1]) <= 1 for row in joint)


@given(weights)
def test_the_bound_is_that_of_the_theory_rounded_up(weight):
    norm, square = Fraction(AdaptiveClip(weight=weight).norm), 1 + Fraction(weight) ** 2 / 4
    assert square <= norm**2 <= square * (1 + Fraction(1, 2**48))


@given(weights, st.integers(0, 2**32))
def test_a_vector_at_the_bound_reaches_it(weight, seed):
    vector = np.random.default_rng(seed).normal(size=(1, 50)) * 1e6
    adaptive = AdaptiveClip(weight=weight)
    square = exact_square(join(adaptive, vector, 3.0)[0][0])
    assert square >= Fraction(adaptive.norm) ** 2 * (1 - Fraction(1, 10**10))


def test_the_indicator_says_who_was_within():
    vectors = np.array([[3.0, 4.0], [3.0, 4.1], [0.0, 0.0], [0.0, -5.0001]])
    joint, counts = join(AdaptiveClip(weight=0.5), vectors, 5.00001)
    assert joint[:, -1].tolist() == [0.25, -0.25, 0.0, -0.25]
    assert (counts.broken, counts.clipped) == (0, 2)
    assert counts.squared_norms == pytest.approx((vectors**2).sum())
    assert np.allclose(joint[0, :2], vectors[0] / 5.00001, rtol=1e-15)
    assert np.allclose(joint[1, :2], vectors[1] / np.linalg.norm(vectors[1]))


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_who_contributes_nothing_sends_zeros_in_the_last_coordinate_too(broken):
    vectors = np.ones((4, 3), np.float32)
    vectors[1] = 0
    vectors[2, 1] = broken
    joint, counts = join(AdaptiveClip(), vectors, 1.0)
    assert not joint[1].any()
    assert not joint[2].any()
    assert joint[0].all()
    assert joint[3].all()
    assert counts.broken == 1


@settings(deadline=None)
@given(clips, st.integers(0, 2**32), st.sampled_from([np.float32, np.float64]))
def test_a_joint_vector_depends_on_its_own_row_alone(clip, seed, dtype):
    vectors = rows(seed, dtype)
    together, _ = join(AdaptiveClip(), vectors, clip)
    for place in range(len(vectors)):
        alone, _ = join(AdaptiveClip(), vectors[place : place + 1].copy(), clip)
        assert alone.tobytes() == together[place : place + 1].tobytes()


def test_a_vector_too_large_to_be_divided_by_the_clip_is_clipped_not_dropped():
    vectors = np.full((1, 2), 1e24, np.float32)
    clip = 2.0**-49
    with np.errstate(over="ignore"):
        assert np.isinf(vectors / np.float32(clip)).all()
    joint, _ = join(AdaptiveClip(), vectors, clip)
    assert np.allclose(joint[0], [0.5**0.5, 0.5**0.5, -0.05])


def test_the_input_is_left_alone():
    vectors = np.full((2, 2), 7.0)
    join(AdaptiveClip(), vectors, 1.0)
    assert (vectors == 7.0).all()


@given(weights, clips, st.integers(1, 50), st.integers(0, 2**32))
def test_splitting_undoes_appending_on_a_sum(weight, clip, count, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, 5)) * clip
    norms = np.linalg.norm(vectors, axis=1)
    adaptive = AdaptiveClip(weight=weight)
    vector, fraction = adaptive.split(join(adaptive, vectors, clip)[0].sum(0), clip, count)
    expected = (vectors * np.minimum(1, clip / norms)[:, None]).sum(0)
    assert np.allclose(vector, expected, rtol=1e-9, atol=1e-9 * clip)
    assert fraction == pytest.approx((norms <= clip).mean(), abs=1e-9)


def test_the_fraction_is_clamped():
    assert AdaptiveClip().split(np.array([0.0, 9.0]), 1.0, 10)[1] == 1.0
    assert AdaptiveClip().split(np.array([0.0, -9.0]), 1.0, 10)[1] == 0.0


@pytest.mark.parametrize("start", [1 / 30, 30.0])
@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.8])
def test_a_start_thirty_times_off_finds_the_quantile(start, quantile):
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(400, 20)) * rng.lognormal(0, 0.3, (400, 1)) / 20**0.5
    adaptive = AdaptiveClip(start, quantile, rate=0.2)
    clip = adaptive.start
    for steps in range(150):
        assert adaptive.reachable(clip, steps)
        noisy = join(adaptive, vectors, clip)[0].sum(0) + rng.normal(size=21) * 0.65
        clip = adaptive.next(clip, adaptive.split(noisy, clip, len(vectors))[1])
    within = (np.linalg.norm(vectors, axis=1) <= clip).mean()
    assert abs(within - quantile) < 0.1


def test_the_clip_stays_within_its_range():
    path = AdaptiveClip(rate=5.0)
    assert path.next(LARGEST_CLIP, 0.0) == LARGEST_CLIP
    assert path.next(SMALLEST_CLIP, 1.0) == SMALLEST_CLIP


moves = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.booleans()), max_size=30)


@given(st.floats(0.01, 0.99), st.floats(0.01, 5.0), moves)
def test_what_the_steps_reach_is_reachable_and_not_much_more(quantile, rate, moves):
    adaptive = AdaptiveClip(quantile=quantile, rate=rate)
    clip = adaptive.start
    for fraction, searching in moves:
        clip = adaptive.next(clip, fraction, searching=searching)
    assert adaptive.reachable(clip, len(moves))
    farthest = max(2.0, np.exp(rate)) ** len(moves) * 1.001
    assert not adaptive.reachable(farthest, len(moves))
    assert not adaptive.reachable(1 / farthest, len(moves))


def test_a_search_doubles_and_halves():
    adaptive = AdaptiveClip(quantile=0.3)
    assert adaptive.next(3.0, 0.31, searching=True) == pytest.approx(1.5)
    assert adaptive.next(3.0, 0.29, searching=True) == pytest.approx(6.0)


@pytest.mark.parametrize("clip", [0.0, -1.0, np.nan, np.inf, 2.0**51])
def test_no_steps_lead_to_a_clip_norm_without_a_use(clip):
    assert not AdaptiveClip(rate=5.0).reachable(clip, 1000)


def test_more_than_half_of_the_vectors_zero_do_not_collapse_the_clip():
    vectors = np.zeros((300, 4))
    vectors[:100] = np.random.default_rng(1).normal(size=(100, 4))
    adaptive = AdaptiveClip(start=1.0, quantile=0.5)
    clip = adaptive.start
    for _ in range(300):
        clip = adaptive.next(clip, adaptive.split(join(adaptive, vectors, clip)[0].sum(0), clip, 300)[1])
    assert clip == pytest.approx(np.median(np.linalg.norm(vectors[:100], axis=1)), rel=0.05)


@pytest.mark.parametrize("weight", [0, -1, np.nan, 3.0, 1e-9])
def test_weights_without_a_use_are_refused(weight):
    with pytest.raises(InvalidInput, match="weight"):
        AdaptiveClip(weight=weight)


@pytest.mark.parametrize(
    "call",
    [
        lambda i: join(i, np.ones(3), 1.0),
        lambda i: join(i, np.ones((2, 3), np.int64), 1.0),
        lambda i: i.join(np.ones((2, 3)), 1.0, out=np.ones((2, 3))),
        lambda i: i.join(np.ones((2, 3)), 1.0, out=np.ones((2, 4), np.float32)),
        lambda i: i.join(np.ones((2, 3)), 1.0, out=np.ones((4, 2)).T),
        lambda i: join(i, np.ones((2, 3)), 0.0),
        lambda i: join(i, np.ones((2, 3)), 2.0**51),
        lambda i: i.split(np.array([np.nan, 0.0]), 1.0, 1),
        lambda i: i.split(np.ones((2, 2)), 1.0, 1),
        lambda i: i.split(np.ones(2), 1.0, 0),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(InvalidInput):
        call(AdaptiveClip())
