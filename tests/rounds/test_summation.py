"""A private sum: the same by protocol and by plain addition, and nothing released when it must not be."""

from dataclasses import replace

import numpy as np
import pytest

import skelmix as sk
from skelmix.errors import BudgetExhausted, InvalidInput, RoundFailed
from skelmix.planning import privacy_report
from skelmix.rounds import Ledger


def plan_for(n, d=16, **cohort):
    return sk.plan(
        sk.PrivacyTarget(50.0, 1e-5),
        dimension=d,
        bits=20,
        bound="gdp",
        cohort=sk.Cohort(n, n, sampling="none", **cohort),
    )


@pytest.mark.parametrize("secure", ["protocol", "simulated"])
@pytest.mark.parametrize("make", [np.asarray, list, iter], ids=["array", "list", "iterator"])
def test_the_estimate_is_the_sum_within_its_noise(secure, make):
    x = np.random.default_rng(1).random((12, 16)) / 8
    plan = plan_for(12)
    result = sk.private_sum(make(x), plan, secure, diagnostics=True)
    assert result.participants == 12
    assert np.abs(result.estimate - x.sum(axis=0)).max() < 7 * plan.predicted.mse**0.5
    assert result.true_mse == pytest.approx(np.mean((result.estimate - x.sum(axis=0)) ** 2))


def test_progress_is_told_four_times_per_participant_of_the_protocol():
    x, times = np.full((12, 16), 0.1), []
    sk.private_sum(x, plan_for(12), heard=lambda: times.append(1))
    assert len(times) == 4 * 12
    plan = plan_for(12, dropout_tolerance=0.2)
    times.clear()
    sk.private_sum(x[:10], plan, heard=lambda: times.append(1))
    assert len(times) == 2 * 12 + 2 * 10, "two fall silent before they send"


@pytest.mark.parametrize("secure", ["protocol", "simulated"])
def test_a_subset_of_the_coordinates_gives_an_estimate_of_them_all(secure):
    x = np.random.default_rng(1).standard_normal((12, 100)) / 10
    plan = plan_for(12, d=100)
    kept = replace(plan, mechanism=replace(plan.mechanism, keep=40, clip_slack=1.0))
    estimates = [sk.private_sum(x, kept, secure, round=round).estimate for round in range(30)]
    predicted = kept.mechanism.predicted_error(12, 0.0)
    assert estimates[0].shape == (100,)
    errors = np.mean((estimates - x.sum(axis=0)) ** 2, axis=1)
    assert errors.mean() == pytest.approx(predicted.mse, rel=0.35)
    assert predicted.sketch > 0.5 * predicted.mse  # averaged out over rounds, each with its own subset
    averaged = np.mean((np.mean(estimates, axis=0) - x.sum(axis=0)) ** 2)
    assert averaged < 0.2 * errors.mean()


@pytest.mark.parametrize("secure", ["protocol", "simulated"])
def test_too_few_release_nothing_and_tolerated_dropouts_do(secure):
    x = np.full((12, 16), 0.1)
    plan = plan_for(12, dropout_tolerance=0.2, colluding=2)
    assert sk.private_sum(x[:10], plan, secure).participants == 10
    with pytest.raises(RoundFailed):
        sk.private_sum(x[:9], plan, secure)


@pytest.mark.parametrize("secure", ["protocol", "simulated"])
@pytest.mark.parametrize(
    "bad", [np.zeros((13, 16)), np.zeros((12, 15)), np.full((12, 16), np.nan), np.zeros((0, 16))]
)
def test_bad_vectors_release_nothing(secure, bad):
    with pytest.raises(InvalidInput):
        sk.private_sum(bad, plan_for(12), secure)


def test_a_trusted_aggregator_is_not_called_secure():
    plan = sk.plan(
        sk.PrivacyTarget(1.0, 1e-5),
        dimension=4,
        cohort=sk.Cohort(3, 3, sampling="none"),
        mechanism="gaussian",
    )
    assert plan.report.epsilon_aggregator == float("inf")
    with pytest.raises(InvalidInput, match="not distributed"):
        sk.private_sum(np.zeros((3, 4)), plan)


def test_a_single_sum_claims_no_amplification():
    plan = sk.plan(
        sk.PrivacyTarget(3.0, 1e-5), dimension=16, bits=20, bound="gdp", cohort=sk.Cohort(24, 2400), rounds=3
    )
    report = sk.private_sum(np.full((24, 16), 0.1), plan, secure="simulated").report
    assert report.epsilon == report.epsilon_aggregator == plan.report.epsilon_every_round
    everyone = privacy_report(  # the same people every time, accounted for as such, with a slack of its own
        plan.mechanism, bound="gdp", cohort=sk.Cohort.everyone(24), rounds=3, delta=1e-5
    )
    assert everyone.epsilon <= report.epsilon == pytest.approx(everyone.epsilon, rel=0.01)
    assert report.epsilon > plan.report.epsilon_aggregator > plan.report.epsilon


