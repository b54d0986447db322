"""ε against the aggregator: random participations, a coin, a cap, and a target for it."""

import math

import pytest
from scipy.stats import binom, norm

import skelmix as sk
from skelmix.errors import InvalidInput

DELTA = 1e-5
JOB = dict(dimension=63_610, bits=8, rounds=1_000, alignment=0.02)


TARGET, COHORT = sk.PrivacyTarget(3.0, DELTA), sk.Cohort(240, 60_000)


def plan(target=TARGET, cohort=COHORT, **more):
    return sk.plan(target, cohort=cohort, **(JOB | more))


def gaussian_delta(mu, epsilon):
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))


@pytest.fixture(scope="module")
def papers_job():
    return plan()


def test_participations_are_counted_as_they_happen(papers_job):
    report = papers_job.report
    assert report.epsilon_aggregator <= 31
    mu, law = report.mu, binom(1_000, 240 / 60_000)
    spent = sum(law.pmf(k) * gaussian_delta(mu * k**0.5, report.epsilon_aggregator) for k in range(1, 60))
    assert spent == pytest.approx(DELTA, rel=0.03)


def test_every_round_stays_available(papers_job):
    report = papers_job.report
    spent = gaussian_delta(report.mu * 1_000**0.5, report.epsilon_every_round) + 1_000 * report.slack
    assert spent == pytest.approx(DELTA, rel=0.01)


def test_a_coin_and_a_cap_bring_it_down():
    cohort = sk.Cohort(4_800, 60_000, contribute=0.05, max_participations=124)
    capped = plan(cohort=cohort)
    assert capped.report.epsilon <= 3.0
    assert capped.report.epsilon_aggregator <= 11.5
    assert capped.report.epsilon_aggregator == capped.report.epsilon_every_round
    assert capped.cohort.divisor == pytest.approx(240)
    agreed = plan(cohort=sk.Cohort(4_800, 60_000, contribute=0.05))
    assert agreed.report.epsilon_aggregator < capped.report.epsilon_aggregator
    assert sk.Plan.from_json(capped.to_json()) == capped


def test_the_coin_costs_the_observers_nothing(papers_job):
    cohort = sk.Cohort(4_800, 60_000, contribute=0.05)
    assert plan(cohort=cohort, scale=50.0).mechanism.total_noise == pytest.approx(
        plan(scale=50.0).mechanism.total_noise, rel=1e-3
    )


def test_both_targets_are_met_and_less_noise_fails(papers_job):
    both = plan(sk.PrivacyTarget(3.0, DELTA, epsilon_aggregator=8.0))
    assert both.report.epsilon_aggregator <= 8.0
    assert both.report.epsilon < 3.0
    assert both.mechanism.noise_variance(240) / both.mechanism.scale**2 > 4 * (
        papers_job.mechanism.noise_variance(240) / papers_job.mechanism.scale**2
    )
    assert both.report.epsilon_aggregator > 8.0 * 0.999


def test_a_target_for_the_aggregator_may_lie_far_below_what_the_observers_need():
    """The certificate's slack is the plan's own, also where the observers' ε ends far below its limit."""
    cohort, setting = sk.Cohort(40, 2_000), {"dimension": 16, "bits": 10, "bound": "gdp", "scale": 30.0}
    both = plan(sk.PrivacyTarget(3.0, DELTA, epsilon_aggregator=3.2), cohort, rounds=200, **setting)
    assert both.binding_target == "aggregator"
    assert both.report.epsilon < 0.5
    assert 3.2 * 0.999 < both.report.epsilon_aggregator <= 3.2


def test_a_loose_target_for_the_aggregator_changes_nothing(papers_job):
    loose = plan(sk.PrivacyTarget(3.0, DELTA, epsilon_aggregator=40.0), scale=papers_job.mechanism.scale)
    assert loose.mechanism.total_noise == pytest.approx(papers_job.mechanism.total_noise, rel=1e-6)


def test_the_aggregator_cannot_know_less_than_observers():
    with pytest.raises(InvalidInput, match="cannot be below epsilon"):
        sk.PrivacyTarget(3.0, DELTA, epsilon_aggregator=2.0)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"contribute": 0.0}, "contribute"),
        ({"contribute": 1.5}, "contribute"),
        ({"max_participations": 0}, "max_"),
    ],
)
def test_bad_coins_and_caps_are_refused(more, name):
    with pytest.raises(InvalidInput, match=name):
        sk.Cohort(10, 100, **more)
