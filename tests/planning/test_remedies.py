"""When two targets cannot be had together, the error names changes that can, and they do."""

import re

import pytest

import skelmix as sk
from helpers.prose import unwrapped
from skelmix.errors import BitsTooFew, InvalidInput

SETTING = {"dimension": 64, "bits": 5, "scale": 4.0, "bound": "gdp", "alignment": 0.02}
TARGET = sk.PrivacyTarget(3.0, 1e-5, epsilon_aggregator=4.0)


def test_the_error_names_a_coin_that_works():
    with pytest.raises(BitsTooFew, match="epsilon_aggregator = 4") as caught:
        sk.plan(TARGET, rounds=200, cohort=sk.Cohort(40, 1_000), **SETTING)
    coin, size = re.search(r"contribute = ([\d.]+) with cohorts of (\d+)", str(caught.value)).groups()
    cohort = sk.Cohort(int(size), 1_000, contribute=float(coin))
    assert cohort.divisor == 40
    assert sk.plan(TARGET, rounds=200, cohort=cohort, **SETTING).meets_target()


def test_what_does_not_fit_the_population_is_not_named():
    with pytest.raises(BitsTooFew, match="tried without success"):
        sk.plan(TARGET, rounds=200, cohort=sk.Cohort(40, 45), **SETTING)


def test_without_a_target_for_the_aggregator_nothing_is_tried():
    with pytest.raises(BitsTooFew) as caught:
        sk.plan(sk.PrivacyTarget(0.1, 1e-5), rounds=200, cohort=sk.Cohort(40, 45), **SETTING)
    assert "Tried" not in str(caught.value)
    assert "tried" not in str(caught.value)


def test_a_trusted_aggregator_has_no_limit():
    with pytest.raises(InvalidInput, match="trusts its aggregator"):
        sk.plan(TARGET, dimension=4, cohort=sk.Cohort.everyone(9), mechanism="gaussian")


def test_the_card_says_which_target_binds():
    setting = {"dimension": 16, "bits": 16, "bound": "gdp", "rounds": 20, "cohort": sk.Cohort(40, 1_000)}
    tight = sk.plan(sk.PrivacyTarget(3.0, 1e-5, epsilon_aggregator=3.5), **setting)
    loose = sk.plan(sk.PrivacyTarget(3.0, 1e-5, epsilon_aggregator=90.0), **setting)
    plain = sk.plan(sk.PrivacyTarget(3.0, 1e-5), **setting)
    assert (tight.binding_target, loose.binding_target) == ("aggregator", "observers")
    assert "the aggregator's binds" in unwrapped(tight)
    assert "the observers' binds" in unwrapped(loose)
    assert "targets" not in str(plain)
    assert plain.summary()["binding_target"] == "observers"


def test_the_proposed_cap_is_the_smallest_that_hardly_anyone_exceeds():
    from scipy.stats import binom

    cohort = sk.Cohort(240, 60_000).with_smallest_cap(1_000)
    law = binom(1_000, 0.004)
    assert law.sf(cohort.max_participations) < 1e-6 <= law.sf(cohort.max_participations - 1)
    assert sk.Cohort.everyone(5).with_smallest_cap(7).max_participations == 7
