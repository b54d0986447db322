"""Every opened sum carries the planned noise exactly, at none, half and all of the tolerated dropouts."""

from dataclasses import replace

import numpy as np
import pytest

import skelmix as sk
from skelmix.errors import RoundFailed
from skelmix.noise import laws
from skelmix.noise.entropy import system_entropy
from skelmix.noise.table import ExactSampler
from skelmix.rounds.aggregation import Seconds, noisy_silo_sum, noisy_sum
from skelmix.secagg.graph import choose
from skelmix.secagg.settings import Settings
from skelmix.secagg.sizes import protocol_bytes

WIDE = 1 << 17  # coordinates; six rounds of them measure a variance with a deviation of 0.16 %
NARROW = 64
COHORTS = {
    "participants": sk.Cohort.everyone(10, dropout_tolerance=0.4, colluding=1),
    "silos": sk.Silos(10, 1_000, 1_000, dropout_tolerance=0.4, colluding=1),
}


def planned(cohort, dimension, mechanism="smm", **options):
    return sk.plan(
        sk.PrivacyTarget(3.0, 1e-5), dimension=dimension, bits=16, scale=32.0, mechanism=mechanism,
        bound="gdp", cohort=cohort, **options,
    )  # fmt: skip


def empty_sum(plan, survivors, *, secure, sampled=10, round=0):
    """The decoded sum of zero vectors, or of silos without records: noise and nothing else."""
    common = {
        "round": round, "survivors": survivors, "secure": secure, "entropy": system_entropy(),
        "seconds": Seconds(),
    }  # fmt: skip
    if isinstance(plan.cohort, sk.Silos):
        silos = (plan.mechanism.silo_sum(round=round) for _ in range(survivors))
        return noisy_silo_sum(plan, silos, **common)
    return noisy_sum(plan, [], sampled=sampled, **common)


@pytest.mark.parametrize("who", COHORTS)
@pytest.mark.parametrize("secure", ["simulated", "protocol"])
@pytest.mark.parametrize("dropouts", [0, 2, 4])
def test_the_variance_is_the_plans_within_one_percent(who, secure, dropouts):
    plan = planned(COHORTS[who], WIDE)
    sums = [empty_sum(plan, 10 - dropouts, secure=secure, round=round) for round in range(6)]
    assert np.var(sums) == pytest.approx(plan.predicted.noise, rel=0.01)


@pytest.mark.parametrize("secure", ["simulated", "protocol"])
@pytest.mark.parametrize("dropouts", [0, 2, 4])
def test_a_private_sum_has_the_planned_variance_whoever_stays_away(secure, dropouts):
    plan = planned(COHORTS["participants"], WIDE)
    sums = [
        sk.private_sum(np.zeros((10 - dropouts, WIDE), np.float32), plan, secure, round=round).estimate
        for round in range(6)
    ]
    assert np.var(sums) == pytest.approx(plan.predicted.noise, rel=0.01)


@pytest.fixture
def drawn(monkeypatch):
    """The laws that are drawn from."""
    seen = []
    sample = ExactSampler.sample

    def watched(sampler, shape, **options):
        seen.append(sampler.law)
        return sample(sampler, shape, **options)

    monkeypatch.setattr(ExactSampler, "sample", watched)
    return seen


@pytest.mark.parametrize("who", COHORTS)
@pytest.mark.parametrize("survivors", [10, 8, 6])
def test_a_simulated_sum_draws_exactly_the_planned_law(who, survivors, drawn):
    plan = planned(COHORTS[who], NARROW)
    empty_sum(plan, survivors, secure="simulated")
    assert drawn == [laws.Skellam(plan.noise_in_sum)]
    assert plan.noise_in_sum > plan.mechanism.total_noise  # colluders know a part of it


@pytest.mark.parametrize(("sampled", "survivors"), [(240, 240), (300, 240), (150, 150), (201, 180)])
def test_sampled_cohorts_of_every_size_have_the_same_noise(sampled, survivors, drawn):
    plan = planned(sk.Cohort(240, 60_000, dropout_tolerance=0.1, colluding=4), NARROW, rounds=1_000)
    assert plan.cohort.least_survivors <= 150
    empty_sum(plan, survivors, secure="simulated", sampled=sampled)
    assert drawn == [laws.Skellam(plan.noise_in_sum)]


@pytest.mark.parametrize("who", COHORTS)
@pytest.mark.parametrize("secure", ["simulated", "protocol"])
def test_one_survivor_too_few_opens_nothing(who, secure):
    with pytest.raises(RoundFailed):
        empty_sum(planned(COHORTS[who], NARROW), 5, secure=secure)


def test_other_mechanisms_add_shares_for_the_fewest_survivors():
    plan = planned(COHORTS["participants"], WIDE, mechanism="dgm")
    sums = [empty_sum(plan, 8, secure="simulated", round=round) for round in range(2)]
    assert np.var(sums) == pytest.approx(plan.predicted.noise * 8 / 10, rel=0.02)


@pytest.mark.parametrize("sampled", [True, False])
def test_the_sparse_graph_of_a_sampled_cohort_rests_on_the_plans_law_of_dropouts(sampled, monkeypatch):
    used, graph = [], Settings.graph

    def watched(settings, participants):
        used.append((settings.dropout_rate, graph(settings, participants)))
        return used[-1][1]

    monkeypatch.setattr(Settings, "graph", watched)
    cohort = sk.Cohort(120, 12_000) if sampled else sk.Cohort.everyone(120)
    plan = planned(replace(cohort, dropout_tolerance=0.1), NARROW)
    empty_sum(plan, 112, secure="protocol", sampled=120)
    sk.private_sum(np.zeros((112, NARROW), np.float32), plan)
    law = 0.1 if sampled else None
    need = plan.cohort.min_survivors(120)
    expected = choose(120, need, dropout_rate=law)
    assert used == [(law, expected), (None, choose(120, need))]  # a caller's missing vectors follow no law
    assert (expected != choose(120, need)) == sampled
    stated = protocol_bytes(120, need, excess=True, dropout_rate=law)
    assert plan.round_bytes == plan.upload_bytes + stated
