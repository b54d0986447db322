"""A plan takes the least noise and the best scale for its target."""

import math
from dataclasses import replace

import numpy as np
import pytest

import skelmix as sk
from helpers.paper_plans import PAPER, TARGET, paper_plan
from helpers.prose import unwrapped
from skelmix.accounting.gaussian import pld
from skelmix.accounting.gaussian.flat import flat_certificate
from skelmix.accounting.rdp.curve import DEFAULT_ORDERS
from skelmix.errors import PrivacyUnattainable
from skelmix.mechanisms.bounds.renyi import rdp_epsilon
from skelmix.planning import Plan, account, privacy_report

MECHANISMS = ("smm", "dgm", "skellam", "ddg", "cpsgd", "gaussian")


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
    plan = paper_plan(cohort=cohort, scale=64.0, mechanism="dgm")
    assert cohort.min_survivors(240) == 216
    assert plan.mechanism.shares == 210
    assert plan.mechanism.noise == pytest.approx(math.sqrt(plan.mechanism.total_noise / 210))
    assert plan.report.min_survivors == 216
    assert plan.predicted.noise == pytest.approx(plan.mechanism.total_noise * 240 / 210 / 64**2, rel=1e-6)


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
    assert f"{ratio:.4g} times the central Gaussian" in unwrapped(wrapping)
    assert wrapping.warnings


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
