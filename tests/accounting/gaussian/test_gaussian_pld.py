"""Privacy-loss accounting of certificates, against dp-accounting used directly and the closed form."""

import math
from dataclasses import replace

import pytest
from dp_accounting.pld import privacy_loss_distribution

from helpers.profiles import gaussian_profile
from skelmix.accounting.gaussian import (
    composed_delta,
    composed_epsilon,
    gaussian_certificate,
    gaussian_pld_epsilon,
    gdp_certificate,
    largest_mu,
    pld_epsilon,
)
from skelmix.accounting.gaussian.losses import sampled_gaussian
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.noise.laws import Skellam


def test_known_noise_multipliers_of_the_central_gaussian():
    """240 of 60,000, 1000 rounds, δ = 1e-5."""
    for epsilon, known in ((1.0, 0.863), (3.0, 0.6344), (5.0, 0.548)):
        assert 1 / largest_mu(epsilon, 1e-5, 1000, 0.004) == pytest.approx(known, abs=5e-4)


def test_calibration_ends_on_the_private_side():
    mu = largest_mu(3.0, 1e-5, 1000, 0.004)
    assert gaussian_pld_epsilon(1 / mu, 0.004, 1000, 1e-5) <= 3.0
    assert gaussian_pld_epsilon(1 / (mu * 1.0005), 0.004, 1000, 1e-5) > 3.0


def test_sampled_rounds_are_within_a_thousandth_of_the_limit():
    found = gaussian_pld_epsilon(0.7, 0.01, 300, 1e-6)
    fine = privacy_loss_distribution.from_gaussian_mechanism(
        0.7, sampling_prob=0.01, value_discretization_interval=2e-4
    ).self_compose(300)
    limit = fine.get_epsilon_for_delta(1e-6)
    assert limit - 1e-4 <= found <= limit + 1e-3


@pytest.mark.parametrize(
    ("mu", "q", "interval", "rounds"),
    [
        (1.5, 0.004, 4e-3, 1000),
        (0.3, 0.5, 2e-3, 20),
        (5.0, 0.01, 4e-3, 10),
        (35.0, 0.01, 0.05, 3),
        (1.0, 1.0, 1e-3, 3),
    ],
)
def test_distributions_are_those_of_dp_accounting(mu, q, interval, rounds):
    known = privacy_loss_distribution.from_gaussian_mechanism(
        1 / mu, sampling_prob=q, value_discretization_interval=interval
    ).self_compose(rounds)
    found = [losses.repeated(rounds) for losses in sampled_gaussian(mu, q, interval)]
    for delta in (1e-8, 1e-5, 1e-2):
        epsilon = max(losses.epsilon(delta) for losses in found)
        assert epsilon == pytest.approx(
            known.get_epsilon_for_delta(delta), rel=1e-6, abs=1.01 * interval * (mu > 30)
        )
        assert max(losses.delta(epsilon) for losses in found) <= delta * (1 + 1e-9)
        assert max(losses.delta(epsilon) for losses in found) == pytest.approx(
            known.get_delta_for_epsilon(epsilon), rel=1e-4
        )


def test_unequal_distributions_add_up_as_in_dp_accounting():
    parts = [(1.2, 0.01, 50), (0.5, 0.1, 7)]
    known = [
        privacy_loss_distribution.from_gaussian_mechanism(
            1 / mu, sampling_prob=q, value_discretization_interval=1e-3
        ).self_compose(rounds)
        for mu, q, rounds in parts
    ]
    found = [
        first.repeated(50) + second.repeated(7)
        for first, second in zip(
            sampled_gaussian(1.2, 0.01, 1e-3), sampled_gaussian(0.5, 0.1, 1e-3), strict=True
        )
    ]
    expected = known[0].compose(known[1]).get_epsilon_for_delta(1e-5)
    assert max(losses.epsilon(1e-5) for losses in found) == pytest.approx(expected, rel=1e-6)


def test_unsampled_rounds_are_one_gaussian():
    certificate = gaussian_certificate(20.0)
    epsilon = pld_epsilon(certificate, delta=1e-5, rounds=100)
    assert gaussian_profile(epsilon, 0.5) == pytest.approx(1e-5, rel=1e-5)
    assert gaussian_profile(epsilon, 0.5) <= 1e-5
    assert composed_delta([(certificate, 1.0, 100)], epsilon=epsilon) == pytest.approx(1e-5, rel=1e-5)


