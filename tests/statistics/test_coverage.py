"""Intervals cover the truth as often as they say."""

import numpy as np
import pytest
from scipy import stats

from helpers.hypothesis_tests import SHARE, follows
from helpers.interval_coverage import (
    EVERY_KIND,
    KINDS,
    RADIUS,
    coverage,
    mechanism_coverage,
    population,
    truths,
)
from skelmix.statistics import (
    Estimate,
    Estimator,
    Layout,
    Precision,
    parse_question,
)
from skelmix.statistics.accumulate import Accumulator

RELEASES = 1_500
EXACT = [
    "count", "sum", "mean", "mean of few records", "histogram", "crosstab", "sum beside a mean and count",
    "mean beside a count",
]  # fmt: skip


def covers_as_stated(hits, level):
    return follows(~np.array(hits), lambda cut: level, [0])


def within(low, high, hits):
    """Whether the hits contradict no probability between low and high."""
    binom = stats.binom
    return binom(len(hits), low).cdf(sum(hits)) > SHARE and binom(len(hits), high).sf(sum(hits) - 1) > SHARE


def test_ten_thousand_real_releases_of_every_kind_cover_95_to_96_percent():
    """Rounded, noised, wrapped and decoded by the mechanism itself: the first number of each answer."""
    released = mechanism_coverage(EVERY_KIND, 10_000, records=40_000)
    kinds = {"Count", "Sum", "Mean", "Variance", "Histogram", "CrossTable", "Quantiles", "Top"}
    assert set(released[0]) == kinds
    wrong = mechanism_coverage(EVERY_KIND, 1_000, records=40_000, shares=1)
    for kind in kinds:
        assert within(0.95, 0.96, [release[kind][0] for release in released]), kind
        assert not within(0.95, 0.96, [release[kind][0] for release in wrong]), kind


@pytest.mark.parametrize("kind", EXACT)
def test_intervals_cover_95_percent(kind):
    """The first number of each release: releases are independent, so the hits are exactly binomial."""
    hits = [release[0] for release in coverage(kind, RELEASES)]
    assert covers_as_stated(hits, 0.95)


@pytest.mark.parametrize("kind", EXACT)
def test_coverage_notices_noise_that_is_larger_than_stated(kind):
    hits = [release[0] for release in coverage(kind, RELEASES, wrong_noise=1.3)]
    assert not covers_as_stated(hits, 0.95)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(EXACT)))
def test_bounds_on_coverage_where_it_is_not_exact(kind):
    """At least 95 %, and not above 96 % where noise is large beside the bins."""
    hits = [release[0] for release in coverage(kind, RELEASES)]
    assert within(0.95, 0.96, hits)
    assert not within(0.95, 0.96, [release[0] for release in coverage(kind, RELEASES // 2, wrong_noise=1.3)])


def test_a_claim_about_all_answers_holds_for_all_of_them():
    text = "count; mean(age, 0..110); histogram(diagnosis: A|B|C); crosstab(diagnosis, sex: F|M)"
    layout, batch, hits = Layout(parse_question(text)), population(), []
    accumulator = Accumulator(layout, RADIUS)
    accumulator.add(batch)
    total, truth = accumulator.total() / RADIUS, truths(batch, layout)
    estimator = Estimator(layout, Precision(3.0), radius=RADIUS, joint=True)
    generator = np.random.default_rng(3)
    for _ in range(400):
        answers = estimator.answers(total + generator.normal(0, 3.0, layout.dimension))
        assert all(answer.joint for answer in answers)
        hits.append(
            all(_holds(answer.estimates, value) for answer, value in zip(answers, truth, strict=True))
        )
    assert stats.binom(400, 0.95).cdf(sum(hits)) > SHARE


def _holds(estimates, truth):
    if isinstance(estimates, Estimate):
        return estimates.low <= truth <= estimates.high
    return all(_holds(inner, truth[label]) for label, inner in estimates.items())
