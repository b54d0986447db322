"""A private sum over silos: records clipped and added exactly, one message per silo."""

import numpy as np
import pytest

import skelmix as sk
from skelmix.errors import InvalidInput, RoundFailed

SIZES = (40, 3, 90, 1)


def plan_for(count=4, records=130, batch=None, bound="gdp", **more):
    return sk.plan(
        sk.PrivacyTarget(50.0, 1e-5),
        dimension=16,
        bits=20,
        bound=bound,
        cohort=sk.Silos(count, records, records if batch is None else batch, **more),
    )


def blocks(scale=1 / 8):
    rng = np.random.default_rng(1)
    return [rng.random((size, 16)) * scale for size in SIZES]


@pytest.mark.parametrize("secure", ["protocol", "simulated"])
@pytest.mark.parametrize(
    "make",
    [
        lambda blocks: blocks,
        iter,
        lambda blocks: [np.array_split(block, min(3, len(block))) for block in blocks],
        lambda blocks: [iter(block) for block in blocks],
    ],
    ids=["arrays", "iterator", "blocks", "rows"],
)
def test_the_estimate_is_the_sum_of_all_records_within_its_noise(secure, make):
    plan, data = plan_for(), blocks()
    true = np.concatenate(data).sum(axis=0)
    result = sk.private_sum(make(data), plan, secure, diagnostics=True)
    assert result.participants == 4
    assert np.abs(result.estimate - true).max() < 7 * plan.predicted.mse**0.5
    assert result.true_mse == pytest.approx(np.mean((result.estimate - true) ** 2), rel=1e-3)
    assert result.report.epsilon_aggregator == result.report.epsilon
    assert result.report.unit == "record"


def test_each_record_is_clipped_and_broken_ones_count_as_zero():
    plan, data = plan_for(), blocks()
    data[0][5] = 1e6  # becomes norm 1
    data[2][7, 3] = np.nan
    data[2][8, 0] = np.inf
    true = np.concatenate([np.delete(data[0], 5, 0), data[1], np.delete(data[2], [7, 8], 0), data[3]])
    estimate = sk.private_sum(data, plan, "simulated").estimate
    assert np.abs(estimate - true.sum(axis=0) - 1 / 4).max() < 7 * plan.predicted.mse**0.5


@pytest.mark.parametrize("secure", ["protocol", "simulated"])
def test_records_none_of_which_is_finite_release_nothing_and_one_that_is_does(secure):
    plan, data = plan_for(), [np.full((size, 16), np.nan) for size in SIZES]
    with pytest.raises(InvalidInput, match="all 134 records are NaN or infinite: nothing was released"):
        sk.private_sum(data, plan, secure)
    data[2][7] = 0.0
    assert sk.private_sum(data, plan, secure).participants == 4


@pytest.mark.parametrize("secure", ["protocol", "simulated"])
def test_silos_that_stay_away_count_as_dropouts(secure):
    plan = plan_for(dropout_tolerance=0.25)
    assert sk.private_sum(blocks()[:3], plan, secure).participants == 3
    with pytest.raises(RoundFailed):
        sk.private_sum(blocks()[:2], plan, secure)


@pytest.mark.parametrize("secure", ["protocol", "simulated"])
@pytest.mark.parametrize(
    ("silos", "settings", "message"),
    [
        (lambda: [*blocks(), np.zeros((1, 16))], {}, "more than 4 silos"),
        (lambda: np.zeros((4, 16)), {}, "array per silo"),
        (lambda: [np.zeros(16)] * 4, {}, "one vector"),
        (lambda: [np.zeros((2, 15))] * 4, {}, "15"),
        (blocks, {"batch": 13}, "batch = records"),
    ],
)
def test_what_does_not_fit_releases_nothing(secure, silos, settings, message):
    with pytest.raises(InvalidInput, match=message):
        sk.private_sum(silos(), plan_for(**settings), secure)


def test_a_silo_without_records_is_a_silo_all_the_same():
    data = [*blocks()[:3], np.zeros((0, 16))]
    assert sk.private_sum(data, plan_for(), "protocol").participants == 4


def test_a_sum_protects_records_not_owners():
    plan = plan_for(unit="owner")
    with pytest.raises(InvalidInput, match="unit='record'"):
        sk.private_sum(blocks(), plan)
