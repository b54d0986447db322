"""The certified κ: above every divergence there is, within 1e-4 of the largest, and right in its limits."""

import math
import time
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from skelmix.accounting.rdp import conversion, subsampling
from skelmix.accounting.rdp.mixture_constant import kappa, kappa_bounds, mixture_curve
from skelmix.accounting.rdp.moments import log_moment
from skelmix.accounting.rdp.profile import Kind, integer_bounds, kind_of, log_masses
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.noise.laws import Binomial, DiscreteGaussian, DiscreteGaussianSum, Poisson, Skellam


def exact_divergences(masses, order, x):
    """(forward, reverse) D at x by direct summation in mpmath; masses[k + reach] = P0(k)."""
    reach = len(masses) // 2
    s, p = math.floor(x), mpmath.mpf(x) - math.floor(x)
    forward = reverse = mpmath.mpf(0)
    for k in range(-reach + s + 1, reach + 1):
        here, mixed = masses[k + reach], (1 - p) * masses[k - s + reach]
        mixed += p * masses[k - s - 1 + reach] if p else 0
        forward += here * (mixed / here) ** order
    for k in range(-reach + s + 1, reach - s):
        here, mixed = masses[k + reach], (1 - p) * masses[k - s + reach]
        mixed += p * masses[k - s - 1 + reach] if p else 0
        reverse += here * (here / mixed) ** (order - 1)
    return mpmath.log(forward) / (order - 1), mpmath.log(reverse) / (order - 1)


def skellam_masses(rate, reach):
    x = 2 * mpmath.mpf(rate)
    half = [mpmath.besseli(k, x) * mpmath.exp(-x) for k in range(reach + 1)]
    return half[:0:-1] + half


@pytest.mark.parametrize(("rate", "reach"), [(0.05, 60), (0.7, 90), (4, 140), (30, 240)])
def test_kappa_is_the_largest_exact_divergence_on_a_grid(rate, reach):
    orders = (2, 3, 7, 16)
    with mpmath.workdps(50):
        masses = skellam_masses(rate, reach)
        grid = [
            0.003,
            0.02,
            0.04,
            0.07,
            0.1,
            0.15,
            0.2,
            0.25,
            0.3,
            0.4,
            0.5,
            0.6,
            0.8,
            1.0,
            1.2,
            1.5,
            1.9,
            2.5,
            3.0,
        ]
        exact = {a: [max(exact_divergences(masses, a, x)) / mpmath.mpf(x) ** 2 for x in grid] for a in orders}
    upper, lower = kappa_bounds(Skellam(rate), 3.0, orders)
    for i, order in enumerate(orders):
        largest = float(max(exact[order]))
        assert largest <= upper[i]
        assert upper[i] <= lower[i] * (1 + 1.0001e-4)
        assert upper[i] <= largest * 1.05, "the grid is not that coarse"


@pytest.mark.parametrize("rate", [0.3, 8])
def test_single_moments_agree_with_fifty_digits(rate):
    kind = kind_of(Skellam(rate))
    table, concavity_gap = log_masses(kind, 512)
    with mpmath.workdps(50):
        masses = skellam_masses(rate, 160)
        for order, x in [(2, 0.5), (5, 1.25), (20, 0.1), (12, 2.75), (3, 4.0)]:
            for reverse, exact in zip((False, True), exact_divergences(masses, order, x), strict=True):
                s = math.floor(x)
                found = log_moment(order, s, x - s, reverse, table, concavity_gap) / (order - 1)
                assert float(exact) <= found <= float(exact) * (1 + 3e-9)


@pytest.mark.parametrize("rate", [0.05, 3, 700, 2e5])
def test_log_masses_agree_with_ball_arithmetic(rate):
    law = Skellam(rate)
    table, _ = log_masses(kind_of(law), 4096)
    for k in (0, 1, 2, 40, 500, 4000):
        with ctx.workprec(200):
            exact = law.pmf_ball(k, 200).log()
            assert abs(arb(float(table[k])) - exact) < 1e-14 + 1e-14 * abs(float(exact.mid()))


