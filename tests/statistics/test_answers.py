"""Answers: intervals that cover as stated, counts that agree, errors known beforehand."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest

from helpers.interval_coverage import RADIUS, population
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.statistics import (
    Answer,
    Answers,
    Estimate,
    Estimator,
    Layout,
    Precision,
    expected_errors,
    least_epsilon,
    parse_question,
)
from skelmix.statistics.accumulate import Accumulator
from skelmix.statistics.answer_page import _figure
from skelmix.statistics.blocks import Missing, Total
from skelmix.statistics.consistency import Consistency
from skelmix.statistics.intervals import CumulativeNoise, OrderedCounts, ratio_set

TABLES = (
    "count; crosstab(a: A|B, b: X|Y|Z); histogram(a); histogram(b); crosstab(b, c: 0..4 by 1); "
    "crosstab(c, a); mean(c, 0..4); crosstab(b, a)"
)


def tables():
    layout = Layout(parse_question(TABLES))
    return layout, Estimator(layout, Precision(2.0), radius=RADIUS)


def noisy(layout, seed=0, scale=2.0):
    return np.random.default_rng(seed).normal(0, scale, layout.dimension)


def test_tables_add_up_to_their_margins_and_to_the_count():
    layout, estimator = tables()
    answers = {str(answer.query): answer for answer in estimator.answers(noisy(layout) + 5)}
    value = {name: answer.to_json()["value"] for name, answer in answers.items()}
    count = value["count"]
    rows, columns = value["histogram(a: A|B)"], value["histogram(b: X|Y|Z)"]
    table = value["crosstab(a: A|B, b: X|Y|Z)"]
    turned = value["crosstab(b: X|Y|Z, a: A|B)"]
    close = lambda x: pytest.approx(x, abs=1e-5)  # noqa: E731
    assert sum(rows.values()) == close(count)
    assert sum(columns.values()) == close(count)
    for a, row in table.items():
        assert sum(row.values()) == close(rows[a])
        assert all(turned[b][a] == close(cell) for b, cell in row.items())
    for b, cells in value["crosstab(b: X|Y|Z, c: 0..4 by 1)"].items():
        assert sum(cells.values()) == close(columns[b])


def test_nothing_is_negative_and_every_value_lies_in_its_interval():
    layout, estimator = tables()
    for seed in range(20):
        for answer in estimator.answers(noisy(layout, seed)):
            for _, estimate in answer.rows():
                assert estimate.low <= estimate.value <= estimate.high
                assert estimate.low >= 0


def test_the_least_squares_estimate_is_the_textbook_one():
    """Beside the same estimate by a dense generalised least squares over free cells."""
    layout = Layout(parse_question("crosstab(a: A|B, b: X|Y); histogram(a) importance 16; count"))
    deviations = 3.0 * layout.entry_units(RADIUS)
    fit = Consistency(layout, deviations)
    cells = np.eye(9)
    design = np.vstack([cells, cells.reshape(3, 3, 9).sum(axis=1), np.ones((1, 9))])
    assert layout.dimension == len(design)
    weights = np.diag(deviations**-2)
    covariance = design @ np.linalg.inv(design.T @ weights @ design) @ design.T
    values = np.random.default_rng(0).normal(10, 30, len(design))
    assert fit.reconciled(values) == pytest.approx(covariance @ weights @ values)
    assert fit.deviations == pytest.approx(np.sqrt(np.diag(covariance)))
    assert (fit.deviations < deviations).all()


def test_non_negative_counts_are_the_nearest_ones():
    """No feasible point found by a general optimiser is nearer."""
    from scipy.optimize import nnls

    layout = Layout(parse_question("crosstab(a: A|B, b: X|Y); histogram(a); count"))
    deviations = 3.0 * layout.entry_units(RADIUS)
    fit = Consistency(layout, deviations)
    cells = np.eye(9)
    design = np.vstack([cells, cells.reshape(3, 3, 9).sum(axis=1), np.ones((1, 9))])
    for seed in range(10):
        values = np.random.default_rng(seed).normal(0, 20, len(design))
        units = deviations * fit.mobility(fit.reconciled(values))
        best = design @ nnls(design / units[:, None], fit.reconciled(values) / units)[0]
        assert fit.non_negative(fit.reconciled(values)) == pytest.approx(best, abs=1e-5)


def test_many_empty_cells_do_not_spoil_the_total_or_the_full_cells():
    """Those below zero are raised, and others must fall for it: the noise, not the counts that are there."""
    layout = Layout(parse_question("count; histogram(x: 0..1000 by 1)"))
    estimator = Estimator(layout, Precision(4.0), radius=RADIUS)
    fit = estimator.consistency
    truth = np.zeros(layout.dimension)
    truth[1:901:100], truth[0] = 1_000, 9_000
    generator = np.random.default_rng(3)
    errors = []
    for _ in range(60):
        noisy = truth + generator.normal(0, 1, layout.dimension) * estimator.deviations
        released = fit.non_negative(fit.reconciled(noisy))
        assert released[1:].sum() == pytest.approx(released[0])
        errors.append((released - truth)[truth > 0] / fit.deviations[truth > 0])
    assert np.abs(np.mean(errors, axis=0)).max() < 0.6, "standard errors; each of sixty has 0.13"
    assert np.sqrt(np.mean(np.square(errors))) < 1.1


@pytest.mark.parametrize(
    ("numbers", "interval"),
    [
        ((50.0, 1.0, 100.0, 0.0), (0.5 - 0.0196, 0.5 + 0.0196)),
        ((0.0, 1.0, 0.1, 1.0), (-1.0, 1.0)),  # the denominator may be anything
        ((500.0, 1.0, 100.0, 1.0), (1.0, 1.0)),  # beyond what is possible
        ((-5.0, 0.5, 0.5, 1.0), (-1.0, 1.0)),
    ],
)
def test_ratios(numbers, interval):
    assert ratio_set(*numbers, z=1.96, limit=1.0) == pytest.approx(interval, abs=1e-9)


def test_a_quantile_without_noise_is_its_bin():
    noise = CumulativeNoise.independent(1e-9, 4)
    counts = OrderedCounts(np.array([10.0, 0.0, 20.0, 10.0]), np.array([0.0, 1.0, 2.0, 3.0, 4.0]), noise)
    median = counts.quantile(0.5, 0.05)
    assert (median.low, median.value, median.high) == pytest.approx((2.0, 2.5, 3.0))
    assert counts.quantile(0.2, 0.05).value == pytest.approx(0.8)


def test_probabilities_that_look_alike_are_answered_apart():
    question = parse_question("quantiles(x, 0..10 by 1; 0.5 0.50000001)")
    layout = Layout(question)
    (answer,) = Estimator(layout, Precision(2.0)).answers(np.zeros(layout.dimension))
    assert list(answer.estimates) == ["0.5", "0.50000001"]


def test_answers_about_nobody_are_possible():
    layout = Layout(
        parse_question("count; mean(x, 0..10); variance(x); quantiles(x, 0..10 by 1; 0.5); sum(y, -1..5)")
    )
    answers = Estimator(layout, Precision(2.0)).answers(np.zeros(layout.dimension))
    for answer in answers:
        for _, estimate in answer.rows():
            assert math.isfinite(estimate.value + estimate.standard_error)
            assert estimate.low <= estimate.value <= estimate.high
    assert (answers[1].estimates.low, answers[1].estimates.high) == (0.0, 10.0)
    assert answers[2].estimates.high == 25.0
    assert (answers[3].estimates["0.5"].low, answers[3].estimates["0.5"].high) == (0.0, 10.0)


@pytest.mark.parametrize("low", [-100, -3, 0, 10, 90])
def test_a_sum_beside_a_count_is_right_and_no_noisier(low):
    """It may be put together from centred values and their number; missing values add nothing."""
    layout = Layout(parse_question(f"count; sum(age, {low}..110); mean(age, -300..300)"))
    ages = np.array([np.nan, 95.0, 100.5, np.nan, 300.0])
    accumulator = Accumulator(layout, RADIUS)
    accumulator.add(pa.record_batch({"age": ages}))
    estimator = Estimator(layout, Precision(1e-6), radius=RADIUS)
    answer = estimator.answers(accumulator.total() / RADIUS)[1].estimates
    assert answer.value == pytest.approx(95 + 100.5 + 110, abs=1e-3)
    assert answer.standard_error <= 110 * layout.sensitivity * 1e-6 * (1 + 1e-6)
    assert (answer.standard_error < 109 * layout.sensitivity * 1e-6) == (-100 <= low < 90)


def test_a_column_of_which_only_sums_are_asked_shows_no_number_of_records_or_values():
    """A party's policy may allow nothing else."""
    sums = [f"sum(c{k}, 0..9)" for k in range(6)]
    assert {type(block) for block in Layout(parse_question("; ".join(sums))).blocks} == {Total}
    beside = Layout(parse_question("; ".join(["count", "mean(c0, 0..9)", *sums])))
    kinds = {block.column: type(block) for block in beside.blocks if isinstance(block, Missing | Total)}
    assert kinds == {"c0": Missing} | {f"c{k}": Total for k in range(1, 6)}


