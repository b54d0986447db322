"""Sampling participants: both directions, against exact integrals and against dp-accounting."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from skelmix.accounting.rdp import closed_form, conversion
from skelmix.accounting.rdp.curve import DEFAULT_ORDERS, RdpCurve
from skelmix.accounting.rdp.subsampling import (
    fixed_size,
    poisson,
    poisson_forward,
    poisson_reverse,
    substitution,
)
from skelmix.errors import InvalidInput


@pytest.mark.parametrize("multiplier", [0.5, 0.7, 1.0, 2.0, 10.0])
@pytest.mark.parametrize("q", [0.004, 0.3])
def test_poisson_sampled_gaussian_equals_dp_accounting(multiplier, q):
    accountant = RdpAccountant(orders=DEFAULT_ORDERS)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(multiplier)), 100)
    gaussian = closed_form.gaussian(multiplier**2, 1.0)
    curve = RdpCurve(gaussian.orders, tuple(poisson_forward(gaussian, q).tolist())) * 100
    epsilon, order = conversion.epsilon(curve, 1e-5)
    theirs, their_order = accountant.get_epsilon_and_optimal_order(1e-5)
    assert epsilon == pytest.approx(theirs, abs=1e-6)
    assert order == their_order


def sampled_gaussian(q, sigma, order, reverse):
    """D of the Poisson-sampled Gaussian by quadrature, in the direction asked."""

    def integrand(z):
        log_r = (z - 0.5 / sigma) / sigma
        log_w = np.logaddexp(math.log1p(-q), math.log(q) + log_r)
        power = (1 - order) if reverse else order
        return math.exp(-z * z / 2 + power * log_w) / math.sqrt(2 * math.pi)

    return math.log(quad(integrand, -30, 40, limit=400, epsabs=0, epsrel=1e-11)[0]) / (order - 1)


@pytest.mark.parametrize("q", [0.01, 0.2])
@pytest.mark.parametrize("sigma", [0.8, 3.0])
@pytest.mark.parametrize("order", [2, 5, 12])
def test_both_directions_bound_the_exact_divergence(q, sigma, order):
    curve = closed_form.gaussian(sigma**2, 1.0, range(2, order + 1))
    forward, reverse = poisson_forward(curve, q)[-1], poisson_reverse(curve, q)[-1]
    assert sampled_gaussian(q, sigma, order, False) == pytest.approx(forward, rel=1e-7)
    assert sampled_gaussian(q, sigma, order, True) <= reverse * (1 + 1e-7)
    assert poisson(curve, q).values[-1] == max(forward, reverse)


def ternary(g, sigma, other, order):
    """D of sampling without replacement when the other participant's value is `other`, ours 1 against 0."""

    def integrand(z):
        density = lambda m: math.exp(-((z - m) ** 2) / (2 * sigma**2))  # noqa: E731
        one = (1 - g) * density(other) + g * density(1.0)
        two = (1 - g) * density(other) + g * density(0.0)
        return one**order / two ** (order - 1) / (sigma * math.sqrt(2 * math.pi))

    return math.log(quad(integrand, -15 * sigma, 15 * sigma, limit=400)[0]) / (order - 1)


@pytest.mark.parametrize("other", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("order", [2, 3, 6])
def test_fixed_size_covers_whoever_else_was_drawn(other, order):
    curve = fixed_size(closed_form.gaussian(4.0, 1.0), 10, 100)
    assert ternary(0.1, 2.0, other, order) <= curve.at(order)


def test_fixed_size_amplifies_and_never_exceeds_the_curve():
    base = closed_form.gaussian(1.5, 1.0)
    curve = fixed_size(base, 240, 60_000)
    assert curve.orders == tuple(range(2, 129))
    assert curve.at(2) < 1e-3 * base.at(2)
    assert all(value <= base.at(a) for a, value in zip(curve.orders, curve.values, strict=True))
    assert fixed_size(base, 100, 100) == base
    assert fixed_size(closed_form.gaussian(1.5, 1.0, (2, 3)), 1, 10).orders == ()


def test_substitution_covers_twice_the_distance():
    doubled = substitution(closed_form.gaussian(2.0, 1.0))
    assert all(doubled.at(a) >= a * 4 / 4.0 for a in doubled.orders)
    assert doubled.at(60) == pytest.approx(60.0, rel=0.02)


def test_orders_above_a_gap_are_left_out():
    assert poisson(RdpCurve((2, 3, 5, 6), (0.1, 0.2, 0.3, 0.4)), 0.1).orders == (2, 3)
    assert poisson(RdpCurve((3, 4), (0.1, 0.2)), 0.1).orders == ()
    assert poisson(RdpCurve((), ()), 0.1).orders == ()


def test_no_sampling_and_nobody_sampled():
    curve = closed_form.gaussian(1.0, 1.0, (2, 3, 7))
    assert poisson(curve, 1.0) == curve
    assert poisson(curve, 0.0) == RdpCurve((2, 3), (0.0, 0.0))


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan, True, "half"])
def test_a_sampling_probability_out_of_range_is_refused(q):
    with pytest.raises(InvalidInput):
        poisson(closed_form.gaussian(1.0, 1.0), q)


@settings(deadline=None, max_examples=50)
@given(q=st.floats(1e-6, 0.999), scale=st.floats(1e-6, 50))
def test_sampling_less_never_costs_more(q, scale):
    curve = closed_form.gaussian(1 / scale, 1.0, range(2, 30))
    sampled, sparser = poisson(curve, q), poisson(curve, q / 2)
    assert all(a <= b * (1 + 1e-9) for a, b in zip(sampled.values, curve.values, strict=True))
    assert all(a <= b for a, b in zip(sparser.values, sampled.values, strict=True))
