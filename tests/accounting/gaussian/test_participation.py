"""ε against the aggregator: independent sums over the number of contributions, and exact small laws."""

import functools
import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq
from scipy.stats import binom

from helpers.profiles import gaussian_profile
from skelmix.accounting.gaussian.certificate import GaussianCertificate, gaussian_certificate
from skelmix.accounting.gaussian.participation import (
    aggregator_epsilon,
    largest_mu_against_aggregator,
)
from skelmix.accounting.gaussian.pld import gaussian_pld_epsilon, pld_epsilon
from skelmix.accounting.participations import Participations, smallest_cap
from skelmix.errors import InvalidInput, PrivacyUnattainable

NOISE = 0.6344  # of the central Gaussian: 240 of 60,000, 1,000 rounds, ε = 3 for observers
CERTIFICATE = gaussian_certificate(NOISE)
JOB = Participations(rounds=1_000, sampling_probability=0.004)


def exact_delta(epsilon, mu, rounds, q, cap=None):
    """Σ_k P(min(Bin, cap) = k)·H_ε(N(mu√k,1)‖N(0,1)), with 60 digits."""
    with mpmath.workdps(60):
        epsilon, mu, q = mpmath.mpf(epsilon), mpmath.mpf(mu), mpmath.mpf(q)
        total, masses = mpmath.mpf(0), {}
        for k in range(rounds + 1):
            mass = mpmath.binomial(rounds, k) * q**k * (1 - q) ** (rounds - k)
            kept = k if cap is None else min(k, cap)
            masses[kept] = masses.get(kept, 0) + mass
        for k, mass in masses.items():
            if k and mass > mpmath.mpf(10) ** -200:
                m = mu * mpmath.sqrt(k)
                total += mass * (
                    mpmath.ncdf(m / 2 - epsilon / m) - mpmath.exp(epsilon) * mpmath.ncdf(-m / 2 - epsilon / m)
                )
        return total


def weights(run, enough=1e-12):
    """Of each number of contributions, by scipy."""
    most = (
        run.most if run.fixed else min(run.most, int(binom.isf(enough, run.rounds, run.sampling_probability)))
    )
    found = binom.pmf(np.arange(most + 1), run.rounds, run.sampling_probability)
    if most == run.most:
        found[-1] = binom.sf(most - 1, run.rounds, run.sampling_probability)
    return found


@functools.cache
def sampled_rounds(coin, count, interval, pessimistic):
    """dp-accounting's distribution of `count` coin-sampled rounds."""
    one = privacy_loss_distribution.from_gaussian_mechanism(
        NOISE,
        sampling_prob=coin,
        value_discretization_interval=interval,
        use_connect_dots=pessimistic,
        pessimistic_estimate=pessimistic,
    )
    return one if count == 1 else one.compose(sampled_rounds(coin, count - 1, interval, pessimistic))


def independent_delta(epsilon, run, coin, interval=1e-2, pessimistic=True):
    found = weights(run)
    return sum(
        mass * sampled_rounds(coin, count, interval, pessimistic).get_delta_for_epsilon(epsilon)
        for count, mass in enumerate(found)
        if count and mass > 1e-12
    )


@pytest.mark.parametrize(
    ("run", "known"),
    [
        (JOB, 28.9),
        (Participations(1_000, cap=8), 28.3),
        (Participations(1_000, cap=12), 37.5),
        (Participations(1_000, cap=16), 46.0),
        (Participations(1_000), 1_454),
    ],
)
def test_known_values_without_a_coin(run, known):
    epsilon = aggregator_epsilon(CERTIFICATE, run, delta=1e-5)
    assert epsilon == pytest.approx(known, rel=0.002)
    by_scipy = brentq(
        lambda e: (
            sum(
                mass * float(gaussian_profile(e, k**0.5 / NOISE))
                for k, mass in enumerate(weights(run))
                if mass > 0 < k
            )
            - 1e-5
        ),
        1,
        2_000,
    )
    assert by_scipy <= epsilon * (1 + 1e-9)
    assert epsilon == pytest.approx(by_scipy, rel=1e-6)


@pytest.mark.parametrize(
    ("coin", "run", "known"),
    [
        (0.1, Participations(1_000, 0.04), 12.4),
        (0.1, Participations(1_000, cap=73), 15.7),
        (0.05, Participations(1_000, 0.08), 9.3),
        (0.05, Participations(1_000, cap=124), 10.9),
        (0.1, Participations(1_000, 0.04, cap=20), 9.307),
    ],
)
def test_known_values_with_a_coin(coin, run, known):
    """Within 1 % of a sum over the contributions by dp-accounting; the noise and the observers' ε are the
    same everywhere."""
    epsilon = aggregator_epsilon(CERTIFICATE, run, delta=1e-5, coin=coin)
    assert epsilon == pytest.approx(known, rel=0.005)
    assert independent_delta(epsilon * 1.01, run, coin) < 1e-5 < independent_delta(epsilon * 0.99, run, coin)


def test_a_coin_is_never_accounted_for_below_the_truth():
    """dp-accounting's optimistic distributions are below it."""
    run = Participations(40, 0.2, cap=12)
    for epsilon in (0.5, 2.0, 4.0, 6.0):
        below = independent_delta(epsilon, run, 0.3, interval=2e-3, pessimistic=False)
        assert aggregator_epsilon(CERTIFICATE, run, delta=below, coin=0.3) >= epsilon
        assert aggregator_epsilon(CERTIFICATE, run, delta=below * 1.05 + 1e-10, coin=0.3) <= epsilon


