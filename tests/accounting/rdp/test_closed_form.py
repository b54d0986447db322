"""The theorems as printed and corrected, their conditions at every order, and the authors' own number."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from skelmix.accounting.rdp import closed_form, conversion, subsampling
from skelmix.accounting.rdp.curve import DEFAULT_ORDERS
from skelmix.errors import InvalidInput


def account(curve):
    return conversion.epsilon(subsampling.poisson(curve, 240 / 60_000) * 1000, 1e-5)


def test_the_authors_own_number():
    epsilon, order = account(closed_form.corollary_1(240 * 5.95, 4096.0, 1))
    assert epsilon == pytest.approx(2.9988, abs=1e-3)
    assert order == 5
    linf = closed_form.largest_linf(240 * 5.95, order)
    assert linf == 4
    assert account(closed_form.corollary_1(1428.0, 4096.0, linf)) == (epsilon, order)


@settings(deadline=None, max_examples=60)
@given(st.floats(1.0, 1e7), st.integers(2, 200))
def test_the_largest_coordinate_is_allowed_at_all_lower_orders_and_one_more_is_not(total_noise, order):
    linf = closed_form.largest_linf(total_noise, order)
    if linf > 0:
        orders = closed_form.corollary_1(total_noise, 1.0, linf).orders
        assert set(range(2, order + 1)) <= set(orders)
    assert order not in closed_form.corollary_1(total_noise, 1.0, linf + 1).orders


def test_no_order_no_number():
    assert closed_form.corollary_1(0.5, 1.0, 1).orders == ()


def test_theorems_3_4_and_5():
    assert closed_form.theorem_3(100.0, 3, (2, 60, 90)).orders == (2, 60)  # α < 200/3 + 1
    assert closed_form.theorem_3(100.0, -3, (2,)).values[0] == pytest.approx((2.18 + 0.91) / 2 * 9 / 200)
    assert closed_form.theorem_4(100.0, 30.0, 3, (4,)).values[0] == pytest.approx(
        (4.36 + 0.91) / 2 * 30 / 200
    )
    curve = closed_form.theorem_5(1000.0, 5.0, 2, DEFAULT_ORDERS)
    assert curve.orders[-1] == 9  # 10.9α² - 1.8α - 9.1 < 1000
    assert curve.at(9) == pytest.approx((10.8 + 1) / 2 * 5 / 2000)


def test_convolution_gap():
    expected = 10 * (math.exp(-2 * math.pi**2 * 0.5 / 2) + math.exp(-2 * math.pi**2 * 0.5 * 2 / 3))
    assert closed_form.convolution_gap(0.5, 3) == pytest.approx(expected)
    assert closed_form.convolution_gap(0.1, 1) == 0
    assert closed_form.convolution_gap(0.2, 2) == math.inf


def test_discrete_gaussian_takes_the_least_of_three():
    tau = closed_form.convolution_gap(0.6, 10)
    found = closed_form.discrete_gaussian(0.6, 10, 3.0, 5.0, 16, (2,)).at(2)
    total = 6.0
    parts = [
        2 * 9 / (2 * total) + tau * 16,
        9 / total + 2 * 5 * tau / math.sqrt(total) + tau**2 * 16,
        (3 / math.sqrt(total) + 4 * tau) ** 2,
    ]
    assert found == pytest.approx(min(parts))
    assert closed_form.discrete_gaussian(0.2, 10, 3.0, 5.0, 16).orders == ()
    assert closed_form.theorem_7(0.6, 10, 2, (3,)).at(3) == pytest.approx(
        min(3 * 4 / 12 + tau, 1.5 * (2 / math.sqrt(6) + tau) ** 2)
    )


def test_corollary_3_has_the_corrected_last_term():
    tau = closed_form.convolution_gap(0.8, 1000)
    curve = closed_form.corollary_3(0.8, 1000, 20.0, 8.0, 2, 64)
    for a in curve.orders:
        assert a * 4 / 1600 + tau < 0.1 / (a - 1)
        assert (2 / math.sqrt(800) + tau) ** 2 < 0.2 / (a * a - a)
        cross = a * 8 * tau / math.sqrt(800) + a / 2 * 64 * tau**2
        assert curve.at(a) == pytest.approx(1.1 * (a * 20 / 1600 + min(64 * tau, cross)))
    assert curve.orders[-1] < 256
    assert curve.orders == tuple(range(2, curve.orders[-1] + 1))
    assert closed_form.theorem_8(0.8, 1000, 4.0, 2).orders == curve.orders


def test_skellam_switches_branches():
    few, many = closed_form.skellam(1.0, 2.0, 4.0, (2,)), closed_form.skellam(1000.0, 2.0, 4.0, (2,))
    assert few.at(2) == pytest.approx(2 * 4 / 4 + min((3 * 4 + 24) / 16, 12 / 4))
    assert many.at(2) == pytest.approx(2 * 4 / 4000 + (3 * 4 + 24) / (4 * 2000**2))


def test_binomial_needs_its_condition():
    kept = {"l2": 4.0, "l1": 16.0, "linf": 1.0, "dimension": 100, "delta": 1e-5}
    needed = 23 * math.log(10 * 100 / 1e-5)
    assert closed_form.binomial(trials=4 * needed * 0.999, **kept) == math.inf
    assert closed_form.binomial(trials=4 * needed * 1.001, **kept) < math.inf
    ample = 1e9
    leading = 4 * math.sqrt(2 * math.log(1.25e5) / (ample / 4))
    assert closed_form.binomial(trials=ample, **kept) == pytest.approx(leading, rel=2e-3)
    with pytest.raises(InvalidInput):
        closed_form.binomial(1e6, 1.0, 1.0, 1.0, 10, 1.5)


def _binomial_epsilon(trials: int, shift: int, delta: float) -> float:
    """ε of one integer shift of Bin(N, 1/2), by summing its masses."""
    at = np.arange(trials + 1)
    logs = gammaln(trials + 1) - gammaln(at + 1) - gammaln(trials - at + 1) - trials * math.log(2)
    loss = np.full(trials + 1, np.inf)
    loss[: trials + 1 - shift] = logs[: trials + 1 - shift] - logs[shift:]
    low, high = 0.0, 1000.0
    for _ in range(50):
        middle = (low + high) / 2
        excess = -np.expm1(np.minimum(0.0, middle - loss)) @ np.exp(logs)
        low, high = (middle, high) if excess > delta else (low, middle)
    return high


@pytest.mark.parametrize("delta", [1e-8, 1e-5, 1e-2, 0.5])
@pytest.mark.parametrize(("trials", "shift"), [(2_000, 1), (4_000, 100), (400_000, 300), (400_000, 3_000)])
def test_the_bound_of_the_binomial_is_above_the_truth_at_any_epsilon(trials, shift, delta):
    exact = _binomial_epsilon(trials, shift, delta)
    spread = (float(shift), float(shift), float(shift), 1, delta)
    assert closed_form.binomial_tail(trials, *spread) > exact
    assert closed_form.binomial(trials, *spread) > exact


def test_the_published_bound_of_the_binomial_alone_would_not_do():
    trials, shift, delta = 400_000, 3_000, 1e-5
    published = shift * math.sqrt(2 * math.log(1.25 / delta) / (trials / 4))
    assert (
        published
        < _binomial_epsilon(trials, shift, delta)
        < closed_form.binomial(trials, shift, shift, shift, 1, delta)
    )


def test_composition_without_a_curve_keeps_the_better():
    def one_round(delta):
        return 0.01 * math.sqrt(math.log(1 / delta))

    many = closed_form.composed_epsilon(one_round, 1.0, 10_000, 1e-5)
    assert many < 10_000 * one_round(1e-9)
    once = closed_form.composed_epsilon(one_round, 1.0, 1, 1e-5)
    assert once == pytest.approx(one_round(1e-5))
    assert closed_form.composed_epsilon(one_round, 0.01, 100, 1e-5) < closed_form.composed_epsilon(
        one_round, 1.0, 100, 1e-5
    )
    assert closed_form.composed_epsilon(lambda _: math.inf, 0.1, 10, 1e-5) == math.inf


def test_amplification_and_advanced_composition_by_hand():
    assert closed_form.amplify_poisson(1.0, 0.1) == pytest.approx(math.log(1 + 0.1 * (math.e - 1)))
    assert closed_form.amplify_poisson(2000.0, 0.5) == pytest.approx(2000 + math.log(0.5))
    expected = 100 * 0.1 * (math.exp(0.1) - 1) / (math.exp(0.1) + 1) + 0.1 * math.sqrt(200 * math.log(1e6))
    assert closed_form.compose_advanced(0.1, 100, 1e-6) == pytest.approx(expected)


def test_zero_sensitivity_costs_nothing():
    assert set(closed_form.gaussian(1.0, 0.0).values) == {0.0}
    assert set(closed_form.skellam(1.0, 0.0, 0.0).values) == {0.0}


@pytest.mark.parametrize("noise", [0, -1.0, math.nan, math.inf])
def test_noise_must_be_positive(noise):
    with pytest.raises(InvalidInput):
        closed_form.corollary_1(noise, 1.0, 1)
    with pytest.raises(InvalidInput):
        closed_form.gaussian(noise, 1.0)
