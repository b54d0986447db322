"""A plan meets its target from the private side, says what it assumes, and survives the wire without being
believed."""

import json
import math
from dataclasses import replace

import pytest

import skelmix as sk
from helpers.paper_plans import TARGET, paper_plan
from helpers.prose import unwrapped
from skelmix.errors import BitsTooFew, InvalidInput, PrivacyUnattainable, SkelmixError
from skelmix.planning import Plan, privacy_report


@pytest.mark.parametrize("mechanism", ["smm", "skellam"])
def test_json_round_trip_proves_the_claim_again(mechanism):
    plan = sk.plan(
        TARGET, dimension=100, bits=16, cohort=sk.Cohort(50, 50, sampling="none"), mechanism=mechanism
    )
    again = Plan.from_json(plan.to_json())
    assert again.mechanism == plan.mechanism
    assert again.report == plan.report


def test_a_plan_that_lies_about_its_noise_is_refused():
    plan = sk.plan(TARGET, dimension=100, bits=16, cohort=sk.Cohort(50, 50, sampling="none"))
    data = json.loads(plan.to_json())
    data["mechanism"]["total_noise"] /= 2
    with pytest.raises(InvalidInput, match="do not use it"):
        Plan.from_json(json.dumps(data))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"format": 1}', '{"format": 2}', "\x00", '{"format": 1, "target": 3}']
)
def test_what_is_not_a_plan_is_refused(text):
    with pytest.raises(SkelmixError):
        Plan.from_json(text)


def test_bits_that_cannot_carry_the_noise_name_those_that_can():
    with pytest.raises(BitsTooFew, match=r"bits = \d+"):
        sk.plan(TARGET, dimension=1000, bits=4, cohort=sk.Cohort(100, 100, sampling="none"), scale=64.0)


@pytest.mark.parametrize(("mechanism", "bound"), [("smm", "paper"), ("skellam", "tight"), ("cpsgd", "tight")])
def test_the_bits_that_a_refusal_names_do(mechanism, bound):
    with pytest.raises(BitsTooFew, match=r"use bits = \d+$") as refused:
        paper_plan(mechanism=mechanism, bound=bound, bits=3)
    bits = int(str(refused.value).rpartition(" ")[2])
    assert paper_plan(mechanism=mechanism, bound=bound, bits=bits).mechanism.bits == bits


@pytest.mark.parametrize(
    ("mechanism", "own"), [("cpsgd", "composition"), ("gaussian", "pld"), ("ddg", "paper")]
)
def test_the_bounds_that_a_refusal_names_do(mechanism, own):
    asked = dict(mechanism=mechanism, dimension=16, bits=20, cohort=sk.Cohort.everyone(20))
    with pytest.raises(InvalidInput, match=rf"{mechanism} has .*\b{own}\b.*; take one of them"):
        sk.plan(TARGET, bound="flat", **asked)
    assert sk.plan(TARGET, bound=own, **asked).report.bound == own


def test_the_scale_that_a_refusal_names_does():
    with pytest.raises(BitsTooFew, match=r", or scale = [\d.]+$") as refused:
        paper_plan(bits=4, scale=64.0)
    assert paper_plan(bits=4, scale=float(str(refused.value).rpartition(" ")[2]))


def test_rotation_seeds_differ_between_plans():
    assert paper_plan(scale=64.0).mechanism.rotation_seed != paper_plan(scale=64.0).mechanism.rotation_seed


def test_an_impossible_target_is_refused():
    with pytest.raises(PrivacyUnattainable):
        sk.plan(
            sk.PrivacyTarget(1e-9, 1e-300),
            dimension=10,
            bits=32,
            cohort=sk.Cohort(2, 2, sampling="none"),
            bound="rdp",
        )


@pytest.mark.parametrize("bound", ["tight", "gdp"])
def test_targets_that_renyi_accounting_does_not_reach_are_planned_without_it(bound):
    """However large the noise is, orders up to 256 give no ε so small at this δ."""
    target = sk.PrivacyTarget(0.05, 1e-9)
    planned = sk.plan(target, dimension=64, bits=16, bound=bound, cohort=sk.Cohort.everyone(1_000))
    assert planned.report.epsilon <= 0.05
    assert planned.summary()["central_gaussian_mse_rdp"] is None
    assert "with Rényi accounting" not in str(planned)
    with pytest.raises(PrivacyUnattainable, match="raise epsilon or delta"):
        sk.plan(target, dimension=64, bits=16, bound="rdp", cohort=sk.Cohort.everyone(1_000))