def test_the_error_of_a_mean_of_few_columns_is_that_of_their_own_counts():
    for columns, shared in ((1, False), (3, False), (4, True)):
        layout = Layout(parse_question("; ".join(f"mean(c{k}, 0..1)" for k in range(columns))))
        estimator = Estimator(layout, Precision(1.0), radius=RADIUS)
        (error, *_) = expected_errors(estimator, layout, 1)
        longest = columns + 1 if shared else 2 * columns
        counts = 2 if shared else 1  # all records and those without a value, or those with one
        assert error.standard_error == pytest.approx(math.sqrt(longest * (1 + counts)) / 2, rel=1e-6)


def test_the_noise_of_ranks_is_that_of_the_reconciled_counts():
    """Beside many simulated ones; a known total leaves a bridge that is tied at both ends."""
    layout = Layout(parse_question("count importance 4096; mean(x, 0..6); quantiles(x, 0..6 by 1; 0.5)"))
    estimator = Estimator(layout, Precision(3.0), radius=RADIUS)
    place = layout.places(layout.question.queries[2])[0]
    deviations = estimator.deviations
    generator = np.random.default_rng(5)
    values = generator.normal(0, 1, (6_000, layout.dimension)) * deviations
    fitted = np.array([estimator.consistency.reconciled(row) for row in values])[:, place][:, :6]
    ranks = np.cumsum(np.pad(fitted, ((0, 0), (1, 0))), axis=1)
    noise, reconciled = estimator.noise_of_ranks(layout.question.queries[2])
    assert reconciled
    for p in (0.1, 0.5, 0.9):
        measured = (ranks - p * ranks[:, -1:]).std(axis=0)
        assert noise.of_differences(p) == pytest.approx(measured, rel=0.05, abs=1e-9)
    ends = noise.of_differences(0.5)[[0, 3, 6]] / deviations[place][0]
    assert ends[1] == pytest.approx(math.sqrt(6) / 2, rel=0.01)
    assert ends[0] == ends[2] < 0.55


