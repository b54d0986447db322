"""At a rate the planner divides an upload's bits into coordinates and bits for each, and keeps to it."""

import json
import math
from dataclasses import replace

import pytest

import skelmix as sk
from helpers.prose import unwrapped
from skelmix.encoding.rotation import padded
from skelmix.errors import BitsTooFew, InvalidInput
from skelmix.planning import Plan, account
from skelmix.planning.rate import packed_bytes, upload_shapes

TARGET = sk.PrivacyTarget(epsilon=3.0, delta=1e-5)
PAPER = sk.Cohort(expected=240, population=60_000)
EVERYONE = sk.Cohort.everyone(240)


def at(rate=None, *, dimension=4096, cohort=EVERYONE, alignment=0.01, bound="rdp", rounds=1, **more):
    return sk.plan(
        TARGET, dimension=dimension, cohort=cohort, rate=rate, alignment=alignment, bound=bound,
        rounds=rounds, **more,
    )  # fmt: skip


@pytest.mark.parametrize("rate", [0.01, 0.0625, 0.3, 1.0, 2.7, 8.0, 32.0])
@pytest.mark.parametrize("dimension", [4096, 5003])
def test_an_upload_is_within_the_rate_and_uses_it(rate, dimension):
    plan = at(rate, dimension=dimension)
    mechanism = plan.mechanism
    assert plan.upload_bytes == math.ceil(mechanism.coordinates * mechanism.bits / 8)
    assert plan.upload_bytes <= math.ceil(rate * dimension / 8)
    assert plan.rate <= rate
    if mechanism.keep is not None:  # one coordinate more would not fit
        assert (mechanism.coordinates + 1) * mechanism.bits > rate * dimension
    assert plan.meets_target()


@pytest.mark.parametrize("rate", [0.05, 0.5, 3.0])
def test_no_other_division_of_the_rate_has_a_smaller_predicted_error(rate):
    best = at(rate)
    others = [at(rate, bits=bits) for bits in (3, 5, 6, 7, 9, 10, 12)]
    least = min(plan.predicted.effective_mse for plan in others)
    assert best.predicted.effective_mse <= 1.02 * least  # shapes are compared before the noise is proved
    assert max(plan.predicted.effective_mse for plan in others) > 1.02 * best.predicted.effective_mse


def test_where_the_signal_rules_every_coordinate_is_sent():
    crowd = sk.Cohort.everyone(20_000)
    aligned = at(12.0, cohort=crowd, alignment=1.0)
    assert aligned.mechanism.keep is None
    assert aligned.keep == 1.0
    spread = at(12.0, cohort=sk.Cohort.everyone(10), alignment=0.0)
    assert spread.mechanism.bits >= 12


def test_where_the_noise_rules_few_coordinates_with_more_bits_are_sent():
    plan = at(1.0, dimension=65_536, cohort=PAPER, alignment=0.005, rounds=1000)
    assert 7 <= plan.mechanism.bits <= 10
    assert plan.keep < 0.2
    dense = at(dimension=65_536, cohort=PAPER, alignment=0.005, rounds=1000, bits=2)
    assert plan.predicted.effective_mse < 0.5 * dense.predicted.effective_mse


def test_longer_sums_call_for_more_coordinates():
    kept = [at(1.0, alignment=alignment).keep for alignment in (0.0, 0.05, 1.0)]
    assert kept[0] <= kept[1] <= kept[2]
    assert kept[0] < kept[2]


def test_bits_and_keep_by_hand():
    assert at().mechanism.bits == 8
    assert at().keep == 1.0
    assert at(bits=6, keep=1.0).mechanism.keep is None
    half = at(bits=6, keep=0.5)
    assert (half.mechanism.bits, half.mechanism.coordinates, half.keep) == (6, 2048, 0.5)
    assert at(2.0, bits=4).mechanism.coordinates == 2048
    assert at(2.0, keep=0.25).mechanism.bits == 8
    assert at(keep=1e-9).mechanism.coordinates == 1