@pytest.mark.parametrize("rate", [0.05, 1, 60, 5e4])
def test_steps_of_the_skellam_law_lie_between_the_bounds_that_tails_rest_on(rate):
    table, concavity_gap = log_masses(kind_of(Skellam(rate)), 4096)
    steps, j = -np.diff(table), np.arange(1, len(table))
    gap = steps - np.arcsinh((j - 0.5) / (2 * rate))
    room = 1e-14 * (1 + np.abs(table[1:]))
    assert np.all(gap >= -room)
    assert np.all(gap <= concavity_gap[1:] + room)
    if len(table) > 2 * rate:  # the table reaches the largest gap
        assert gap.max() > 0.3 * concavity_gap[0], "not a bound out of thin air"


@pytest.mark.parametrize(("variance", "copies"), [(0.25, 5), (0.6, 4), (2.0, 3), (7.0, 2)])
def test_sums_of_discrete_gaussians_match_direct_convolution(variance, copies):
    with mpmath.workdps(50):
        reach = 36
        one = [
            mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(variance))) for k in range(-reach, reach + 1)
        ]
        total = one
        for _ in range(copies - 1):
            total = [
                mpmath.fsum(
                    total[j] * one[k - j] for j in range(max(0, k - 2 * reach), min(k, len(total) - 1) + 1)
                )
                for k in range(len(total) + 2 * reach)
            ]
        norm = mpmath.log(mpmath.fsum(total))
        middle = len(total) // 2
        exact = [float(mpmath.log(total[middle + k]) - norm) for k in range(25)]
    table, _ = log_masses(kind_of(DiscreteGaussianSum(variance, copies)), 256)
    assert np.allclose(table[:25], exact, rtol=1e-13, atol=1e-13)


@settings(max_examples=25, deadline=None)
@given(
    rate=st.floats(0.06, 400),
    x=st.floats(1e-3, 12),
    order=st.integers(2, 40),
    reverse=st.booleans(),
)
def test_no_point_lies_above_kappa(rate, x, order, reverse):
    table, concavity_gap = log_masses(kind_of(Skellam(rate)), 8192)
    s = math.floor(x)
    found = log_moment(order, s, x - s, reverse, table, concavity_gap) / (order - 1) / x**2
    # single moments are rounded up by 1e-9, hence the room
    assert found <= kappa(Skellam(rate), 12.0, (order,))[0] * (1 + 3e-9)


@settings(max_examples=10, deadline=None)
@given(variance=st.floats(0.3, 9), copies=st.integers(1, 60), x=st.floats(0.01, 5), order=st.integers(2, 20))
def test_no_point_lies_above_kappa_for_discrete_gaussians(variance, copies, x, order):
    law = DiscreteGaussianSum(variance, copies)
    table, concavity_gap = log_masses(kind_of(law), 8192)
    s = math.floor(x)
    bound = kappa(law, 5.0, (order,))[0] * (1 + 3e-9)
    for reverse in (False, True):
        assert log_moment(order, s, x - s, reverse, table, concavity_gap) / (order - 1) / x**2 <= bound


def test_kappa_over_a_gaussian_of_the_same_variance():
    published = {
        4: [1.059, 1.104, 1.210, 1.398, 1.696],
        16: [1.015, 1.028, 1.057, 1.117, 1.228],
        60: [1.004, 1.008, 1.016, 1.032, 1.065],
        1000: [1.0002, 1.0004, 1.0009, 1.0019, 1.0039],
    }
    orders = np.array([2, 4, 8, 16, 32])
    for rate, expected in published.items():
        found = kappa(Skellam(rate), 64.0, tuple(orders)) * 4 * rate / orders
        assert np.all(np.abs(found - expected) < 6e-4)
        assert np.all(found >= np.array(expected) - (6e-5 if rate == 1000 else 6e-4))


def test_tightness_over_the_whole_range():
    for rate in (0.05, 0.5, 7, 300, 20_000):
        for reach in (0.4, 1.0, 6.5, 1e5):
            orders = (2, 3, 4, 9, 33, 128, 256)
            upper, lower = kappa_bounds(Skellam(rate), reach, orders)
            assert np.all(lower <= upper)
            assert np.all(upper <= lower * (1 + 1.0001e-4))


def test_more_noise_never_costs_more():
    orders = (2, 8, 64)
    rates = np.geomspace(0.05, 3000, 12)
    values = np.array([kappa(Skellam(r), 5.0, orders) for r in rates])
    assert np.all(values[1:] < values[:-1] * (1 + 1e-4))


