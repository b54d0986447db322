"""The predicted error against closed forms, enumeration and simulation."""

import math

import numpy as np
import pytest

from skelmix.accounting.prediction import predict, sum_norm, wrap_moments
from skelmix.mechanisms import L2Clip, MixtureClip, SkellamMixture


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


@pytest.mark.parametrize("deviation", [60.0, 200.0, 1_500.0])
def test_moments_of_what_wraps_against_simulation(deviation):
    modulus = 256
    s = np.random.default_rng(5).normal(0, deviation, 2_000_000)
    lost = s - ((s + modulus / 2) % modulus - modulus / 2)
    square, product, probability = wrap_moments(deviation, modulus)
    assert square == pytest.approx(np.mean(lost**2), rel=0.02)
    assert product == pytest.approx(np.mean(s * lost), rel=0.02)
    assert probability == pytest.approx(np.mean(np.abs(lost) > 1), rel=0.02)


def test_moments_of_what_wraps_have_no_seam():
    below, above = (wrap_moments(4 * 256 * factor, 256) for factor in (1 - 1e-12, 1 + 1e-12))
    assert above == pytest.approx(below, rel=1e-11)


def test_without_spread_nothing_wraps():
    assert wrap_moments(0.0, 256) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("noise", "alignment", "clip"),
    [
        (400.0, 0.0, L2Clip()),  # the noise wraps
        (10_000.0, 0.0, L2Clip()),  # all is lost
        (400.0, 1.0, L2Clip()),  # the sum wraps as well
        (20.0, 1.0, L2Clip()),  # mostly the sum
        (400.0, 1.0, MixtureClip(linf=2)),  # what is shrunk is not there to wrap
    ],
)
def test_the_error_of_sums_that_wrap_often_is_predicted(noise, alignment, clip):
    n, d, scale, bits, turns = 20, 4096, 100.0, 6, 6
    mechanism = SkellamMixture(
        dimension=d, bits=bits, scale=scale, clip_norm=1.0, total_noise=noise, shares=n,
        rotation_seed=b"s" * 32, clip=clip,
    )  # fmt: skip
    told = predict(
        noise_variance=2 * noise, participants=n, norm=1.0, scale=scale, dimension=d, bits=bits,
        alignment=alignment, shrink_to=scale**2 if isinstance(clip, MixtureClip) else None,
        linf=getattr(clip, "linf", math.inf),
    )  # fmt: skip
    generator, errors = np.random.default_rng(3), []
    for turn in range(turns):
        x = generator.standard_normal((1 if alignment else n, d))
        x = np.repeat(x / np.linalg.norm(x, axis=1, keepdims=True), n if alignment else 1, axis=0)
        total = mechanism.decode(mechanism.encode_sum(x, round=turn), round=turn)
        errors.append((total - x.sum(axis=0)) ** 2)
    spread = np.std(errors) / math.sqrt(d * turns)
    assert told.wrap_probability > 0.1
    assert np.mean(errors) == pytest.approx(told.mse, abs=5 * spread)
    # adding up the parts as if they were independent is seen to be wrong
    assert told.effective_mse > np.mean(errors) + 5 * spread


def test_wrapping_may_take_more_noise_than_sum_and_the_error_stays_positive():
    found = simple(noise_variance=1e6, bits=6)
    assert found.wrap < 0 < found.mse < found.effective_mse
    assert found.mse * 16**2 == pytest.approx(64**2 / 12 + 10 * 16**2 / 1024, rel=1e-9)
    assert simple(noise_variance=1e30, bits=1).mse >= 0


def test_the_length_of_a_sum():
    assert sum_norm(100, 2.0, 0.0) == pytest.approx(20.0)
    assert sum_norm(100, 2.0, 1.0) == pytest.approx(200.0)


def test_the_parts_add_up():
    found = simple(bits=6, linf=1.0)
    assert found.mse == pytest.approx(found.noise + found.rounding + found.wrap + found.bias)
    assert found.to_dict()["mse"] == found.mse
    assert 0 < found.touched < 0.1
    assert found.wrap_loss > abs(found.wrap) > 0


def test_a_clip_at_five_deviations_touches_almost_nothing():
    found = simple(linf=5 * 16.0 / 32)
    assert found.touched < 1e-6
    assert found.kept_length == pytest.approx(1.0, abs=1e-6)
