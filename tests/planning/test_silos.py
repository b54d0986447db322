"""Plans for records in silos: one ε for observers and aggregator, the noise of the central mechanism."""

import pytest

import skelmix as sk
from helpers.prose import unwrapped
from skelmix.errors import InvalidInput

TARGET = sk.PrivacyTarget(3.0, 1e-6)
JOB = dict(dimension=63_610, bits=8, rounds=1_000, alignment=0.02)


def test_one_epsilon_for_observers_and_aggregator():
    plan = sk.plan(TARGET, cohort=sk.Silos(10, 60_000, 240), **JOB)
    assert plan.report.epsilon_aggregator == plan.report.epsilon <= 3.0
    assert plan.report.unit == "record"
    assert plan.report.modelled == ""
    assert "one record of one silo added or removed" in unwrapped(plan)


@pytest.mark.parametrize(("unit", "batch"), [("record", 50), ("record", 1_000), ("owner", 50)])
def test_a_card_for_silos_says_what_is_public_and_what_time_shows(unit, batch):
    small = dict(dimension=64, bits=12, rounds=2, scale=64.0, bound="rdp")
    people = unwrapped(sk.plan(TARGET, cohort=sk.Cohort(50, 1_000), **small))
    silos = unwrapped(sk.plan(TARGET, cohort=sk.Silos(10, 1_000, batch, unit=unit), **small))
    facts = (
        f"all that the plan says, its number of {unit}s included",
        f"how long a silo takes depends on how many {unit}s it adds up",
        "per silo,",
    )
    assert [fact in silos for fact in facts] == [True] * 3
    assert not any(fact in people for fact in facts)
    assert "if 50 are drawn, all must survive" in people
    assert "all silos must survive" in silos
    assert "are drawn, all" not in silos, "all silos are in every round"


def test_the_noise_of_the_sum_is_that_of_the_participant_level_plan():
    silos = sk.plan(TARGET, cohort=sk.Silos(10, 60_000, 240), scale=40.0, **JOB)
    people = sk.plan(TARGET, cohort=sk.Cohort(240, 60_000), scale=40.0, **JOB)
    assert silos.mechanism.total_noise == pytest.approx(people.mechanism.total_noise, rel=1e-3)
    assert silos.predicted.rounding < people.predicted.rounding


@pytest.mark.parametrize("mechanism", ["skellam", "ddg", "cpsgd", "gaussian"])
def test_mechanisms_without_a_bound_at_any_base_point_are_refused(mechanism):
    with pytest.raises(InvalidInput, match="silos"):
        sk.plan(TARGET, cohort=sk.Silos(10, 60_000, 240), mechanism=mechanism, **JOB)


def test_the_papers_bound_is_refused():
    with pytest.raises(InvalidInput, match="bound"):
        sk.plan(TARGET, cohort=sk.Silos(10, 60_000, 240), bound="paper", **JOB)


def test_a_plan_for_silos_travels():
    plan = sk.plan(TARGET, cohort=sk.Silos(10, 60_000, 240, 0.2, 1), **JOB)
    again = sk.Plan.from_json(plan.to_json())
    assert again == plan
    summary = again.summary()
    assert (summary["unit"], summary["silos"], summary["records"], summary["batch"]) == (
        "record",
        10,
        60_000,
        240,
    )


@pytest.mark.parametrize(
    "bad", [dict(count=0), dict(batch=70_000), dict(records=0), dict(colluding=10), dict(unit="hospital")]
)
def test_silos_that_make_no_sense_are_refused(bad):
    with pytest.raises(InvalidInput):
        sk.Silos(**(dict(count=10, records=60_000, batch=240) | bad))


@pytest.mark.parametrize(
    ("count", "tolerance", "colluding"), [(3, 0.34, 0), (5, 0.25, 1), (7, 0.1, 2), (4, 0.5, 0)]
)
def test_discrete_gaussians_are_divided_as_was_accounted_for(count, tolerance, colluding):
    """Their sum has another law when it is divided otherwise, even by a little."""
    silos = sk.Silos(count, 1_000, 100, tolerance, colluding)
    plan = sk.plan(
        TARGET, dimension=16, bits=16, rounds=2, scale=64.0, bound="rdp", mechanism="dgm", cohort=silos
    )
    mechanism, roster = plan.mechanism, plan.cohort.roster
    shares = roster.encoding_shares(mechanism.total_noise, count)
    assert mechanism.participant_law(shares) == mechanism.participant_law()
    assert roster.min_survivors(count) >= mechanism.shares + colluding