@pytest.mark.parametrize(
    "changed",
    [
        {"dimension": 0}, {"bits": 0}, {"bits": 33}, {"clip_norm": -1.0}, {"rounds": 0},
        {"mechanism": "laplace"}, {"bound": "loose"}, {"scale": 0.0}, {"scale": math.nan},
        {"alignment": 1.5}, {"alignment": -0.5},
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(changed):
    with pytest.raises(InvalidInput):
        paper_plan(**changed)


@pytest.mark.parametrize(
    "arguments",
    [
        dict(expected=0, population=10), dict(expected=11, population=10),
        dict(expected=5, population=10, sampling="none"),
        dict(expected=5, population=10, colluding=5), dict(expected=5, population=10, dropout_tolerance=1.0),
        dict(expected=5, population=10, sampling="bernoulli"),
    ],
)  # fmt: skip
def test_bad_cohorts_are_refused(arguments):
    with pytest.raises(InvalidInput):
        sk.Cohort(**arguments)


@pytest.mark.parametrize("bound", ["rdp", "gdp"])
def test_delta_pays_for_rounds_that_tell_by_opening(bound):
    small, rounds = sk.Cohort(13, 1200), 3
    leak = small.membership_leak_probability(rounds)
    assert 0.1e-5 < leak < 1e-5
    small_plan = sk.plan(TARGET, dimension=16, bits=20, bound=bound, cohort=small, rounds=rounds)
    assert small_plan.report.delta == TARGET.delta
    assert 0.99 * TARGET.epsilon < small_plan.report.epsilon <= TARGET.epsilon
    large = replace(small, expected=130, population=12_000)  # the same rate, and nothing to tell
    proved = dict(bound=bound, cohort=large, rounds=rounds, slack=small_plan.slack or None)
    left = privacy_report(small_plan.mechanism, delta=TARGET.delta - leak, **proved)
    assert small_plan.report.epsilon == pytest.approx(left.epsilon, rel=1e-7)
    with pytest.raises(PrivacyUnattainable, match="expect more participants"):
        sk.plan(TARGET, dimension=16, bits=20, bound=bound, cohort=sk.Cohort(5, 1000), rounds=rounds)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (math.nan, 1e-5), (1, 0), (1, 1), (1, 2)]
)
def test_bad_targets_are_refused(epsilon, delta):
    with pytest.raises(InvalidInput):
        sk.PrivacyTarget(epsilon, delta)


@pytest.mark.parametrize(
    ("mechanism", "bound", "by"),
    [("smm", "rdp", "gdp"), ("smm", "gdp", "gdp"), ("skellam", "paper", "gdp"), ("dgm", "rdp", "gdp"),
     ("gaussian", "rdp", "gaussian")],
)  # fmt: skip
def test_one_round_is_stated_as_gaussian_privacy_whichever_bound_gave_epsilon(mechanism, bound, by):
    plan = paper_plan(mechanism=mechanism, bound=bound, scale=16.0, bits=12)
    report = plan.report
    assert (report.bound, report.mu_by, report.mu_missing) == (bound, by, "")
    # it is the certificate's own number, and that of a Gaussian no larger than the mechanism's noise
    name = "pld" if by == "gaussian" else by
    proved = plan.mechanism.certificate(name, plan.slack)
    assert (report.mu, report.slack) == (proved.mu, proved.slack)
    deviation = math.sqrt(plan.mechanism.noise_variance(plan.mechanism.shares))
    assert report.mu >= plan.mechanism.l2_sensitivity / deviation * (1 - 1e-12)
    line = next(str(fact) for fact in report.guarantee if "-GDP" in fact.value)
    assert float(line.split("-GDP")[0].split()[-1]) >= report.mu
    assert ("certificate" in line) == (bound != by)
    assert Plan.from_json(plan.to_json()).report == report


@pytest.mark.parametrize(
    ("mechanism", "bound", "why"),
    [("smm", "paper", "smm with this clip has no"), ("ddg", "paper", "ddg has no"), ("smm", "rdp", "levels")],
)
def test_where_no_gaussian_privacy_is_stated_the_reason_is(mechanism, bound, why):
    bits = 24 if bound == "rdp" else 12
    report = paper_plan(mechanism=mechanism, bound=bound, scale=2.0**16 if bits == 24 else 16.0, bits=bits,
                        allow_wrapping=True).report  # fmt: skip
    assert (report.mu, report.mu_by, report.slack) == (None, None, 0.0)
    assert why in report.mu_missing
    assert f"no μ-GDP stated: {report.mu_missing}" in unwrapped(report)


def test_what_is_printed_of_a_certificate_is_rounded_up():
    report = replace(paper_plan(scale=16.0, bound="gdp").report, mu=0.12341, slack=1.2341e-9)
    assert "0.1235-GDP up to total variation 1.235e-09" in unwrapped(report)
    assert "total variation 1e-300" in unwrapped(replace(report, slack=1e-310))


