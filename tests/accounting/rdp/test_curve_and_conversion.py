"""Curves compose; ε and δ invert each other and agree with dp-accounting."""

import math

import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st

from skelmix.accounting.rdp import conversion
from skelmix.accounting.rdp.curve import DEFAULT_ORDERS, RdpCurve
from skelmix.errors import InvalidInput


def test_unequal_rounds_add_up_on_common_orders():
    total = RdpCurve((2, 3, 4), (1.0, 2.0, 3.0)) + RdpCurve((3, 4, 5), (0.5, 0.25, 9.0))
    assert total == RdpCurve((3, 4), (2.5, 3.25))


def test_rounds_multiply():
    curve = RdpCurve((2, 3), (0.1, 0.2))
    assert curve * 3 == 3 * curve == RdpCurve((2, 3), (3 * 0.1, 3 * 0.2))
    assert (curve * 0).values == (0.0, 0.0)
    with pytest.raises(InvalidInput):
        curve * -1
    with pytest.raises(TypeError):
        curve * 1.5
    with pytest.raises(TypeError):
        curve + 1


@pytest.mark.parametrize(
    ("orders", "values"),
    [
        ((3, 2), (1, 1)),
        ((2, 2), (1, 1)),
        ((1,), (1,)),
        ((2.5,), (1,)),
        ((2,), (-1e-9,)),
        ((2,), (math.nan,)),
        ((2,), (math.inf,)),
        ((2, 3), (1,)),
    ],
)
def test_malformed_curves_are_refused(orders, values):
    with pytest.raises(InvalidInput):
        RdpCurve(orders, values)


def test_infinite_values_are_left_out_on_request():
    curve = RdpCurve.where_finite((2, 3, 4), (1.0, math.inf, 2.0))
    assert curve.orders == (2, 4)
    assert curve.at(3) == math.inf
    assert curve.at(4) == 2.0


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(0, 20), min_size=1, max_size=60),
    st.sampled_from([1e-12, 1e-5, 1e-2, 0.5]),
)
def test_epsilon_equals_dp_accounting(values, delta):
    values = sorted(values)
    curve = RdpCurve(DEFAULT_ORDERS[: len(values)], tuple(values))
    theirs, _ = rdp_privacy_accountant.compute_epsilon(curve.orders, curve.values, delta)
    assert conversion.epsilon(curve, delta)[0] == pytest.approx(theirs, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.floats(0.01, 30), st.sampled_from([1e-9, 1e-5, 1e-3]))
def test_delta_inverts_epsilon(scale, delta):
    curve = RdpCurve(DEFAULT_ORDERS, tuple(scale * a / 50 for a in DEFAULT_ORDERS))
    epsilon, _ = conversion.epsilon(curve, delta)
    assert conversion.delta(curve, epsilon)[0] <= delta * (1 + 1e-9)
    if epsilon > 0.01:
        assert conversion.delta(curve, epsilon * 0.999)[0] > delta


def test_an_empty_curve_promises_nothing():
    assert conversion.epsilon(RdpCurve((), ()), 1e-5) == (math.inf, 0)
    assert conversion.delta(RdpCurve((), ()), 1.0) == (1.0, 0)


@pytest.mark.parametrize("delta", [0, 1, -1e-5, math.nan])
def test_delta_outside_the_unit_interval_is_refused(delta):
    with pytest.raises(InvalidInput):
        conversion.epsilon(RdpCurve((2,), (1.0,)), delta)
