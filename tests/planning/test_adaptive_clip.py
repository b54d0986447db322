"""A plan with an adaptive clip: for joint vectors, whose noise costs next to nothing more."""

import json
from fractions import Fraction

import numpy as np
import pytest

import skelmix as sk
from skelmix.encoding.indicator import AdaptiveClip
from skelmix.errors import InvalidInput

TARGET = sk.PrivacyTarget(3.0, 1e-5)
COHORT = sk.Cohort(expected=50, population=5_000)
SILOS = sk.Silos(count=5, records=5_000, batch=50)


def plan_for(cohort=COHORT, **options):
    given = {"dimension": 300, "bits": 12, "rounds": 20, "bound": "gdp", "scale": 40.0, **options}
    return sk.plan(TARGET, cohort=cohort, **given)


def noise_per_clip_norm(plan):
    return plan.predicted.noise**0.5 / (1.0 if plan.adaptive_clip else plan.mechanism.clip_norm)


@pytest.mark.parametrize("mechanism", ["smm", "dgm", "gaussian"])
def test_the_indicator_costs_less_than_half_a_percent_of_noise(mechanism):
    bound = "tight" if mechanism == "gaussian" else "gdp"
    fixed = plan_for(mechanism=mechanism, bound=bound)
    adaptive = plan_for(mechanism=mechanism, bound=bound, clip="adaptive")
    assert 1.0 < noise_per_clip_norm(adaptive) / noise_per_clip_norm(fixed) < 1.005


def test_of_few_coordinates_under_the_flat_certificate_it_costs_as_little():
    options = {
        "dimension": 2_000,
        "bits": 10,
        "keep": 0.25,
        "bound": "flat",
        "alignment": 0.01,
        "scale": 20.0,
    }
    fixed, adaptive = plan_for(**options), plan_for(**options, clip="adaptive")
    assert adaptive.report.bound == "flat"
    assert adaptive.keep == pytest.approx(0.25, abs=1e-3)
    noise = noise_per_clip_norm(adaptive) / noise_per_clip_norm(fixed)
    slack = (1 + adaptive.mechanism.clip_slack / adaptive.mechanism.keep**0.5) / (
        1 + fixed.mechanism.clip_slack / fixed.mechanism.keep**0.5
    )
    assert noise / slack < 1.005


def test_the_plan_is_for_one_coordinate_more_and_counts_weights_only():
    plan = plan_for(clip="adaptive", clip_norm=0.3, bits=None, rate=4.0, alignment=0.01, scale=None)
    assert (plan.dimension, plan.mechanism.dimension) == (300, 301)
    assert plan.mechanism.clip_norm == plan.adaptive_clip.norm
    assert plan.first_clip_norm == plan.adaptive_clip.start == 0.3
    assert plan.rate == plan.mechanism.coordinates * plan.mechanism.bits / 300 <= 4.0


def test_the_plan_does_not_depend_on_the_start():
    near, far = (plan_for(clip=AdaptiveClip(start=start)) for start in (0.01, 100.0))
    assert near.mechanism.total_noise == far.mechanism.total_noise
    assert near.report == far.report
    assert near.predicted == far.predicted
    assert near.digest() != far.digest()


@pytest.mark.parametrize("cohort", [COHORT, SILOS])
def test_a_plan_survives_json_with_its_adaptive_clip(cohort):
    clip = AdaptiveClip(start=0.2, quantile=0.7, rate=0.3, weight=0.15)
    plan = plan_for(cohort, clip=clip)
    again = sk.Plan.from_json(plan.to_json())
    assert again == plan
    assert again.adaptive_clip == clip
    assert again.digest() == plan.digest()


def test_a_fixed_plan_has_no_word_of_it_in_its_json():
    assert "adaptive_clip" not in json.loads(plan_for().to_json())


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["adaptive_clip"].update(weight=0.2),
        lambda data: data["mechanism"].update(clip_norm=1.0),
        lambda data: data.update(adaptive_clip=None),
        lambda data: data["adaptive_clip"].update(start="1"),
        lambda data: data["adaptive_clip"].update(more=1),
    ],
)
def test_a_plan_whose_clip_and_mechanism_disagree_is_refused(change):
    data = json.loads(plan_for(clip="adaptive").to_json())
    change(data)
    with pytest.raises(InvalidInput):
        sk.Plan.from_json(json.dumps(data))


@pytest.mark.parametrize(
    "options",
    [
        {"clip": "median"},
        {"clip": AdaptiveClip(start=0.5), "clip_norm": 2.0},
        {"clip": "adaptive", "clip_norm": 0},
    ],
)
def test_a_clip_without_sense_is_refused(options):
    with pytest.raises(InvalidInput, match=r"clip|start"):
        plan_for(**options)


def test_a_single_sum_cannot_adapt():
    with pytest.raises(InvalidInput, match="fixed"):
        sk.private_sum(np.zeros((50, 301)), plan_for(clip="adaptive", cohort=sk.Cohort.everyone(50)))


def test_an_accounted_plan_can_be_adaptive_too():
    given = {"noise": 40.0, "delta": 1e-5, "dimension": 300, "bits": 16, "scale": 50.0, "bound": "gdp"}
    fixed, found = (sk.account(**given, cohort=COHORT, clip=clip) for clip in ("fixed", "adaptive"))
    assert found.dimension == 300
    assert fixed.report.epsilon < found.report.epsilon < 1.01 * fixed.report.epsilon


def exact_norm_of_record(plan, vector, clip_norm):
    """The square of one record's part in a silo's sum, on the integer grid, as an exact fraction."""
    mechanism = plan.mechanism
    joint = np.empty((1, plan.mechanism.dimension))
    plan.adaptive_clip.join(vector[None], clip_norm, out=joint)
    silo = mechanism.silo_sum(round=0)
    silo.add(joint)
    unit = Fraction(1, 2**mechanism.fixed_point.fraction_bits)
    return sum((int(value) * unit) ** 2 for value in silo._total())


@pytest.mark.parametrize("options", [{}, {"bound": "flat"}, {"bound": "rdp", "keep": 0.3, "alignment": 0.01}])
def test_one_record_and_its_indicator_keep_the_norm_that_was_accounted_for_exactly(options):
    plan = plan_for(SILOS, clip="adaptive", **options)
    bound = Fraction(plan.mechanism.radius) ** 2
    if plan.mechanism.keep is None:
        stated = Fraction(plan.mechanism.scale) ** 2 * (1 + Fraction(plan.adaptive_clip.weight) ** 2 / 4)
        assert stated <= bound <= stated * (1 + Fraction(1, 2**40))
    rng = np.random.default_rng(3)
    largest = Fraction(0)
    for size in (1e-9, 0.1, 1.0, 3.0, 1e9):
        vector = rng.normal(size=300) * size / 300**0.5
        square = exact_norm_of_record(plan, vector, clip_norm=0.5)
        assert 0 < square <= bound
        largest = max(largest, square)
    assert largest > bound * Fraction(9, 10)  # long vectors use what was paid for
    assert exact_norm_of_record(plan, np.full(300, np.nan), 0.5) == 0
    assert exact_norm_of_record(plan, np.zeros(300), 0.5) == 0
