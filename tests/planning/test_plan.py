"""A plan meets its target from the private side, says what it assumes, and survives the wire without being
believed."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import skelmix as sk
from skelmix.accounting.gaussian import pld
from skelmix.accounting.gaussian.flat import flat_certificate
from skelmix.accounting.rdp.curve import DEFAULT_ORDERS
from skelmix.errors import BitsTooFew, InvalidInput, PrivacyUnattainable, SkelmixError
from skelmix.mechanisms.bounds.renyi import rdp_epsilon
from skelmix.planning import Plan, account, privacy_report

TARGET = sk.PrivacyTarget(epsilon=3.0, delta=1e-5)
PAPER = sk.Cohort(expected=240, population=60_000)
MECHANISMS = ("smm", "dgm", "skellam", "ddg", "cpsgd", "gaussian")


def paper_plan(target=TARGET, **changed):
    settings = dict(dimension=63_610, clip_norm=1.0, bits=8, rounds=1000, cohort=PAPER) | changed
    return sk.plan(target, **settings)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_noise_is_the_least_that_meets_the_target(mechanism):
    plan = sk.plan(
        sk.PrivacyTarget(2.0, 1e-5),
        dimension=1000,
        bits=20,
        cohort=sk.Cohort(100, 100, sampling="none"),
        mechanism=mechanism,
    )
    assert plan.report.epsilon <= 2.0
    less = replace(plan.mechanism, total_noise=plan.mechanism.total_noise * 0.999)
    if mechanism == "cpsgd":
        less = replace(plan.mechanism, total_noise=math.floor(plan.mechanism.total_noise * 0.998))
    assert (
        privacy_report(less, bound=plan.report.bound, cohort=plan.cohort, rounds=1, delta=1e-5).epsilon > 2.0
    )


@pytest.mark.parametrize(
    ("bound", "low", "high", "order"), [("paper", 2.9978, 2.9998, 5), ("rdp", 1.7005, 1.705, None)]
)
def test_the_check_value_of_the_authors(bound, low, high, order):
    found = account(
        noise=5.95, delta=1e-5, dimension=63_610, bits=8, rounds=1000, cohort=PAPER, scale=64.0, bound=bound
    )
    assert low <= found.report.epsilon <= high
    assert order is None or found.report.order == order


@pytest.mark.parametrize(("scale", "over_central"), [(4, 1.065), (16, 1.006), (64, 1.001)])
def test_rdp_noise_is_close_to_the_central_gaussian(scale, over_central):
    plan = paper_plan(bound="rdp", scale=float(scale), bits=16)
    deviation = math.sqrt(2 * plan.mechanism.total_noise) / scale
    assert 1.0 <= deviation / math.sqrt(plan.central_gaussian_mse_rdp) <= over_central


@pytest.mark.parametrize(
    ("epsilon", "scale", "most"),
    [(3.0, 64.0, 0.637), (3.0, 12.0, 0.646), (3.0, 3.0, 0.70), (1.0, 64.0, 0.868)],
)
def test_tight_noise_is_close_to_the_central_gaussian_at_its_best(epsilon, scale, most):
    plan = sk.plan(
        sk.PrivacyTarget(epsilon, 1e-5), dimension=65_536, bits=16, rounds=1000, cohort=PAPER, scale=scale
    )
    assert math.sqrt(2 * plan.mechanism.total_noise) / scale <= most
    assert plan.report.bound in ("flat", "gdp", "rdp")


def test_tight_is_never_worse_than_any_of_its_parts():
    tight = paper_plan(scale=16.0).mechanism.total_noise
    for bound in ("rdp", "gdp", "flat", "paper"):
        try:
            rival = paper_plan(scale=16.0, bound=bound).mechanism.total_noise
        except PrivacyUnattainable:
            continue
        assert tight <= rival * 1.001


def test_noise_shares_cover_dropouts_and_collusion():
    cohort = sk.Cohort(expected=240, population=60_000, dropout_tolerance=0.1, colluding=6)
    plan = paper_plan(cohort=cohort, scale=64.0)
    assert cohort.min_survivors(240) == 216
    assert plan.mechanism.shares == 210
    assert plan.mechanism.noise == pytest.approx(plan.mechanism.total_noise / 210)
    assert plan.report.min_survivors == 216
    assert plan.predicted.noise == pytest.approx(2 * plan.mechanism.total_noise * 240 / 210 / 64**2)


def test_the_aggregator_counts_participations_and_has_no_amplification():
    report = paper_plan(scale=64.0).report
    assert 5 * report.epsilon < report.epsilon_aggregator <= 31
    assert report.epsilon_every_round > 1000
    assert "aggregator" in str(report)


def test_everyone_in_every_round_has_nothing_to_amplify():
    plan = sk.plan(TARGET, dimension=1000, bits=16, cohort=sk.Cohort(100, 100, sampling="none"))
    assert plan.report.epsilon_aggregator == pytest.approx(plan.report.epsilon, rel=1e-6)


def test_fixed_size_sampling_is_accounted_as_such():
    fixed = paper_plan(cohort=sk.Cohort(240, 60_000, sampling="fixed"), scale=64.0, bound="rdp", bits=16)
    poisson = paper_plan(scale=64.0, bound="rdp", bits=16)
    assert fixed.report.sampling == "fixed"
    assert fixed.mechanism.total_noise > poisson.mechanism.total_noise


@pytest.mark.parametrize(
    "cohort",
    [
        sk.Cohort(100, 60_000, sampling="fixed"),
        sk.Cohort(50, 200, sampling="fixed"),
        sk.Cohort(100, 60_000),
        sk.Cohort(20, 20, sampling="none"),
    ],
)
def test_leaving_orders_out_costs_nothing(cohort):
    for noise, rounds in ((60.0, 100), (4.0, 1)):
        found = account(
            noise=noise,
            delta=1e-5,
            dimension=1000,
            bits=32,
            scale=64.0,
            cohort=cohort,
            rounds=rounds,
            bound="rdp",
        )
        curve = found.mechanism.rdp(DEFAULT_ORDERS)
        assert found.report.epsilon == pytest.approx(
            rdp_epsilon(curve, cohort.schedule(rounds), 1e-5)[0], rel=1e-5
        )


def test_so_much_noise_that_nothing_is_lost_is_accounted_for():
    found = account(
        noise=2e4, delta=1e-5, dimension=100, scale=0.001, cohort=sk.Cohort(20, 20, sampling="none")
    )
    assert found.report.epsilon == 0
    assert Plan.from_json(found.to_json()).report.epsilon == 0


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


def test_the_scale_that_a_refusal_names_does():
    with pytest.raises(BitsTooFew, match=r", or scale = [\d.]+$") as refused:
        paper_plan(bits=4, scale=64.0)
    assert paper_plan(bits=4, scale=float(str(refused.value).rpartition(" ")[2]))


def test_a_scale_the_paper_bound_cannot_use_is_replaced_by_one_it_can():
    plan = paper_plan(target=sk.PrivacyTarget(8.0, 1e-5), bound="paper", bits=5)
    assert plan.report.epsilon <= 8
    assert plan.predicted.wrap_probability < 0.05


def test_discrete_gaussians_narrower_than_their_theorem_asks_still_get_a_good_scale():
    plan = paper_plan(mechanism="dgm", bits=4)
    assert plan.predicted.effective_mse < 5 * plan.central_gaussian_mse


@pytest.mark.parametrize("bits", [4, 8, 12])
def test_a_plan_needs_few_certificates_and_few_distributions(bits):
    certificates, distributions = flat_certificate.cache_info().misses, pld._profile.cache_info().misses
    paper_plan(target=sk.PrivacyTarget(2.9 + bits / 1e4, 1e-5), bits=bits)
    assert flat_certificate.cache_info().misses - certificates <= 5
    assert pld._profile.cache_info().misses - distributions <= 25


def test_the_planned_scale_beats_its_neighbours():
    plan = paper_plan(alignment=0.0)
    for factor in (0.5, 2.0):
        rival = paper_plan(alignment=0.0, scale=plan.mechanism.scale * factor)
        assert plan.predicted.effective_mse <= rival.predicted.effective_mse


def test_wrapping_that_bounds_the_noise_is_no_gain():
    plan = paper_plan(alignment=0.0)
    wrapping = paper_plan(alignment=0.0, scale=plan.mechanism.scale * 2)
    assert wrapping.predicted.mse < plan.predicted.mse  # but 4 % of its coordinates are nonsense
    ratio = wrapping.predicted.effective_mse / wrapping.central_gaussian_mse
    assert ratio > 1.5
    assert f"{ratio:.4f} times the central Gaussian" in str(wrapping)
    assert wrapping.warnings


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
    told = small.membership_leak_probability(rounds)
    assert 0.1e-5 < told < 1e-5
    made = sk.plan(TARGET, dimension=16, bits=20, bound=bound, cohort=small, rounds=rounds)
    assert made.report.delta == TARGET.delta
    assert 0.99 * TARGET.epsilon < made.report.epsilon <= TARGET.epsilon
    large = replace(small, expected=130, population=12_000)  # the same rate, and nothing to tell
    proved = dict(bound=bound, cohort=large, rounds=rounds, slack=made.slack or None)
    left = privacy_report(made.mechanism, delta=TARGET.delta - told, **proved)
    assert made.report.epsilon == pytest.approx(left.epsilon, rel=1e-7)
    with pytest.raises(PrivacyUnattainable, match="expect more participants"):
        sk.plan(TARGET, dimension=16, bits=20, bound=bound, cohort=sk.Cohort(5, 1000), rounds=rounds)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (math.nan, 1e-5), (1, 0), (1, 1), (1, 2)]
)
def test_bad_targets_are_refused(epsilon, delta):
    with pytest.raises(InvalidInput):
        sk.PrivacyTarget(epsilon, delta)


def test_prediction_matches_the_measured_error():
    n, d = 60, 4096
    plan = sk.plan(
        TARGET, dimension=d, bits=12, cohort=sk.Cohort(n, n, sampling="none"), alignment=0.0, scale=20.0
    )
    generator = np.random.default_rng(1)
    errors = []
    for turn in range(20):
        x = generator.standard_normal((n, d))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        total = plan.mechanism.decode(plan.mechanism.encode_sum(x, round=turn), round=turn)
        errors.append(np.mean((total - x.sum(axis=0)) ** 2))
    # 81,920 squared errors: relative deviation of their mean is about 0.5 %
    assert np.mean(errors) == pytest.approx(plan.predicted.mse, rel=0.03)


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
    line = next(line for line in str(report).splitlines() if "-GDP" in line)
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
    assert f"no μ-GDP stated: {report.mu_missing}" in str(report)


def test_what_is_printed_of_a_certificate_is_rounded_up():
    report = replace(paper_plan(scale=16.0, bound="gdp").report, mu=0.12341, slack=1.2341e-9)
    assert "0.1235-GDP up to total variation 1.235e-09" in str(report)
    assert "total variation 1e-300" in str(replace(report, slack=1e-310))


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
        ("smm", sk.Cohort(240, 60_000, colluding=1), "colluders"),
        ("smm", sk.Cohort(240, 60_000, dropout_tolerance=0.1), "drop out"),
        ("smm", sk.Cohort(240, 60_000, dropout_tolerance=0.1, sampling="fixed"), "drop out"),
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
    assert ("A MODEL, NOT PROVED" in str(report)) == bool(why)
    assert ("not even the aggregator's" in str(report)) == (mechanism == "dgm" and bool(why))
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
    assert "right to 2^-50" in str(sk.plan(target, cohort=sampled, bound="gdp", **setting).report)
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
