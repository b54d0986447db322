"""The mixtures follow exactly the law that the paper states: Algorithms 1 and 2, 11 and 12."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from helpers.hypothesis_tests import follows
from helpers.noiseless import noiseless
from skelmix.encoding.threads import at_most
from skelmix.encoding.wrapping import unwrap
from skelmix.mechanisms import (
    Binomial,
    DiscreteGaussian,
    EncodeStats,
    FlatClip,
    GaussianMixture,
    MixtureClip,
    Skellam,
    SkellamMixture,
)
from skelmix.noise import laws
from skelmix.noise.table import ExactSampler

D = 40_000
X = np.array([0.25, -1.7, 2.0, 0.9])  # one value a participant, the same in every coordinate
N = len(X)
PLAIN = {"dimension": D, "bits": 16, "scale": 1.0, "clip_norm": 1000.0, "shares": N, "rotate": False}
CUTS = range(-9, 13, 2)
KINDS = {
    "smm": (SkellamMixture(**PLAIN, total_noise=4 * 1.25), laws.Skellam(5.0)),
    "dgm": (GaussianMixture(**PLAIN, total_noise=4 * 2.0), laws.DiscreteGaussian(2).sum_of(4)),
}


def law_of_sum(noise):
    """The CDF of Σ(x_i rounded) + noise, by convolution, on a wide enough range."""
    reach = 200
    mass = noise.pmf(np.arange(-reach, reach + 1))
    for x in X:
        below, p = int(np.floor(x)), x - np.floor(x)
        mass = (1 - p) * np.roll(mass, below) + p * np.roll(mass, below + 1)
    cdf = np.clip(np.cumsum(mass), 0, 1)
    return lambda k: float(cdf[k + reach])


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request):
    return request.param


@pytest.fixture(params=["encode", "encode_sum"])
def way(request):
    return request.param


def released(mechanism, way):
    rows = np.repeat(X[:, None], D, axis=1)
    if way == "encode_sum":
        total = mechanism.encode_sum(rows, round=0)
    else:
        total = mechanism.encode(rows, round=0).astype(np.int64).sum(axis=0) % mechanism.modulus
    return mechanism.decode(total, round=0)


def test_the_released_sum_follows_the_law_of_the_paper(kind, way):
    mechanism, noise = kind
    assert follows(released(mechanism, way), law_of_sum(noise), CUTS)


def test_wrong_variance_shift_and_missing_rounding_are_noticed(kind, way):
    mechanism, noise = kind
    values = released(mechanism, way)
    assert not follows(values + 1, law_of_sum(noise), CUTS)
    wider = laws.Skellam(6.5) if isinstance(noise, laws.Skellam) else laws.DiscreteGaussian(2).sum_of(5)
    assert not follows(values, law_of_sum(wider), CUTS)
    shifted = law_of_sum(noise)
    assert not follows(values, lambda k: shifted(k + 1), CUTS)


def test_unbiased_with_the_variance_of_corollary_2(kind, way):
    mechanism, noise = kind
    values = released(mechanism, way)
    p = X - np.floor(X)
    variance = noise.variance + (p * (1 - p)).sum()
    # 7 standard errors: below 1e-11; the fourth moment of these sums is less than 4·variance²
    assert abs(values.mean() - X.sum()) < 7 * np.sqrt(variance / D)
    assert abs(values.var() - variance) < 7 * np.sqrt(3 * variance**2 / D)


@pytest.mark.parametrize(("mixture", "noise"), [(SkellamMixture, 30.0), (GaussianMixture, 60.0)])
def test_unbiased_with_rotation_scale_and_padding(mixture, noise):
    d, n, repeats = 300, 5, 200
    rng = np.random.default_rng(4)
    x = rng.normal(size=(n, d))
    x /= 1.01 * np.linalg.norm(x, axis=1, keepdims=True)
    mechanism = mixture(dimension=d, bits=16, scale=20.0, clip_norm=1.0, total_noise=noise, shares=n)
    errors = np.array(
        [
            mechanism.decode(mechanism.encode_sum(x, round=round), round=round) - x.sum(axis=0)
            for round in range(repeats)
        ]
    )
    variance = (2 * 30.0 + n / 4) / 20**2  # at most
    assert np.abs(errors.mean(axis=0)).max() < 7.5 * np.sqrt(variance / repeats)
    assert errors.var() < variance * 1.1
    assert errors.var() > 2 * 30.0 / 20**2 * 0.9


@pytest.mark.parametrize(
    ("mixture", "noise"),
    [(SkellamMixture, laws.Skellam(1.5)), (GaussianMixture, laws.DiscreteGaussian(1.5))],
    ids=["algorithm 1", "algorithm 11"],
)
def test_one_dimension_one_participant(mixture, noise):
    mechanism = mixture(dimension=1, bits=12, scale=1.0, clip_norm=9.0, total_noise=1.5, rotate=False)
    sent = mechanism.encode(np.full((30_000, 1), -0.3), round=0)
    values = unwrap(sent, 12)[:, 0]
    mass = noise.pmf(np.arange(-40, 41))
    cdf = np.cumsum(0.7 * mass + 0.3 * np.roll(mass, -1))
    assert follows(values, lambda k: min(1.0, float(cdf[k + 40])), range(-5, 5))
    assert not follows(values, lambda k: min(1.0, float(np.cumsum(mass)[k + 40])), range(-5, 5))


@pytest.mark.parametrize(
    ("mechanism", "noise"),
    [
        (Skellam(**PLAIN, total_noise=5.0), laws.Skellam(5.0)),
        (DiscreteGaussian(**PLAIN, total_noise=8.0), laws.DiscreteGaussian(2).sum_of(4)),
        (Binomial(**PLAIN, total_noise=40.0), laws.Binomial(40, 0.5, centred=True)),
    ],
    ids=["skellam", "ddg", "cpsgd"],
)
def test_baselines_add_the_declared_noise_to_whole_numbers(mechanism, noise, way):
    rows = np.zeros((N, D))
    rows[0] = 3.0
    if way == "encode_sum":
        total = mechanism.encode_sum(rows, round=0)
    else:
        total = mechanism.encode(rows, round=0).astype(np.int64).sum(axis=0) % mechanism.modulus
    values = mechanism.decode(total, round=0) - 3
    cdf = np.cumsum(noise.pmf(np.arange(-60, 61)))
    cuts = range(-8, 9, 2)
    assert follows(values, lambda k: min(1.0, float(cdf[k + 60])), cuts)
    assert not follows(values, lambda k: min(1.0, float(cdf[k + 61])), cuts)


def test_the_flat_clip_touches_almost_nothing_after_rotation():
    d = 4096
    x = np.random.default_rng(0).normal(size=(20, d)).astype(np.float32)
    radius = 64.0
    stats = EncodeStats()
    mechanism = SkellamMixture(
        dimension=d,
        bits=16,
        scale=radius,
        clip_norm=1.0,
        total_noise=50.0,
        clip=FlatClip(5 * radius / d**0.5),
    )
    mechanism.encode_sum(x, round=0, stats=stats)
    assert stats.clipped_rows == 20
    assert stats.touched_coordinates <= 3  # 20·4096·5.7e-7 = 0.05 expected
    tight = SkellamMixture(
        dimension=d,
        bits=16,
        scale=radius,
        clip_norm=1.0,
        total_noise=50.0,
        clip=FlatClip(1 * radius / d**0.5),
    )
    tight.encode_sum(x, round=0, stats=(seen := EncodeStats()))
    assert 0.28 < seen.touched_coordinates / (20 * d) < 0.36  # P(|N(0,1)| > 1) = 0.317


def test_the_papers_clip_bounds_what_is_sent():
    quiet = noiseless(
        SkellamMixture(
            dimension=64, bits=16, scale=9.0, clip_norm=1.0, total_noise=1.0, clip=MixtureClip(linf=2)
        )
    )
    x = np.random.default_rng(0).standard_cauchy(size=(200, 64))
    sent = unwrap(quiet.encode(x, round=0), 16)
    assert np.abs(sent).max() <= 2
    with quiet._prepared(0, x, 0) as (floats, _):
        p = np.abs(floats) % 1
        assert (floats**2 + p - p**2).sum(axis=1).max() <= 81 * (1 + 1e-14)


def test_float32_stays_float32_until_it_is_rounded():
    mechanism = SkellamMixture(dimension=8, bits=8, scale=1.0, clip_norm=1.0, total_noise=1.0)
    for dtype in (np.float32, np.float64):
        with mechanism._prepared(0, np.ones((1, 8), dtype), 0) as (floats, _):
            assert floats.dtype == dtype


def test_a_large_total_noise_is_drawn_in_parts():
    mechanism = SkellamMixture(
        dimension=2000, bits=32, scale=1.0, clip_norm=1.0, total_noise=3e8, shares=10, rotate=False
    )
    total = mechanism.decode(mechanism.encode_sum(np.zeros((10, 2000)), round=0), round=0)
    assert total.std() == pytest.approx(np.sqrt(6e8), rel=7 / np.sqrt(4000))


@pytest.mark.parametrize("kind", [SkellamMixture, Skellam])
@pytest.mark.parametrize("participants", [1, 200, 240])
def test_the_skellam_noise_of_a_simulated_sum_is_one_draw_whoever_is_there(kind, participants, monkeypatch):
    drawn = []
    sample = ExactSampler.sample

    def counted(sampler, shape, **options):
        drawn.append((sampler.law, shape))
        return sample(sampler, shape, **options)

    monkeypatch.setattr(ExactSampler, "sample", counted)
    mechanism = kind(64, bits=12, scale=8.0, clip_norm=1.0, total_noise=60.0, shares=240)
    mechanism.encode_sum(np.zeros((1, 64)), round=0, participants=participants)
    assert drawn == [(laws.Skellam(60 * Fraction(participants, 240)), (1, 64))]


def test_memory_does_not_grow_with_the_participants():
    import tracemalloc

    d = 1 << 16
    mechanism = SkellamMixture(dimension=d, bits=8, scale=64.0, clip_norm=1.0, total_noise=50.0, shares=50)
    row = np.ones(d, np.float32)
    peaks = []
    for threads, count in ((1, 100), (1, 1000), (2, 1000)):
        mechanism.encode_sum(row, round=0, participants=count)
        tracemalloc.start()
        with at_most(threads):
            mechanism.encode_sum((row for _ in range(count)), round=0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.05 * peaks[0]
    assert peaks[2] < 4 * peaks[0]  # two at work, at most two more waiting
    assert peaks[2] < 1000 * d  # 1000 vectors of float32 are 4000·d


def test_noise_for_a_multiplier_is_the_gaussians_when_noise_is_wide():
    mechanism = SkellamMixture(dimension=64, bits=8, scale=64.0, clip_norm=1.0, total_noise=1.0)
    assert mechanism.noise_for_multiplier(0.7) == pytest.approx((0.7 * 64) ** 2 / 2, rel=2e-3)
    few = SkellamMixture(dimension=64, bits=8, scale=2.0, clip_norm=1.0, total_noise=1.0)
    assert (
        few.noise_for_multiplier(0.7) > 1.05 * (0.7 * 2) ** 2 / 2
    )  # small noise hides less than a Gaussian's


@pytest.mark.parametrize("kind", [SkellamMixture, GaussianMixture])
@pytest.mark.parametrize("order", [2, 5, 9])
def test_the_largest_linf_is_the_last_at_which_the_papers_theorem_holds(kind, order):
    mechanism = kind(dimension=64, bits=8, scale=64.0, clip_norm=1.0, total_noise=6e4, shares=100)
    largest = mechanism.largest_linf(order)
    assert largest > 1
    for linf, holds in ((largest, True), (largest + 1, False)):
        curve = replace(mechanism, clip=MixtureClip(linf=linf)).rdp((order,))
        assert (order in curve.orders) is holds
