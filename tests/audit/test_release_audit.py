"""The distinguishing game: claims hold, and the tight ones are not loose."""

import math

import numpy as np
import pytest

from helpers.noiseless import noiseless
from skelmix.audit.release import audit_release, log_likelihood_ratio, play, worst_pair
from skelmix.audit.roc_curve import allowed, plot, roc
from skelmix.errors import InvalidInput
from skelmix.mechanisms import (
    Binomial,
    CentralGaussian,
    DiscreteGaussian,
    FlatClip,
    GaussianMixture,
    MixtureClip,
    Skellam,
    SkellamMixture,
)
from skelmix.noise.entropy import ReproducibleEntropy

DELTA = 1e-2


def smm(**fields):
    common = dict(dimension=16, bits=8, scale=8.0, clip_norm=1.0, total_noise=136.0)
    return SkellamMixture(**(common | fields))


@pytest.mark.parametrize(("epsilon", "noise"), [(1.0, 117_480.0), (3.0, 23_025.0)])
def test_the_attack_comes_within_15_percent_of_the_tight_claim(epsilon, noise):
    """δ = 0.01 is what 10^6 games can see: at 1e-5 the best test errs too rarely to be counted."""
    mechanism = smm(dimension=4, bits=14, scale=256.0, total_noise=noise)
    found = audit_release(
        mechanism,
        delta=DELTA,
        bound="gdp",
        trials=1_000_000,
        pairs=("spread",),
        entropy=ReproducibleEntropy(1),  # the margin is 3 deviations: repeatable, so that luck plays no part
    )
    assert found.claimed == pytest.approx(epsilon, rel=0.001)
    assert found.holds
    assert found.lower_bound >= 0.85 * found.claimed


@pytest.mark.parametrize(
    ("mechanism", "bound"),
    [
        (smm(dimension=1, rotate=False), "gdp"),
        (smm(bits=4, scale=1.0, total_noise=2.2), "rdp"),
        (smm(clip=MixtureClip(linf=2)), "paper"),
        (GaussianMixture(16, 8, 8.0, 1.0, 272.0, shares=2), "gdp"),
        (Skellam(16, 10, 16.0, 1.0, 460.0), "gdp"),
        (DiscreteGaussian(16, 10, 16.0, 1.0, 920.0, shares=2), "paper"),
        (Binomial(4, 14, 16.0, 1.0, 92_000.0, shares=2), "composition"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_every_mechanism_holds_its_claim(mechanism, bound):
    found = audit_release(mechanism, delta=DELTA, bound=bound, trials=20_000)
    assert found.holds
    assert 0 < found.claimed < math.inf


def test_the_pair_is_at_the_clip_bound_and_on_few_coordinates_or_all():
    mechanism = smm(dimension=64, clip=FlatClip(5.0))
    few, all_ = worst_pair(mechanism, "concentrated"), worst_pair(mechanism, "spread")
    assert (few.support, all_.support) == (3, 64)
    assert few.value * math.sqrt(3) == pytest.approx(8)
    assert all_.value * 8 == pytest.approx(8)


def test_what_is_sent_is_the_pair_even_through_the_rotation():
    """Without noise the sums show the vector itself: clipped, on the support and nowhere else."""
    mechanism = smm(scale=8.0)
    pair = worst_pair(mechanism, "concentrated")
    sent = noiseless(mechanism).encode(pair.vector, round=0)
    assert sent[0] in (7, 8)  # γΔ = 8, or one less by the clip's rounding down
    assert (sent[1:] == 0).all()


def test_scores_follow_the_likelihood_ratio_of_the_wrapped_law():
    """E[e^score] = 1 in the world without the vector: true of a likelihood ratio, and of no multiple."""
    mechanism = smm(bits=4, scale=2.0, total_noise=8.0)  # a deviation of 4 on 16 values: it wraps
    pair = worst_pair(mechanism, "spread")
    scores = play(mechanism, None, pair.support, log_likelihood_ratio(mechanism, pair), 100_000)
    spread = np.exp(scores).std() / math.sqrt(scores.size)
    assert abs(np.exp(scores).mean() - 1) < 6 * spread
    assert abs(np.exp(1.2 * scores).mean() - 1) > 6 * spread


def test_more_noise_than_claimed_leaves_a_gap_and_less_refutes():
    claim = {"claimed": 1.0, "delta": DELTA, "trials": 60_000, "pairs": ("spread",)}
    assert audit_release(smm(total_noise=1000.0), **claim).gap > 0.5
    assert not audit_release(smm(total_noise=12.0), **claim).holds


def test_the_report_has_the_promised_keys():
    found = audit_release(smm(), delta=DELTA, claimed=1.0, trials=100).to_dict()
    assert set(found) >= {"claimed", "lower_bound", "confidence", "trials", "holds"}


def test_what_cannot_be_audited_is_refused():
    with pytest.raises(InvalidInput, match="distributed"):
        audit_release(CentralGaussian(4, 8, 1.0, 1.0, 1.0), delta=DELTA)
    with pytest.raises(InvalidInput, match="noise"):
        audit_release(noiseless(smm()), delta=DELTA, claimed=1.0, trials=100)
    with pytest.raises(InvalidInput):
        audit_release(smm(), delta=DELTA, claimed=1.0, trials=1)


def test_the_claimed_region_is_that_of_a_private_test():
    rates = np.linspace(0, 1, 101)
    border = allowed(rates, 1.0, 0.01)
    assert border[0] == pytest.approx(0.01)
    assert border[-1] == 1
    assert (np.diff(border) >= -1e-12).all()
    # the region is symmetric: exchanging the worlds maps (x, y) to (1 - y, 1 - x)
    inside = border < 1
    assert np.allclose(allowed(1 - border, 1.0, 0.01)[inside], 1 - rates[inside])


def test_the_picture_is_written(tmp_path):
    found = audit_release(smm(), delta=DELTA, claimed=1.0, trials=2_000)
    x, y = roc(found.attacks[0].with_vector, found.attacks[0].without)
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= 0).all()
    plot(found, tmp_path / "roc.png")
    assert (tmp_path / "roc.png").read_bytes().startswith(b"\x89PNG")


def test_shares_of_two_participants_make_one_release():
    """The scores of a sum of two halves of the noise have the law of those of one whole."""
    one, two = smm(), smm(shares=2)
    pair = worst_pair(one, "spread")
    ratios = log_likelihood_ratio(one, pair)
    means = [play(m, pair, pair.support, ratios, 50_000).mean() for m in (one, two)]
    deviation = play(one, pair, pair.support, ratios, 5_000).std() / math.sqrt(50_000)
    assert abs(means[0] - means[1]) < 6 * math.sqrt(2) * deviation
