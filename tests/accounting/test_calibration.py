"""The least noise: on the private side, and 0.1 % less is not enough."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skelmix.accounting.calibration import least_noise
from skelmix.accounting.rdp import closed_form, conversion, subsampling
from skelmix.accounting.rdp.mixture_constant import mixture_curve
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.noise.laws import Skellam

ORDERS = tuple(range(2, 40))


def epsilon_after_training(curve):
    return conversion.epsilon(subsampling.poisson(curve, 240 / 60_000) * 1000, 1e-5)[0]


@settings(deadline=None, max_examples=60)
@given(st.floats(0.05, 50), st.floats(0.3, 3), st.floats(1e-6, 1e6))
def test_it_ends_on_the_private_side_and_tight(target, power, unit):
    calls = []

    def epsilon_of(noise):
        calls.append(noise)
        return (unit / noise) ** power

    noise = least_noise(epsilon_of, target, 1e-12, 1e12)
    assert epsilon_of(noise) <= target
    assert epsilon_of(noise * 0.999) > target
    assert len(calls) < 45


def test_a_step_function_and_orders_that_vanish():
    noise = least_noise(lambda z: math.inf if z < 3.7 else 0.5, 1.0, 1e-3, 1e3)
    assert 3.7 <= noise <= 3.7 * 1.001
    noise = least_noise(lambda z: 0.0 if z >= 2 else 5.0, 1.0, 1e-3, 1e3)
    assert 2 <= noise <= 2 * 1.001


def test_the_lower_limit_is_returned_when_it_is_enough():
    assert least_noise(lambda z: 0.1, 1.0, 0.5, 10.0) == pytest.approx(0.5)


def test_out_of_reach_is_said_with_a_remedy():
    with pytest.raises(PrivacyUnattainable, match="fewer rounds"):
        least_noise(lambda z: 2.0, 1.0, 0.5, 10.0)
    with pytest.raises(PrivacyUnattainable, match="more bits"):
        least_noise(lambda z: math.inf, 1.0, 0.5, 10.0, remedy="take more bits")


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (0.0, 1.0), (1.0, math.inf), (math.nan, 1.0)])
def test_bad_limits_are_refused(low, high):
    with pytest.raises(InvalidInput):
        least_noise(lambda z: 1 / z, 1.0, low, high)


@pytest.mark.parametrize(("scale", "allowed"), [(4.0, 1.065), (16.0, 1.006), (64.0, 1.001)])
def test_the_mixture_needs_little_more_than_the_central_gaussian(scale, allowed):
    central = least_noise(
        lambda z: epsilon_after_training(closed_form.gaussian(z * z, 1.0, ORDERS)), 3.0, 0.1, 10.0
    )
    calls = []

    def epsilon_of(rate):
        calls.append(rate)
        return epsilon_after_training(mixture_curve(Skellam(rate), scale, ORDERS))

    rate = least_noise(epsilon_of, 3.0, 1e-2, 1e9, guess=(scale * central) ** 2 / 2)
    assert math.sqrt(2 * rate) / scale <= allowed * central
    assert epsilon_of(rate) <= 3.0 < epsilon_of(rate * 0.999)
    assert len(calls) <= 14