def test_a_single_sum_rests_on_no_law_of_dropouts():
    plan = sk.plan(
        sk.PrivacyTarget(3.0, 1e-5), dimension=16, bits=20, bound="gdp",
        cohort=sk.Cohort(40, 1_000, dropout_tolerance=0.1),
    )  # fmt: skip
    report = sk.private_sum(np.full((40, 16), 0.1), plan, secure="simulated").report
    assert plan.report.dropout_rate == 0.1
    assert (report.dropout_rate, report.opening_delta, report.modelled) == (None, 0.0, "")
    assert report.epsilon == plan.report.epsilon_every_round > plan.report.epsilon_aggregator
    assert "drops out with" not in str(report)


@pytest.mark.parametrize(
    ("options", "name"), [({"contribute": 0.5}, "contribute"), ({"max_participations": 1}, "max_part")]
)
def test_a_single_sum_refuses_coins_and_caps_that_it_cannot_keep(options, name):
    target, setting = sk.PrivacyTarget(5.0, 1e-3), {"dimension": 4, "bits": 16, "bound": "gdp"}
    plan = sk.plan(target, rounds=2, cohort=sk.Cohort.everyone(6, **options), **setting)
    with pytest.raises(InvalidInput, match=name):
        sk.private_sum(np.zeros((6, 4)), plan)


def test_a_cap_that_no_run_reaches_is_kept_by_a_single_sum():
    cohort = sk.Cohort.everyone(6, max_participations=1)
    plan = sk.plan(sk.PrivacyTarget(5.0, 1e-3), dimension=4, bits=16, bound="gdp", cohort=cohort)
    assert sk.private_sum(np.zeros((6, 4)), plan).participants == 6


def test_a_ledger_counts_the_rounds_and_ends_them(tmp_path):
    x, plan = np.full((12, 16), 0.1), plan_for(12)
    ledger = Ledger.for_plan(plan, tmp_path / "ledger")
    sk.private_sum(x, plan, "simulated", ledger=ledger)
    with pytest.raises(BudgetExhausted):
        sk.private_sum(x, plan, "simulated", ledger=ledger)
    ledger.close()
    again = Ledger.for_plan(plan, str(tmp_path / "ledger"))
    with pytest.raises(BudgetExhausted):
        sk.private_sum(x, plan, "simulated", ledger=again)
    again.close()


def test_a_failed_sum_stays_charged():
    plan = plan_for(12)
    ledger = Ledger.for_plan(plan, None)
    with pytest.raises(RoundFailed):
        sk.private_sum(np.full((2, 16), 0.1), plan, "simulated", ledger=ledger)
    assert ledger.remaining == 0


@pytest.mark.parametrize(("digest", "budget"), [("another", 1), (None, 2)])
def test_a_ledger_of_another_plan_or_a_larger_budget_is_refused_uncharged(digest, budget):
    plan = plan_for(12)
    ledger = Ledger(None, plan_digest=digest or plan.digest(), budget=budget)
    with pytest.raises(InvalidInput, match="another plan or for more rounds"):
        sk.private_sum(np.full((12, 16), 0.1), plan, "simulated", ledger=ledger)
    assert ledger.charged == 0


@pytest.mark.parametrize("secure", [True, "ideal", "none"])
def test_an_unknown_or_unfit_word_for_secure_is_refused(secure):
    with pytest.raises(InvalidInput, match="secure = "):
        sk.private_sum(np.full((12, 16), 0.1), plan_for(12), secure)


@pytest.mark.parametrize("secure", ["protocol", "simulated"])
@pytest.mark.parametrize("make", [np.asarray, list, iter], ids=["array", "list", "iterator"])
def test_vectors_are_encoded_in_blocks_and_a_bad_one_is_named(secure, make, monkeypatch):
    from skelmix.rounds import summation

    monkeypatch.setattr(summation, "_BLOCK_NUMBERS", 5 * 16)
    x, plan = np.full((12, 16), 0.1), plan_for(12)
    watched = summation._Watched(make(x), plan, False)
    assert max(len(block) for block in watched) > 1
    assert watched.count == 12
    x[7, 3] = np.nan
    with pytest.raises(InvalidInput, match=r"\b7\b"):
        sk.private_sum(make(x), plan, secure)
