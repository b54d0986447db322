"""Clipping: the declared bound holds exactly, checked in rational arithmetic on the floats that come out."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skelmix.encoding.clipping import clip_l2, clip_linf, clip_mixture
from skelmix.errors import InvalidInput

BOUNDS = st.one_of(
    st.sampled_from([1.0, 64.0, 0.1, 1e-3, 2.0**40, 1e-60, 1e-120]), st.floats(2.0**-30, 2.0**30)
)


@st.composite
def row(draw):
    single = draw(st.booleans())
    width = 32 if single else 64
    finite = st.floats(allow_nan=False, allow_infinity=False, width=width)
    near = st.floats(-4, 4, width=width)
    dtype = np.float32 if single else np.float64
    return draw(arrays(dtype, st.integers(1, 12), elements=st.one_of(near, near, finite)))[None, :]


def exact_square(x):
    return sum(Fraction(float(v)) ** 2 for v in x)


def exact_v(x):
    total = Fraction(0)
    for v in x:
        size = abs(Fraction(float(v)))
        p = size - floor(size)
        total += size * size + p - p * p
    return total


@settings(max_examples=300, deadline=None)
@given(x=row(), bound=BOUNDS)
def test_l2_bound_is_exact_signs_survive_and_short_rows_are_untouched(x, bound):
    before = x.copy()
    changed, squares = clip_l2(x, bound)
    assert exact_square(x[0]) <= Fraction(bound) ** 2
    assert np.all((np.sign(x) == np.sign(before)) | (x == 0))
    old = exact_square(before[0])
    assert squares[0] == np.inf or Fraction(squares[0]) >= old
    if old <= Fraction(bound) ** 2 * (1 - Fraction(1, 10**13)):
        assert x.tobytes() == before.tobytes()
        assert not changed[0]
    if old > Fraction(bound) ** 2:
        assert changed[0]


@pytest.mark.parametrize(("dtype", "loss"), [(np.float32, 4e-7), (np.float64, 2e-10)])
@pytest.mark.parametrize("length", [1.0, 1.0 + 1e-6, 3.7, 1e8])
def test_a_long_row_loses_hardly_more_than_it_must(dtype, loss, length):
    x = np.random.default_rng(3).normal(size=(2, 65_536))
    x *= 64 * length / np.linalg.norm(x, axis=1, keepdims=True)
    x = x.astype(dtype)
    direction = x.astype(np.float64)
    clip_l2(x, 64.0)
    assert all(exact_square(line) <= 4096 for line in x[:1])
    norms = np.linalg.norm(x.astype(np.float64), axis=1)
    assert np.all(norms > 64 * (1 - loss))
    cosine = (x.astype(np.float64) * direction).sum(axis=1) / norms / np.linalg.norm(direction, axis=1)
    np.testing.assert_allclose(cosine, 1.0, atol=1e-10)


@settings(max_examples=200, deadline=None)
@given(x=row(), bound=BOUNDS)
def test_linf_bound_is_exact_and_counts_what_it_touched(x, bound):
    before = x.copy()
    touched = clip_linf(x, bound)
    assert all(abs(Fraction(float(v))) <= Fraction(bound) for v in x[0])
    beyond = [abs(Fraction(float(v))) > Fraction(bound) for v in before[0]]
    assert touched == sum(beyond)
    assert all(a == b for a, b, out in zip(x[0], before[0], beyond, strict=True) if not out)


@settings(max_examples=300, deadline=None)
@given(
    x=row(),
    c=st.one_of(st.sampled_from([1.0, 4096.0, 0.25, 1e-60, 1e-120]), st.floats(2.0**-20, 2.0**20)),
    linf=st.integers(1, 9),
)
def test_mixture_bounds_are_exact_and_inside_rows_are_untouched(x, c, linf):
    before = x.copy()
    changed, _ = clip_mixture(x, c, linf)
    assert exact_v(x[0]) <= Fraction(c)
    assert all(abs(Fraction(float(v))) <= linf for v in x[0])
    assert np.all((np.sign(x) == np.sign(before)) | (x == 0))
    inside = exact_v(before[0]) <= Fraction(c) * (1 - Fraction(1, 10**13))
    if inside and np.abs(before).max() <= linf:
        assert x.tobytes() == before.tobytes()
        assert not changed[0]


def test_mixture_clip_scales_v_and_maps_back():
    x = np.array([[3.25, -0.5, 1.75, 0.0]])
    # v = 9 + 7/4, 1/2, 1 + 9/4: together 14.5; halved and mapped back by k = ⌊√v⌋, p = (v - k²)/(2k+1)
    clip_mixture(x, 7.25, 10)
    expected = [2 + (10.75 / 2 - 4) / 5, -0.25, 1 + (3.25 / 2 - 1) / 3, 0.0]
    np.testing.assert_allclose(x[0], expected, rtol=1e-12)


def test_the_papers_clip_shrinks_a_flat_gradient_and_the_l2_clip_does_not():
    x = np.random.default_rng(0).normal(size=(1, 65_536))
    x *= 64 / np.linalg.norm(x)
    y = x.copy()
    clip_l2(x, 64.0)
    clip_mixture(y, 4096.0, 8)
    assert np.linalg.norm(x) / 64 > 0.999999
    assert 0.30 < np.linalg.norm(y) / 64 < 0.32


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_rows_are_refused_with_their_number(value):
    for clip in (lambda x: clip_l2(x, 1.0), lambda x: clip_mixture(x, 1.0, 1)):
        x = np.ones((3, 4))
        x[2, 1] = value
        with pytest.raises(InvalidInput, match="row 2"):
            clip(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda: clip_l2(np.ones((1, 2)), 0.0),
        lambda: clip_l2(np.ones((1, 2)), np.inf),
        lambda: clip_l2(np.ones((1, 2)), 2.0**53),
        lambda: clip_l2(np.ones((1, 2)), 5e-324),
        lambda: clip_l2(np.ones(2), 1.0),
        lambda: clip_l2(np.ones((2, 4))[:, ::2], 1.0),
        lambda: clip_l2(np.ones((1, 2), np.int64), 1.0),
        lambda: clip_mixture(np.ones((1, 2)), 1.0, 0),
        lambda: clip_linf(np.ones((1, 2)), -1.0),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(InvalidInput):
        call()