def test_the_card_says_what_is_promised_and_assumed():
    text = str(paper_plan(scale=64.0))
    for word in ("differential privacy", "zero vector", "survivors", "aggregator", "central Gaussian"):
        assert word in text


@pytest.mark.parametrize(
    ("mechanism", "cohort", "why"),
    [
        ("smm", sk.Cohort(240, 60_000), ""),
        ("skellam", sk.Cohort(240, 60_000), ""),
        ("gaussian", sk.Cohort(240, 60_000), ""),
        ("dgm", sk.Cohort(100, 100, sampling="none", colluding=1), ""),
        ("smm", sk.Cohort(240, 60_000, colluding=1), ""),
        ("smm", sk.Cohort(240, 60_000, dropout_tolerance=0.1), ""),
        ("dgm", sk.Cohort(240, 60_000, colluding=1), "colluders"),
        ("dgm", sk.Cohort(240, 60_000, dropout_tolerance=0.1), "drop out"),
        ("smm", sk.Cohort(240, 60_000, dropout_tolerance=0.1, sampling="fixed"), ""),
        ("dgm", sk.Cohort(240, 60_000), "noise of dgm depends on the size"),
        ("dgm", sk.Cohort(240, 60_000, sampling="fixed"), ""),
        ("gaussian", sk.Cohort(240, 60_000, dropout_tolerance=0.1), "drop out"),
        ("cpsgd", sk.Cohort(240, 60_000, dropout_tolerance=0.1, sampling="fixed"), ""),
        ("ddg", sk.Cohort(240, 60_000), "noise of ddg depends on the size"),
        ("cpsgd", sk.Cohort(240, 60_000), "noise of cpsgd depends on the size"),
    ],
)
def test_a_step_that_is_a_model_is_named(mechanism, cohort, why):
    bound = "rdp" if mechanism in ("smm", "dgm", "gaussian") else "paper"
    report = sk.plan(
        sk.PrivacyTarget(5.0, 1e-5), dimension=100, bits=20, scale=64.0, bound=bound, rounds=2, cohort=cohort,
        mechanism=mechanism,
    ).report  # fmt: skip
    assert why in report.modelled
    assert bool(report.modelled) == bool(why)
    assert ("A MODEL, NOT PROVED" in unwrapped(report)) == bool(why)
    assert ("not even the aggregator's" in unwrapped(report)) == (mechanism == "dgm" and bool(why))
    assert ("  proved by" in str(report)) == (not why)
    assert report.central == (mechanism == "gaussian")


def test_plans_warn_of_much_error_and_of_a_large_delta():
    everyone = sk.Cohort(500, 500, sampling="none")
    few = sk.plan(sk.PrivacyTarget(1.0, 1e-6), dimension=12, bits=8, cohort=everyone, allow_wrapping=True)
    assert any("use more bits" in warning for warning in few.warnings)
    many = sk.plan(sk.PrivacyTarget(1.0, 1e-6), dimension=12, bits=16, cohort=everyone)
    assert many.warnings == ()
    loose = sk.plan(sk.PrivacyTarget(1.0, 0.002), dimension=12, bits=16, cohort=everyone)
    assert any("well below one over" in warning for warning in loose.warnings)


def test_a_report_says_what_its_arithmetic_assumes():
    target, setting = sk.PrivacyTarget(3.0, 1e-5), dict(dimension=16, bits=20, rounds=4, scale=64.0)
    sampled = sk.Cohort(60, 600)
    assert "right to 2^-50" in unwrapped(sk.plan(target, cohort=sampled, bound="gdp", **setting).report)
    for bound, cohort in (("rdp", sampled), ("gdp", sk.Cohort(60, 60, sampling="none"))):
        assert "arithmetic" not in str(sk.plan(target, cohort=cohort, bound=bound, **setting).report)


class Weights:
    def __init__(self, count, requires_grad=True):
        self.numel, self.requires_grad = lambda: count, requires_grad


class Model:
    def parameters(self):
        return iter([Weights(12), Weights(5, requires_grad=False), Weights(4)])


def test_a_plan_for_a_model_counts_its_trainable_weights():
    target, cohort = sk.PrivacyTarget(5.0, 1e-5), sk.Cohort.everyone(20)
    plan = sk.Plan.for_model(Model(), target, cohort=cohort, bits=16, bound="gdp")
    assert plan.mechanism.dimension == 16
    assert (plan.mechanism.bits, plan.cohort) == (16, cohort)
    with pytest.raises(InvalidInput, match="parameters"):
        sk.Plan.for_model(16, target, cohort=cohort)