def test_a_longer_reach_never_costs_less():
    values = [kappa(Skellam(9), reach, (2, 5, 30)) for reach in (0.1, 0.3, 0.5, 1.0, 2.0, 9.5)]
    assert all(np.all(b >= a * (1 - 1e-4)) for a, b in pairwise(values))


def test_gaussian_limit():
    orders = (2, 16, 128)
    for rate in (1e6, 1e9):
        found = kappa(Skellam(rate), 1.0, orders) * 4 * rate / np.array(orders)
        assert np.all(found >= 1)
        assert np.all(found <= 1 + 1.1e-4 + 128 / (4 * rate))


def test_far_beyond_sums_the_bound_is_looser_but_says_so():
    # variances above 1e6 with a reach above 1: at most min(1/8, 1/(4(α-1))) above a Gaussian's value
    orders = np.array([2, 5, 40, 256])
    found = kappa(Skellam(1e8), 50.0, tuple(orders)) * 4e8 / orders
    assert np.all(found <= 1 + np.minimum(0.125, 0.25 / (orders - 1)) + 2e-4)


def test_integer_shifts_obey_the_published_bound():
    # Agarwal, Kairouz, Liu 2021: relied on for large orders and shifts
    for rate in (0.5, 4, 60, 2000):
        kind = kind_of(Skellam(rate))
        table, concavity_gap = log_masses(kind, 1 << 14)
        for order in (2, 3, 10, 60):
            for s in (1, 2, 7, 40):
                found = log_moment(order, s, 0.0, False, table, concavity_gap) / (order - 1)
                assert found <= (integer_bounds(kind, order) @ np.array([s * s, s, 1.0])).min()


def test_a_single_discrete_gaussian_costs_what_its_theorem_says_at_integers():
    kind = kind_of(DiscreteGaussian(5.0))
    table, concavity_gap = log_masses(kind, 1024)
    assert kind == Kind(5.0, 1)
    for order, s in [(2, 1), (7, 3), (30, 2)]:
        assert log_moment(order, s, 0.0, False, table, concavity_gap) / (order - 1) == pytest.approx(
            order * s * s / 10, rel=1e-8
        )


def test_reverse_direction_never_exceeds_forward_in_the_first_cell():
    table, concavity_gap = log_masses(kind_of(Skellam(2.5)), 1024)
    for order in (2, 3, 11, 40):
        for p in (0.01, 0.2, 0.5, 0.9):
            forward = log_moment(order, 0, p, False, table, concavity_gap)
            assert log_moment(order, 0, p, True, table, concavity_gap) <= forward * (1 + 3e-9)


def test_the_papers_noise_with_the_certified_bound():
    curve = mixture_curve(Skellam(1428), 64.0)
    epsilon, _ = conversion.epsilon(subsampling.poisson(curve, 240 / 60_000) * 1000, 1e-5)
    assert 1.7005 <= epsilon <= 1.705


@pytest.mark.parametrize("rate", [60, 2000])
def test_a_curve_takes_a_fraction_of_a_second(rate):
    orders = tuple(range(2, 129))
    kappa(Skellam(rate * 1.01), 64.0, orders)
    start = time.process_time()
    kappa(Skellam(rate), 64.0, orders)
    assert time.process_time() - start < 0.3


@pytest.mark.parametrize("law", [Poisson(3), Binomial(10, 0.5)])
def test_other_laws_are_refused(law):
    with pytest.raises(InvalidInput):
        kappa(law, 1.0)


@pytest.mark.parametrize("reach", [0, -1.0, math.nan, math.inf])
def test_a_reach_out_of_range_is_refused(reach):
    with pytest.raises(InvalidInput):
        kappa(Skellam(3), reach)


def test_what_the_bound_is_not_meant_for_is_no_bound():
    with pytest.raises(PrivacyUnattainable, match="rescale"):
        kappa(Skellam(3), 1e9)
    with pytest.raises(PrivacyUnattainable, match="rescale"):
        kappa(Skellam(1e-5), 1.0)


def test_results_cannot_be_corrupted_by_the_caller():
    first = kappa(Skellam(3), 1.0, (2, 3))
    first[:] = 0
    assert np.all(kappa(Skellam(3), 1.0, (2, 3)) > 0)
    assert kappa(Skellam(3), 1.0, ()).shape == (0,)
