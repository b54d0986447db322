"""Rounds that fail because too many drop out are predicted, warned of, and refused when they are most."""

from dataclasses import replace

import numpy as np
import pytest

import skelmix as sk
from skelmix.errors import InvalidInput
from skelmix.planning.failing import failing_warning


def planned(cohort, mechanism="smm", **options):
    return sk.plan(
        sk.PrivacyTarget(3.0, 1e-5), dimension=16, bits=16, bound="tight" if mechanism == "dgm" else "gdp",
        scale=64.0, mechanism=mechanism, cohort=cohort, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    "cohort",
    [
        sk.Cohort.everyone(40, dropout_tolerance=0.1),
        sk.Cohort(40, 1_000, dropout_tolerance=0.1),
        sk.Cohort(40, 1_000, dropout_tolerance=0.1, least_survivors=34),
        sk.Cohort(40, 1_000, colluding=3, least_survivors=38),
        sk.Silos(10, 1_000, 100, dropout_tolerance=0.2),
    ],
)
@pytest.mark.parametrize("malicious", [False, True])
def test_the_predicted_share_is_that_of_simulated_rounds(cohort, malicious):
    rng, rate, trials = np.random.default_rng(3), 0.1, 20_000
    roster = cohort.roster
    secret = roster.expected < roster.population
    sampled = (
        rng.binomial(roster.population, roster.sampling_probability, trials)
        if secret
        else np.full(trials, roster.expected)
    )
    survivors = rng.binomial(sampled, 1 - rate)
    need = np.array([cohort.min_survivors(int(size), malicious=malicious) for size in sampled])
    share = cohort.failing_rounds(rate, malicious=malicious)
    assert share == pytest.approx(np.mean(survivors < need), abs=5 / np.sqrt(trials))


def test_a_rate_at_the_tolerance_loses_no_rounds_where_noise_is_in_pieces():
    """A sampled cohort opens with far fewer survivors; fixed shares of noise lose half of the rounds."""
    cohort = sk.Cohort(240, 60_000, dropout_tolerance=0.2, dropout_rate=0.2)
    assert planned(cohort).failing_rounds < 1e-5
    assert planned(cohort).warnings == ()
    assert planned(cohort, mechanism="dgm").failing_rounds > 0.4


def test_more_than_one_in_a_hundred_is_warned_of_with_a_tolerance_that_mends_it():
    plan = planned(sk.Cohort.everyone(40, dropout_tolerance=0.1, dropout_rate=0.1))
    (warning,) = plan.warnings
    assert "37.1% of rounds would fail at a dropout rate of 0.1" in warning
    assert "dropout_tolerance = 0.23" in warning
    assert planned(replace(plan.cohort, dropout_tolerance=0.23)).warnings == ()
    assert plan.summary()["failing_rounds"] == plan.failing_rounds


def test_without_a_stated_rate_nothing_is_predicted():
    assert planned(sk.Cohort.everyone(40, dropout_tolerance=0.1)).failing_rounds is None


def test_plans_most_of_whose_rounds_fail_are_refused_unless_allowed():
    cohort = sk.Silos(10, 1_000, 100, dropout_tolerance=0.1, dropout_rate=0.2)
    with pytest.raises(InvalidInput, match=r"62.4% of rounds would fail.*dropout_tolerance = 0.5.*allow"):
        planned(cohort)
    assert planned(cohort, allow_failing_rounds=True).failing_rounds == pytest.approx(0.624, abs=1e-3)


def test_where_no_tolerance_helps_the_remedy_is_another():
    warning = failing_warning(sk.Cohort.everyone(4, colluding=1), 0.9)
    assert warning is not None
    assert warning.endswith("expect more participants, or fewer dropouts")