@pytest.mark.parametrize(
    ("mu", "rounds", "q", "cap"),
    [(1 / NOISE, 1_000, 0.004, None), (1 / NOISE, 300, 0.3, 23), (0.05, 50, 0.5, None), (6.0, 20, 0.1, 3)],
)
def test_sums_are_above_the_truth_by_a_hundred_millionth(mu, rounds, q, cap):
    run = Participations(rounds, q, cap)
    certificate = gaussian_certificate(1 / mu)
    for epsilon in (1e-6, 0.1, 3.0, 29.0, 60.0, 75.0):
        truth = exact_delta(epsilon, certificate.mu, rounds, q, cap)
        at, above = float(truth), float(truth * (1 + 1e-8))
        if at > 1e-270:
            assert aggregator_epsilon(certificate, run, delta=at) >= epsilon * (1 - 1e-12)
            assert aggregator_epsilon(certificate, run, delta=above) <= epsilon


def test_epsilon_is_the_least_that_delta_allows_far_out():
    """ε = 65 at δ = 1e-9: 24 contributions."""
    run = Participations(1_000, cap=24)
    epsilon = aggregator_epsilon(CERTIFICATE, run, delta=1e-9)
    assert epsilon > 60
    assert exact_delta(epsilon, CERTIFICATE.mu, 24, 1.0) <= 1e-9
    assert exact_delta(epsilon * (1 - 1e-6), CERTIFICATE.mu, 24, 1.0) > 1e-9


def test_everyone_in_every_round_has_one_epsilon_with_a_coin():
    """A coin in every round is what Poisson sampling is for observers."""
    found = aggregator_epsilon(CERTIFICATE, Participations(1_000), delta=1e-5, coin=0.004)
    assert found == pytest.approx(gaussian_pld_epsilon(NOISE, 0.004, 1_000, 1e-5), abs=2e-3)


@pytest.mark.parametrize("coin", [1.0, 0.2])
def test_caps_and_chance_each_help(coin):
    free, capped, at_will = (
        aggregator_epsilon(CERTIFICATE, run, delta=1e-6, coin=coin)
        for run in (Participations(200, 0.05), Participations(200, 0.05, cap=6), Participations(200, cap=6))
    )
    assert capped < free
    assert capped < at_will
    never_met = aggregator_epsilon(CERTIFICATE, Participations(200, 0.05, cap=200), delta=1e-6, coin=coin)
    assert never_met == free


def test_smallest_caps():
    """Least k with P(Bin > k) < 1e-6, by scipy."""
    for rounds, q, known in (
        (1_000, 0.004, 17),
        (1_000, 0.04, 73),
        (1_000, 0.08, 124),
        (10, 1e-9, 1),
        (5, 1.0, 5),
    ):
        found = smallest_cap(rounds, q)
        assert found == known
        assert binom.sf(found, rounds, q) < 1e-6
        assert found == 1 or binom.sf(found - 1, rounds, q) >= 1e-6


def test_slack_is_paid_for_each_contribution_and_not_times_e_to_the_epsilon():
    exact = aggregator_epsilon(CERTIFICATE, JOB, delta=1e-5 - 4e-9)
    slack = GaussianCertificate("gdp", CERTIFICATE.mu, 1e-9, CERTIFICATE.mu, 1.0, 1)
    assert aggregator_epsilon(slack, JOB, delta=1e-5) == pytest.approx(exact, rel=1e-9)
    assert (
        pld_epsilon(slack, delta=1e-5, rounds=16) == math.inf
    )  # e^46·16·1e-9 for whom participation is secret
    too_much = GaussianCertificate("gdp", CERTIFICATE.mu, 3e-6, CERTIFICATE.mu, 1.0, 1)
    assert aggregator_epsilon(too_much, JOB, delta=1e-5) == math.inf
    assert aggregator_epsilon(too_much, JOB, delta=1e-5 + 1.2e-5) == pytest.approx(28.86, abs=1e-3)


@pytest.mark.parametrize("coin", [1.0, 0.1])
def test_calibration_ends_on_the_private_side(coin):
    run = Participations(1_000, 0.004 / coin)
    mu = largest_mu_against_aggregator(8.0, 1e-5, run, coin=coin)
    assert aggregator_epsilon(gaussian_certificate(1 / mu), run, delta=1e-5, coin=coin) <= 8.0
    assert aggregator_epsilon(gaussian_certificate(1 / (mu * 1.0005)), run, delta=1e-5, coin=coin) > 8.0


def test_what_cannot_be_had_is_refused():
    with pytest.raises(PrivacyUnattainable, match="raise epsilon or delta"):
        largest_mu_against_aggregator(1.0, 1e-13, JOB, coin=0.5)
    assert aggregator_epsilon(CERTIFICATE, JOB, delta=1e-13, coin=0.5) == math.inf
    assert aggregator_epsilon(gaussian_certificate(1e-3), JOB, delta=0.9, coin=0.5) == math.inf
    assert aggregator_epsilon(GaussianCertificate("gdp", 0.0, 0.0, 0.0, 0.0, 1), JOB, delta=1e-5) == 0
    for bad in (dict(sampling_probability=0.0), dict(sampling_probability=1.5), dict(cap=0), dict(rounds=0)):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            Participations(**{"rounds": 10, **bad})
    for coin in (0.0, 1.5, math.nan):
        with pytest.raises(InvalidInput, match="coin"):
            aggregator_epsilon(CERTIFICATE, JOB, delta=1e-5, coin=coin)
