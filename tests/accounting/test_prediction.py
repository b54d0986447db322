"""The predicted error against closed forms, enumeration and simulation."""

import math

import numpy as np
import pytest

from skelmix.accounting.prediction import predict, subset_moments, sum_norm, wrap_moments
from skelmix.mechanisms import FlatClip, L2Clip, MixtureClip, SkellamMixture
from skelmix.noise.entropy import ReproducibleEntropy


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
    n, d, scale, bits, turns = 20, 4096, 100.0, 6, 12
    mechanism = SkellamMixture(
        dimension=d, bits=bits, scale=scale, clip_norm=1.0, total_noise=noise, shares=n,
        rotation_seed=b"s" * 32, clip=clip,
    )  # fmt: skip
    predicted = predict(
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
    assert predicted.wrap_probability > 0.1
    assert np.mean(errors) == pytest.approx(predicted.mse, abs=6 * spread)
    # adding up the parts as if they were independent is seen to be wrong
    assert predicted.effective_mse > np.mean(errors) + 6 * spread


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


def aligned(generator, participants, dimension, alignment):
    """Unit vectors with this mean cosine."""
    common, own = generator.standard_normal(dimension), generator.standard_normal((participants, dimension))
    x = math.sqrt(alignment) * common + math.sqrt(1 - alignment) * own
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("alignment", [0.0, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("participants", [4, 30])
@pytest.mark.parametrize(
    ("bits", "keep", "slack", "scale", "noise"),
    [
        (16, 48, 1.0, 64.0, 30.0),  # 0.5 bits per weight
        (12, 192, 0.0, 64.0, 30.0),
        (8, 768, 1.0, 20.0, 4.0),
        (6, 192, 0.5, 64.0, 30.0),  # wraps often
    ],
)
def test_the_error_at_low_rates_is_predicted(bits, keep, slack, scale, noise, participants, alignment):
    """Directions, signs, subsets, rounding and noise are those of fixed seeds, and so the ratio is fixed; its
    deviation over seeds is about 1 %."""
    d, rounds = 1500, max(60, 20_000 // keep)
    mechanism = SkellamMixture(
        dimension=d, bits=bits, scale=scale, clip_norm=1.0, total_noise=noise, shares=participants,
        rotation_seed=b"r" * 32, keep=keep, clip_slack=slack,
        clip=FlatClip(4 * scale / math.sqrt(1536)),
    )  # fmt: skip
    predicted = predict(
        noise_variance=2 * noise, participants=participants, norm=1.0, scale=scale, bits=bits,
        dimension=mechanism.padded_dimension, alignment=alignment, linf=mechanism.clip.linf,
        keep=keep, radius=mechanism.radius,
    )  # fmt: skip
    generator, errors = np.random.default_rng(8), []
    for round in range(rounds):
        x = aligned(generator, participants, d, alignment)
        total = mechanism.encode_sum(x, round=round, entropy=ReproducibleEntropy(round))
        errors.append(np.mean((mechanism.decode(total, round=round) - x.sum(axis=0)) ** 2))
    assert np.mean(errors) / predicted.mse == pytest.approx(1.0, abs=0.03)
    if alignment == 1.0 and bits > 6:  # where the sketch rules, the test sees whether it is there
        assert predicted.mse - predicted.sketch < 0.9 * np.mean(errors)


@pytest.mark.parametrize(("keep", "slack"), [(1, 0.0), (12, 1.0), (128, 0.0), (128, 1.0), (600, 0.0)])
@pytest.mark.parametrize("cosine", [0.3, 1.0])
def test_what_the_clip_of_a_subset_leaves(keep, slack, cosine):
    """Against simulation: the first and second moment of one clipped subset, and the product of two of them,
    whose part beyond kept² falls as the cube of the cosine."""
    d, trials, generator = 640, 40_000, np.random.default_rng(2)
    reach = math.sqrt(keep / d) * (1 + slack / math.sqrt(keep))
    kept, second = subset_moments(keep, d, reach)
    shares = generator.chisquare(keep, trials)
    shares /= shares + generator.chisquare(d - keep, trials)
    left = np.minimum(1.0, reach / np.sqrt(shares))
    assert kept == pytest.approx(d / keep * np.mean(left * shares), rel=0.02 / math.sqrt(keep) + 1e-3)
    assert second == pytest.approx(d / keep * np.mean(left**2 * shares), rel=0.02 / math.sqrt(keep) + 1e-3)
    one, other = generator.standard_normal((2, 4000, keep)) / math.sqrt(d)
    other = cosine * one + math.sqrt(1 - cosine**2) * other
    clipped = [x * np.minimum(1.0, reach / np.linalg.norm(x, axis=1, keepdims=True)) for x in (one, other)]
    product = d / keep * np.mean(np.sum(clipped[0] * clipped[1], axis=1))
    in_the_limit, all_of_it = subset_moments(keep, 10**6, reach * math.sqrt(d / 10**6))
    expected = cosine * in_the_limit**2 + cosine**3 * (all_of_it - in_the_limit**2)
    assert product == pytest.approx(expected, abs=0.06 / math.sqrt(keep))


def test_the_shrinkage_of_128_coordinates():
    """A slack of 0 shrinks by 2.5 %, one of 1 by a tenth of that, in a long vector."""
    d = 65_536
    for slack, lost in ((0.0, 0.025), (1.0, 0.0025)):
        kept, _ = subset_moments(128, d, math.sqrt(128 / d) * (1 + slack / math.sqrt(128)))
        assert 1 - kept == pytest.approx(lost, rel=0.05)


def test_all_coordinates_are_no_subset():
    assert simple(keep=1024, radius=16.0) == simple()
    assert subset_moments(100, 100, 0.5) == (0.5, 0.25)
    assert subset_moments(10, 100, 1.5) == (1.0, 1.0)
    assert simple().sketch == 0.0


def test_the_sketch_grows_with_the_sum_and_falls_with_what_is_kept():
    few, many = (simple(keep=keep, alignment=0.5) for keep in (64, 512))
    assert few.sketch == pytest.approx((1024 / 64 - 1) * sum_norm(10, 1.0, 0.5) ** 2 / 1024)
    assert many.sketch == pytest.approx(few.sketch / 15)
    assert few.noise == 8 * many.noise  # at the same noise per coordinate that is sent
    assert few.effective_mse > few.sketch