def test_slack_is_paid_at_e_to_the_epsilon():
    plain = gaussian_certificate(20.0)
    slack = 1e-9
    moved = replace(plain, slack=slack)
    epsilon = pld_epsilon(moved, delta=1e-5, rounds=100)
    paid = composed_delta([(plain, 1.0, 100)], epsilon=epsilon) + math.exp(epsilon) * 100 * slack
    assert paid == pytest.approx(1e-5, rel=1e-4)
    assert composed_delta([(moved, 1.0, 100)], epsilon=epsilon) == pytest.approx(paid, rel=1e-6)
    assert epsilon > pld_epsilon(plain, delta=1e-5, rounds=100)
    assert pld_epsilon(replace(plain, slack=1e-6), delta=1e-5, rounds=100) == math.inf


def test_sampling_scales_the_slack():
    moved = replace(gaussian_certificate(2.0), slack=1e-8)
    epsilon = 2.0
    plain = composed_delta([(gaussian_certificate(2.0), 0.1, 50)], epsilon=epsilon)
    found = composed_delta([(moved, 0.1, 50)], epsilon=epsilon)
    assert found - plain == pytest.approx(math.exp(epsilon) * 50 * 0.1 * 1e-8, rel=1e-3)


def test_unequal_rounds_compose():
    loud, quiet = gaussian_certificate(0.8), gaussian_certificate(3.0)
    parts = [(loud, 0.01, 100), (quiet, 1.0, 4), (quiet, 0.02, 50)]
    together = composed_epsilon(parts, delta=1e-5)
    assert together > max(composed_epsilon([part], delta=1e-5) for part in parts)
    assert together < sum(composed_epsilon([part], delta=1e-5 / 3) for part in parts)
    assert composed_delta(parts, epsilon=together) <= 1e-5 * (1 + 1e-2)
    assert composed_epsilon(parts[::-1], delta=1e-5) == pytest.approx(together, abs=2e-3)
    assert composed_epsilon([], delta=1e-5) == 0
    assert composed_epsilon([(loud, 0.01, 0)], delta=1e-5) == 0


def test_too_little_noise_is_infinite_not_slow():
    assert gaussian_pld_epsilon(1e-3, 0.5, 1000, 1e-5) == math.inf
    assert composed_delta([(gaussian_certificate(1e-3), 0.5, 10)], epsilon=1.0) == 1.0


def test_fixed_size_sampling_is_refused_with_a_remedy():
    with pytest.raises(InvalidInput, match="rdp"):
        pld_epsilon(
            gaussian_certificate(1.0), delta=1e-5, rounds=2, sampling_probability=0.1, sampling="fixed"
        )
    with pytest.raises(InvalidInput, match="sampling_probability"):
        pld_epsilon(gaussian_certificate(1.0), delta=1e-5, sampling_probability=1.5)
    with pytest.raises(InvalidInput, match="delta"):
        pld_epsilon(gaussian_certificate(1.0), delta=0.0)
    with pytest.raises(PrivacyUnattainable):
        largest_mu(1e-9, 1e-14, 10**6)


def test_gdp_alone_meets_its_bar():
    """240 of 60,000, 1000 rounds, δ = 1e-5, γ = 64, ε = 1: standard deviation over the scale at most 0.92."""
    slack = 0.02 * 1e-5 / (math.e * 1000 * 0.004)
    certificate = gdp_certificate(Skellam((0.92 * 64) ** 2 / 2), 64.0, 65_536, slack)
    assert pld_epsilon(certificate, delta=1e-5, rounds=1000, sampling_probability=0.004) <= 1.0


def test_delta_is_never_below_what_the_transforms_may_have_rounded_away():
    many = composed_delta([(gaussian_certificate(50.0), 0.01, 10**5)], epsilon=3.0)
    assert many >= 10**5 * 2.0**-50
    assert composed_epsilon([(gaussian_certificate(50.0), 0.01, 10**5)], delta=1e-12) == math.inf