def test_the_error_is_known_before_any_data_is_read():
    text = "count; sum(age, 0..110); mean(age); variance(age); histogram(sex: F|M); "
    layout = Layout(parse_question(text + "quantiles(age, 0..110 by 10; 0.5)"))
    estimator = Estimator(layout, Precision(3.0), radius=RADIUS)
    accumulator = Accumulator(layout, RADIUS)
    accumulator.add(population())
    answers = estimator.answers(accumulator.total() / RADIUS)
    expected = expected_errors(estimator, layout, 4_000)
    for answer, error in zip(answers[:2], expected[:2], strict=True):
        assert error.standard_error == pytest.approx(answer.estimates.standard_error)
    for answer, error in zip(answers[2:4], expected[2:4], strict=True):
        assert answer.estimates.standard_error <= error.standard_error <= 8 * answer.estimates.standard_error
    assert expected[4].standard_error == pytest.approx(answers[4].estimates["F"].standard_error)
    assert [error.relative for error in expected[:2]] == pytest.approx(
        [expected[0].standard_error / 4_000, expected[1].standard_error / 440_000]
    )


def test_the_least_epsilon_reaches_the_error_and_a_smaller_one_does_not():
    layout = Layout(parse_question("count; mean(age, 0..110); histogram(sex: F|M)"))

    def worst(epsilon):
        estimator = Estimator(layout, Precision(4 / epsilon))
        return max(error.relative for error in expected_errors(estimator, layout, 4_000))

    epsilon = least_epsilon(layout, 0.002, 4_000, lambda epsilon: 4 / epsilon)
    assert worst(epsilon) <= 0.002 < worst(0.999 * epsilon)
    with pytest.raises(PrivacyUnattainable, match="relative_error = 1e-09"):
        least_epsilon(layout, 1e-9, 4_000, lambda epsilon: 4 / epsilon)


