"""What a node's policy lets a plan cost: the server's word for the population buys it nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace

import pytest

import skelmix as sk
from skelmix.errors import InvalidInput, PolicyViolation
from skelmix.flower import ClientPolicy, plan_limits
from skelmix.flower.plan_limits import unsampled_epsilon
from skelmix.secagg.keys import Identity

LIFTED = {"max_epsilon_round": 1e9, "max_epsilon_aggregator": 1e9, "max_population": 10**9}


@lru_cache
def sampled_plan(expected=60, population=600, delta=1e-5, epsilon=3.0, rounds=1):
    return sk.plan(
        sk.PrivacyTarget(epsilon, delta),
        dimension=16,
        bits=20,
        scale=2000.0,
        rounds=rounds,
        mechanism="skellam",
        bound="paper",
        cohort=sk.Cohort(expected, population),
    )


def thin_plan(delta=1e-3):
    """60 of 10,000,000: sampled so rarely that next to no noise is (0, δ)-private."""
    return sampled_plan(60, 10_000_000, delta, 1.0)


def judged_by_amplified_epsilon(policy, plan):
    """What the policy asked for before it had limits without sampling."""
    if plan.report.epsilon > policy.max_epsilon or plan.report.delta > policy.max_delta:
        yield "too dear"


def accepted(policy, plan):
    try:
        policy.check_plan(plan)
    except PolicyViolation:
        return False
    return True


def test_next_to_no_noise_is_refused_by_default():
    plan = thin_plan()
    assert plan.report.epsilon == 0
    assert math.sqrt(plan.mechanism.noise_variance(60)) < 0.35 * plan.mechanism.l2_sensitivity
    assert not accepted(ClientPolicy(), plan)


def test_the_limits_that_count_on_sampling_do_not_notice(monkeypatch):
    """The control: with the rules without sampling switched off, the policy accepts it."""
    plan = thin_plan()
    assert not accepted(ClientPolicy(**LIFTED), plan), "δ below 1/population refuses it, even alone"
    monkeypatch.setattr(plan_limits, "_reasons", judged_by_amplified_epsilon)
    assert accepted(ClientPolicy(), plan)


@pytest.mark.parametrize(
    ("cohort", "delta"),
    [
        (sk.Cohort(60, 60, sampling="none", contribute=9e-4), 1e-3),
        (sk.Silos(count=10, records=10**5, batch=1), 9.9e-6),
    ],
)
def test_a_rare_coin_or_draw_of_records_does_not_replace_noise(cohort, delta, monkeypatch):
    """A vector that is sent less often than δ is (0, δ)-private without noise."""
    plan = sk.plan(
        sk.PrivacyTarget(0.1, delta), dimension=16, bits=20, scale=100.0, cohort=cohort, mechanism="smm",
        bound="gdp",
    )  # fmt: skip
    policy = ClientPolicy(max_epsilon_aggregator=1e9)
    with pytest.raises(PolicyViolation, match="one round costs"):
        policy.check_plan(plan)
    monkeypatch.setattr(plan_limits, "round_epsilon", lambda plan: plan.report.epsilon)
    assert accepted(policy, plan), "the control: with coin and draw counted it passes"


@pytest.mark.parametrize("mechanism", ["skellam", "ddg"])
def test_a_modelled_epsilon_is_refused_unless_the_node_allows_it(mechanism):
    plan = sk.plan(
        sk.PrivacyTarget(3.0, 1e-5), dimension=16, bits=20, scale=2000.0, mechanism=mechanism, bound="paper",
        cohort=sk.Cohort(60, 600, dropout_tolerance=0.1),
    )  # fmt: skip
    assert bool(plan.report.modelled) == (mechanism == "ddg")
    assert accepted(ClientPolicy(**LIFTED, allow_modelled=True), plan)
    if mechanism == "skellam":
        ClientPolicy(**LIFTED).check_plan(plan)
        return
    with pytest.raises(PolicyViolation, match="wants ε proved"):
        ClientPolicy(**LIFTED).check_plan(plan)


def test_a_plan_that_proves_nothing_for_small_cohorts_is_refused():
    plan = sk.plan(
        sk.PrivacyTarget(3.0, 1e-5), dimension=16, bits=20, scale=100.0, mechanism="dgm", bound="gdp",
        cohort=sk.Cohort(60, 600),
    )  # fmt: skip
    assert "not even the aggregator's" in plan.report.modelled
    with pytest.raises(PolicyViolation, match="smaller than expected"):
        ClientPolicy(**LIFTED, allow_modelled=True).check_plan(plan)


def test_delta_is_below_one_over_the_population():
    ClientPolicy(**LIFTED | {"max_delta": 0.01}).check_plan(sampled_plan(60, 600, 1.6e-3))
    with pytest.raises(PolicyViolation, match="below one over their number"):
        ClientPolicy(**LIFTED | {"max_delta": 0.01}).check_plan(sampled_plan(60, 600, 1.7e-3))


def test_the_population_is_at_most_what_the_operator_states():
    plan = sampled_plan(60, 60_000, 1e-6, 3.0, 100)
    lifted = {"max_epsilon_round": 1e9, "max_epsilon_aggregator": 1e9}
    assert accepted(ClientPolicy(**lifted, max_population=60_000), plan)
    with pytest.raises(PolicyViolation, match="knows of 59,999 at most"):
        ClientPolicy(**lifted, max_population=59_999).check_plan(plan)
    with pytest.raises(PolicyViolation, match="does not know how many"):
        ClientPolicy(**lifted).check_plan(plan)
    stated = ClientPolicy(**lifted).narrowed({"skelmix-max-population": 60_000})
    assert accepted(stated, plan)
    assert not accepted(stated.narrowed({"skelmix-max-population": "500"}), plan)
    assert stated.narrowed({"skelmix-max-population": 10**6}).max_population == 60_000


def test_trusted_keys_bound_the_population():
    keys = [Identity.generate() for _ in range(4)]
    policy = ClientPolicy(identity=keys[0], trusted={n: key.public for n, key in enumerate(keys)})
    assert policy.stated_population == 4
    with pytest.raises(PolicyViolation, match="knows of 4 at most"):
        policy.check_plan(sampled_plan())


def test_one_round_and_the_whole_run_have_limits_of_their_own():
    plan = sampled_plan()
    one, run = unsampled_epsilon(plan, 1), plan.report.epsilon_aggregator
    assert plan.report.epsilon < run <= one  # the aggregator does not know beforehand whom it will sample
    assert accepted(ClientPolicy(max_epsilon_round=one * 1.001), plan)
    with pytest.raises(PolicyViolation, match="one round costs"):
        ClientPolicy(max_epsilon_round=one * 0.999).check_plan(plan)
    with pytest.raises(PolicyViolation, match="against the aggregator"):
        ClientPolicy(max_epsilon_aggregator=run * 0.999).check_plan(plan)


def test_one_round_does_not_depend_on_the_population_claimed():
    few, many = sampled_plan(60, 600), sampled_plan(60, 600_000, 1e-7, 0.5)
    assert unsampled_epsilon(many, 1) > few.report.epsilon > many.report.epsilon


def test_defaults_are_finite_and_nonsense_is_refused():
    policy = ClientPolicy()
    assert math.isfinite(policy.max_epsilon_round + policy.max_epsilon_aggregator)
    for wrong in ({"max_epsilon_round": math.inf}, {"max_epsilon_aggregator": None}, {"max_population": 0}):
        with pytest.raises(InvalidInput):
            ClientPolicy(**wrong)
    assert policy.narrowed({"skelmix-max-epsilon-round": 2}).max_epsilon_round == 2.0
    assert policy.narrowed({"skelmix-max-epsilon-round": 200}).max_epsilon_round == policy.max_epsilon_round


def test_a_round_on_a_sparse_graph_needs_the_survivors_that_its_graph_counts_on():
    cohort = sk.Cohort(240, 60_000, dropout_tolerance=0.1, least_survivors=136)
    policy = ClientPolicy(full_roster=False)

    def joined(threshold, *, degree, share_threshold=136, malicious=False):
        asked = SimpleNamespace(
            participants=240, neighbourhood=range(degree + 1), degree=degree, threshold=threshold,
            share_threshold=share_threshold, malicious=malicious, colluding=0,
        )  # fmt: skip
        return policy.check_round(asked, cohort)

    sparse = {"degree": 38, "share_threshold": 13}
    assert joined(136, degree=239) == joined(136, degree=239, malicious=True) == joined(176, **sparse) == 240
    for weaker in ({"threshold": 135, "degree": 239}, {"threshold": 175, **sparse}):
        with pytest.raises(PolicyViolation, match=r"the plan needs (136|176) survivors"):
            joined(**weaker)
    # it also opens as often as the plan counts on: under its law of dropouts, or whoever drops out
    assert joined(176, degree=50, share_threshold=13) == 240
    for closed in ({"degree": 36, "share_threshold": 13}, {"degree": 38, "share_threshold": 15}):
        with pytest.raises(PolicyViolation, match="open less often than the plan counts on"):
            joined(176, **closed)
    cohort = replace(cohort, dropout_rate=0.12)
    with pytest.raises(PolicyViolation, match="open less often than the plan counts on"):
        joined(176, **sparse)
