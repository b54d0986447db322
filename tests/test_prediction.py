"""The predicted error against closed forms, enumeration and simulation."""

import math

import numpy as np
import pytest

from skelmix.accounting.prediction import predict, sum_norm, wrap_error


def simple(**changed):
    settings = (
        dict(
            noise_variance=100.0,
            participants=10,
            norm=1.0,
            scale=16.0,
            dimension=1024,
            bits=16,
            alignment=0.0,
        )
        | changed
    )
    return predict(**settings)


@pytest.mark.parametrize("scale", [64.0, 16.0, 4.0])
def test_what_the_papers_clip_keeps_of_a_unit_vector(scale):
    # small coordinates are clipped by their L1 norm, d·s·√(2/π) for N(0, s²), to d·s²
    s = scale / 256
    found = simple(scale=scale, dimension=65_536, shrink_to=scale**2)
    assert found.kept_length == pytest.approx(s * math.sqrt(math.pi / 2), rel=1e-3)
    assert found.bias > 0


def test_rounding_of_small_coordinates_is_the_mean_absolute_value_less_the_square():
    s = 16.0 / 32 / 10
    found = simple(scale=1.6, dimension=1024)
    assert found.rounding * 1.6**2 / 10 == pytest.approx(math.sqrt(2 / math.pi) * s - s * s, rel=1e-3)


def test_rounding_of_wide_coordinates_is_a_sixth():
    assert simple(scale=16_000.0).rounding * 16_000**2 / 10 == pytest.approx(1 / 6)


def test_wrap_error_against_simulation():
    deviation, modulus = 60.0, 256
    s = np.random.default_rng(5).normal(0, deviation, 2_000_000)
    wrapped = (s + modulus / 2) % modulus - modulus / 2
    error, probability = wrap_error(deviation, modulus)
    assert error == pytest.approx(np.mean((s - wrapped) ** 2), rel=0.02)
    assert probability == pytest.approx(np.mean(np.abs(s) > modulus / 2), rel=0.02)


def test_without_spread_nothing_wraps():
    assert wrap_error(0.0, 256) == (0.0, 0.0)


def test_the_length_of_a_sum():
    assert sum_norm(100, 2.0, 0.0) == pytest.approx(20.0)
    assert sum_norm(100, 2.0, 1.0) == pytest.approx(200.0)


def test_the_parts_add_up():
    found = simple(bits=6, linf=1.0)
    assert found.mse == pytest.approx(found.noise + found.rounding + found.wrap + found.bias)
    assert found.to_dict()["mse"] == found.mse
    assert 0 < found.touched < 0.1
    assert found.wrap > 0


def test_a_clip_at_five_deviations_touches_almost_nothing():
    found = simple(linf=5 * 16.0 / 32)
    assert found.touched < 1e-6
    assert found.kept_length == pytest.approx(1.0, abs=1e-6)