def test_json_and_table_show_the_same_numbers():
    layout, estimator = tables()
    answers = Answers(1.0, 1e-6, "record", estimator.answers(noisy(layout) + 50))
    shown = json.loads(json.dumps(answers.to_json()))
    assert shown["epsilon"] == 1.0
    assert shown["unit"] == "record"
    first, second = shown["answers"][:2]
    assert first["query"] == "count"
    assert first["low"] <= first["value"] <= first["high"]
    assert set(second["value"]) == set(second["low"]) == {"A", "B", "other"}
    assert set(second["standard_error"]["A"]) == {"X", "Y", "Z", "other"}
    lines = answers.table().splitlines()
    assert len(lines) == 1 + sum(len(list(answer.rows())) for answer in answers.answers)
    assert f" {first['value']:.1f} " in lines[1]


def test_the_axes_of_figures_say_what_they_show():
    text = (
        "count; mean(age, 0..110); histogram('a: b': A|B); quantiles(age, 0..110 by 10; 0.5); "
        "crosstab('a: b', sex: F|M); top('a: b'; 1)"
    )
    layout = Layout(parse_question(text))
    answers = Estimator(layout, Precision(2.0)).answers(np.full(layout.dimension, 9_990.0))
    figures = [_figure(answer, 0.95) for answer in answers]
    records = "records (estimate)"
    assert [(figure.x, figure.y) for figure in figures] == [
        ("records", ""), ("age", ""), ("a: b", records), ("quantile", "age"), ("a: b", records),
        ("a: b", records),
    ]  # fmt: skip
    assert [trace["name"] for trace in figures[4].traces] == ["sex: F", "sex: M", "sex: other"]
    assert figures[0].look["xaxis"] == figures[2].look["yaxis"] == {"tickformat": ","}


def test_a_level_is_shown_without_the_last_bits_of_a_product():
    shown = [Answers(1.0, 1e-6, "record", (), level).columns[-1] for level in (0.95, 0.999, 0.9999999, 0.07)]
    assert shown == ["95 % interval", "99.9 % interval", "99.99999 % interval", "7 % interval"]


def test_an_error_has_as_many_decimals_as_its_value():
    numbers = [(8.94, 7.0), (55.82, 0.1), (279_994.2, 1_041.3), (0.01, 9.96)]
    answers = tuple(
        Answer(parse_question("count").queries[0], Estimate(value, error, value - error, value + error))
        for value, error in numbers
    )
    rows = [row[2:] for row in Answers(1.0, 1e-6, "record", answers).table_rows()]
    assert rows == [
        ("8.9", "7.0", "1.9 .. 15.9"),
        ("55.82", "0.10", "55.72 .. 55.92"),
        ("279,994", "1,041", "278,953 .. 281,036"),
        ("0.0", "10.0", "-10.0 .. 10.0"),
    ]


def test_what_cannot_be_answered_is_refused():
    layout = Layout(parse_question("count"))
    with pytest.raises(InvalidInput, match="shape"):
        Estimator(layout, Precision(1.0)).answers(np.zeros(3))
    with pytest.raises(InvalidInput, match="failure"):
        Precision(1.0, failure=0.5)
    with pytest.raises(InvalidInput, match="standard_deviation"):
        Precision(0.0)
    with pytest.raises(InvalidInput, match="radius"):
        layout.amplitudes(1 << 60)