@pytest.mark.parametrize("alignment", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("keep", [0.02, 0.3, 0.95])
def test_no_other_slack_of_the_clip_has_a_smaller_predicted_error(alignment, keep):
    plan = at(bits=14, keep=keep, alignment=alignment)
    mechanism, planned = plan.mechanism, plan.mechanism.clip_slack

    def error(slack):
        other = replace(mechanism, clip_slack=slack)
        noise = mechanism.total_noise * (other.radius / mechanism.radius) ** 2
        other = replace(other, total_noise=noise)
        return other.predicted_error(plan.cohort.uploads, alignment).effective_mse

    assert error(planned) <= 1.001 * min(error(slack) for slack in (0.0, 0.3, 1.0, 3.0))
    assert error(3.0) > error(planned)


def test_a_given_scale_is_kept():
    plan = at(0.5, scale=40.0)
    assert plan.mechanism.scale == 40.0
    assert plan.mechanism.keep is not None


@pytest.mark.parametrize("mechanism", ["skellam", "ddg", "cpsgd"])
def test_mechanisms_that_need_every_coordinate_take_whole_bits(mechanism):
    plan = at(16.9, bound="tight", mechanism=mechanism)
    assert (plan.mechanism.bits, plan.keep) == (16, 1.0)
    with pytest.raises(InvalidInput, match="smm or dgm"):
        at(0.5, bound="tight", mechanism=mechanism)
    with pytest.raises(InvalidInput, match=r"keep = 0\.5"):
        at(keep=0.5, bound="tight", mechanism=mechanism)


def test_the_papers_bound_needs_every_coordinate():
    assert at(16.0, bound="paper").keep == 1.0
    with pytest.raises(InvalidInput, match="smm or dgm"):
        at(0.5, bound="paper")


def test_a_trusted_aggregator_gets_whole_vectors_at_any_rate():
    plan = at(0.1, mechanism="gaussian", bound="tight")
    assert (plan.rate, plan.upload_bytes, plan.keep) == (32.0, 4 * 4096, 1.0)


def test_dgm_plans_for_a_rate():
    plan = at(1.0, mechanism="dgm", bound="rdp")
    assert plan.mechanism.name == "dgm"
    assert plan.upload_bytes <= 512


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"rate": 0.001}, "rate = 0.001"),
        ({"rate": 33.0}, "rate = 33.0"),
        ({"rate": 0.0}, "rate = 0.0"),
        ({"rate": math.nan}, "rate"),
        ({"rate": "1"}, "rate"),
        ({"rate": 1.0, "bits": 8, "keep": 0.5}, "leave one of the three out"),
        ({"rate": 0.5, "keep": 1.0}, "raise the rate"),
        ({"rate": 0.01, "dimension": 50}, "raise the rate"),
        ({"keep": 0.0}, "keep = 0.0"),
        ({"keep": 1.5}, "keep = 1.5"),
        ({"keep": math.nan}, "keep"),
        ({"bits": 0}, "bits = 0"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(asked, word):
    with pytest.raises(InvalidInput, match=word):
        at(**asked)


def test_a_rate_too_low_for_the_noise_names_the_rate():
    with pytest.raises(BitsTooFew, match=r"raise the rate of 0\.02"):
        at(0.02, dimension=60, scale=1e4)


def test_the_subset_survives_json_and_the_numbers_are_in_the_summary():
    plan = at(0.5)
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.digest() == plan.digest()
    numbers = plan.summary()
    assert json.loads(json.dumps(numbers))["coordinates"] == plan.mechanism.coordinates
    assert numbers["rate"] == plan.mechanism.coordinates * plan.mechanism.bits / 4096
    assert numbers["keep"] == plan.mechanism.coordinates / padded(4096)
    assert (
        numbers["upload_bytes"]
        == plan.upload_bytes
        == packed_bytes(plan.mechanism.coordinates, plan.mechanism.bits)
    )
    card = unwrapped(plan)
    assert f"{plan.upload_bytes:,} bytes" in card
    assert "bits per weight" in card
    assert "coordinates not sent" in card


def test_account_is_the_reverse_of_plan_with_a_subset():
    plan = at(0.5, cohort=sk.Cohort.everyone(20), alignment=0.5)
    mechanism = plan.mechanism
    found = account(
        noise=mechanism.noise, delta=1e-5, dimension=4096, cohort=plan.cohort, bits=mechanism.bits,
        keep=plan.keep, clip_slack=mechanism.clip_slack, scale=mechanism.scale, bound="rdp",
    )  # fmt: skip
    assert found.report.epsilon == pytest.approx(plan.report.epsilon, rel=1e-6)
    by_rate = account(
        noise=mechanism.noise, delta=1e-5, dimension=4096, cohort=plan.cohort, bits=mechanism.bits, rate=0.5,
        clip_slack=mechanism.clip_slack, scale=mechanism.scale, bound="rdp",
    )  # fmt: skip
    assert by_rate.mechanism.coordinates == mechanism.coordinates
    dense = account(
        noise=mechanism.noise, delta=1e-5, dimension=4096, cohort=plan.cohort, bits=mechanism.bits,
        scale=mechanism.scale, bound="rdp",
    )  # fmt: skip
    assert dense.report.epsilon > 2 * plan.report.epsilon  # the same noise hides a longer vector less
    for wrong in ({"bits": 0}, {"keep": 0.0}, {"rate": 0.0}):
        with pytest.raises(InvalidInput, match=f"{next(iter(wrong))} = 0"):
            account(noise=mechanism.noise, delta=1e-5, dimension=4096, cohort=plan.cohort, **wrong)


def test_every_shape_uses_the_budget():
    shapes = upload_shapes(rate=3.5, bits=None, keep=None, dimension=4096, subsets=True)
    assert (shapes[0].bits, shapes[0].keep) == (3, None)
    assert [shape.bits for shape in shapes] == list(range(3, 33))
    assert all(shape.size(4096) <= math.ceil(3.5 * 4096 / 8) for shape in shapes)
