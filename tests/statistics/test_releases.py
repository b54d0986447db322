"""From files and a question to private answers: planned beforehand, exact sums, noise as promised."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from helpers.hypothesis_tests import follows
from skelmix.datasets.hospital_files import hospitals
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.mechanisms import SkellamMixture
from skelmix.planning import PrivacyTarget, Silos, plan
from skelmix.planning.central import central_multiplier
from skelmix.statistics import (
    Estimator,
    Layout,
    Owners,
    Parties,
    PartySum,
    Question,
    expected_errors,
    parse_question,
    party_sum,
    plan_for_error,
    plan_statistics,
    private_statistics,
    release,
)
from skelmix.statistics.releases import answers_from, encode_party
from skelmix.statistics.sizing import wrap_probability

pytestmark = pytest.mark.xdist_group("releases")  # what is dear to set up is set up once

TARGET = PrivacyTarget(1.0, 1e-6)
TEXT = "count; mean(age, 0..110); histogram(diagnosis: A|B|C); crosstab(diagnosis, sex: F|M)"


@pytest.fixture(scope="module")
def planned():
    return plan_statistics(parse_question(TEXT), TARGET, Parties(3, 1_500))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return hospitals(tmp_path_factory.mktemp("hospitals"), count=3, records=500)


def exact_sum(paths, planned):
    """The decoded sum of all parties before rounding and noise."""
    silo = planned.mechanism.silo_sum(round=0)
    for path in paths:
        found = party_sum(path, planned.layout, planned.radius, planned.parties.owners)
        silo.add_units(found.vector, 0)
    return silo.clipped_sum()


def test_without_noise_the_answers_are_the_true_ones(files, planned):
    count, mean, histogram, table = answers_from(exact_sum(files, planned), planned).answers
    rows = [line.split(",") for path in files for line in path.read_text().splitlines()[1:]]
    ages = [float(row[1]) for row in rows if row[1]]
    assert count.estimates.value == pytest.approx(len(rows), abs=1e-4)
    assert mean.estimates.value == pytest.approx(np.mean(ages), abs=1e-4)
    for name in "ABC":
        truth = sum(row[3] == name for row in rows)
        assert histogram.estimates[name].value == pytest.approx(truth, abs=1e-4)
        women = sum(row[3] == name and row[2] == "F" for row in rows)
        assert table.estimates[name]["F"].value == pytest.approx(women, abs=1e-4)


def test_private_answers_are_within_six_standard_errors_of_the_true_ones(files, planned):
    truth = answers_from(exact_sum(files, planned), planned)
    private = release(files, planned)
    assert private.epsilon <= 1.0
    assert private.unit == "record"
    for one, other in zip(truth.answers, private.answers, strict=True):
        for (label, true), (same, noisy) in zip(one.rows(), other.rows(), strict=True):
            assert label == same
            assert abs(true.value - noisy.value) < 6 * noisy.standard_error


def test_files_none_of_which_can_be_used_release_nothing_and_one_that_can_does(tmp_path, files, planned):
    bad = []
    for number in range(3):
        bad.append(tmp_path / f"{number}.csv")
        bad[-1].write_text("this is,no table\n")
    with pytest.raises(InvalidInput, match=r"none of 3 files can be used.*nothing was released.*age"):
        release(bad, planned)
    told = []
    release([files[0], *bad[1:]], planned, notes=lambda path, line: told.append(path))
    assert told == bad[1:], "the others count as empty, and only their owners are told"


@pytest.fixture(scope="module")
def released_counts():
    """Decoded counts of parties without records: noise alone, divided by the stated standard deviation."""
    counting = plan_statistics(parse_question("count"), TARGET, Parties(2, 1_000, colluding=1))
    empty = PartySum(np.zeros(1, np.int64))
    found = []
    for _ in range(3_000):
        messages = [encode_party(empty, counting).astype(np.int64) for _ in range(2)]
        total = (sum(messages) % counting.mechanism.modulus).astype(messages[0].dtype)
        found.append(float(counting.mechanism.decode(total, round=0)[0]) * counting.decoded_unit)
    return np.array(found) / counting.precision.standard_deviation


CUTS = [-2.5, -1.5, -0.7, 0.0, 0.7, 1.5, 2.5]


def as_large_as_stated(noise):
    """Both tails together: of a wrong deviation they tell more than each of them."""
    return follows(np.abs(noise), stats.halfnorm.cdf, [0.7, 1.5, 2.5])


def test_the_noise_has_the_stated_standard_deviation(released_counts):
    assert follows(released_counts, stats.norm.cdf, CUTS)
    assert as_large_as_stated(released_counts)


@pytest.mark.parametrize("wrong", [0.8, 1.25])
def test_another_standard_deviation_is_noticed(released_counts, wrong):
    assert not as_large_as_stated(released_counts * wrong)  # missed with probability below 1e-12


@pytest.mark.parametrize(
    ("text", "epsilon", "parties"),
    [
        ("count", 1.0, Parties(2, 1_000_000)),
        (TEXT, 4.0, Parties(5, 10_000)),
        ("quantiles(stay, 0..60 by 0.1; 0.5); " + TEXT, 0.2, Parties(10, 100_000)),
        ("count", 4.0, Parties(5, 100_000_000)),
        ("count", 20.0, Parties(5, 100_000_000)),
        ("count", 2.0, Parties(200, 1_000_000_000)),
    ],
)
def test_the_error_is_close_to_the_central_gaussians(text, epsilon, parties):
    found = plan_statistics(parse_question(text), PrivacyTarget(epsilon, 1e-6), parties)
    assert found.plan.report.epsilon <= epsilon
    assert 1 <= found.central_ratio <= 1.05
    assert found.precision.failure < 1e-6


@pytest.mark.parametrize("k", [2, 4])
def test_one_release_has_the_noise_of_one_by_one_divided_by_about_the_root_of_k(k):
    """Each alone, with ε/k and δ/k, would need k times the noise, less the few percent that an exactly
    calibrated Gaussian saves at a small ε; together the sensitivity grows by √k only."""
    texts = ["count", "sum(age, 0..110)", "histogram(sex: F|M)", "histogram(diagnosis: A|B|C)"][:k]
    parties = Parties(3, 10_000)
    together = plan_statistics(parse_question("; ".join(texts)), TARGET, parties)
    alone = plan_statistics(parse_question("count"), PrivacyTarget(1.0 / k, 1e-6 / k), parties)
    gain = alone.estimator.deviations[0] / together.estimator.deviations[0]
    schedule = parties.silos.schedule(1)
    split, whole = (
        central_multiplier(PrivacyTarget(1.0 / share, 1e-6 / share), schedule, False) for share in (k, 1)
    )
    assert gain == pytest.approx(split / whole / math.sqrt(k), rel=0.03)
    assert 0.95 * math.sqrt(k) < gain < 1.05 * math.sqrt(k)


ASKED = (
    "count; mean(age, 0..110); histogram(diagnosis: A|B|C); quantiles(stay, 0..60 by 1; 0.25 0.5 0.9); "
    "crosstab(diagnosis, sex: F|M)"
)


def test_every_answer_to_a_mixed_question_has_sqrt_k_times_less_noise_than_one_by_one():
    """Each alone has ε/k and δ/k. Answers that say something about each other gain more than √k."""
    question, parties = parse_question(ASKED), Parties(5, 10_000)
    k = len(question.queries)
    together = plan_statistics(question, TARGET, parties)
    noise = plan_statistics(parse_question("count"), PrivacyTarget(1.0 / k, 1e-6 / k), parties)
    for query, expected in zip(question.queries, together.expected_errors, strict=True):
        layout = Layout(Question((query,)))
        alone = Estimator(layout, noise.precision, radius=noise.radius)
        (error,) = expected_errors(alone, layout, parties.records)
        assert error.standard_error >= math.sqrt(k) * expected.standard_error, query


GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "statistics.md"
QUERIES = {
    "histograms of three categories": "histogram(c{}: A|B|C)",
    "means of different columns": "mean(c{}, 0..110)",
    "sums; histograms of 500 bins": "sum(c{}, 0..110)",
}


@pytest.mark.parametrize("row", QUERIES)
@pytest.mark.parametrize(("column", "k", "delta"), [(2, 4, 1e-6 / 4), (5, 20, 1e-6)])
def test_the_guide_states_what_queries_that_share_nothing_gain(row, column, k, delta):
    (line,) = [line for line in GUIDE.read_text().splitlines() if line.startswith(f"| {row} |")]
    one, *_ = texts = [QUERIES[row].format(number) for number in range(k)]
    parties = Parties(5, 10_000)
    (alone,) = plan_statistics(parse_question(one), PrivacyTarget(1.0 / k, delta), parties).expected_errors
    joint = plan_statistics(parse_question("; ".join(texts)), TARGET, parties).expected_errors[0]
    gain = alone.standard_error / joint.standard_error / math.sqrt(k)
    assert float(line.split("|")[1 + column]) == pytest.approx(gain, abs=0.011)


def test_an_epsilon_beyond_the_certificates_is_refused_with_the_largest_one():
    with pytest.raises(InvalidInput, match=r"^epsilon = 51: statistics are proved up to 50; pass less$"):
        plan_statistics(parse_question("count"), PrivacyTarget(51.0, 1e-6), Parties(2, 1_000))


def test_the_least_epsilon_reaches_the_error_and_a_smaller_one_does_not():
    question, parties = parse_question(TEXT), Parties(3, 10_000)
    found = plan_for_error(question, 0.01, 1e-6, parties)
    assert max(expected.relative for expected in found.expected_errors) <= 0.01
    less = plan_statistics(question, PrivacyTarget(found.plan.report.epsilon * 0.98, 1e-6), parties)
    assert max(expected.relative for expected in less.expected_errors) > 0.01
    with pytest.raises(PrivacyUnattainable, match="allow a larger error"):
        plan_for_error(question, 1e-5, 1e-6, Parties(3, 1_000))


def test_a_party_whose_file_cannot_be_read_counts_as_empty(files, planned, tmp_path):
    broken = tmp_path / "broken.csv"
    broken.write_text("no,such,columns\n1,2,3\n")
    notes = []
    answers = release([*files[:2], broken], planned, notes=lambda path, line: notes.append((path, line)))
    (note,) = notes
    assert note[0] == broken
    assert "'age'" in note[1] or "'diagnosis'" in note[1]
    count = answers.answers[0].estimates
    assert abs(count.value - 1_000) < 6 * count.standard_error


def test_an_owner_with_many_records_is_as_well_hidden(tmp_path):
    """Removing an owner with a hundred records changes the sum by no more than the radius."""
    header, others = "patient,age,sex\n", "".join(f"q{k},40,F\n" for k in range(50))
    one, two, three = (tmp_path / name for name in ("one.csv", "two.csv", "three.csv"))
    one.write_text(header + others + "p,30,M\n" * 100)
    two.write_text(header + others)
    three.write_text(header)
    question = parse_question("count; mean(age, 0..110); histogram(sex: F|M)")
    found = plan_statistics(question, TARGET, Parties(2, 200, Owners("patient", 4)))
    sums = [
        party_sum(path, found.layout, found.radius, found.parties.owners).vector.astype(object)
        for path in (one, two)
    ]
    assert 0.9 * found.radius**2 < sum((sums[0] - sums[1]) ** 2) <= found.radius**2
    assert release([one, three], found).unit == "owner"


def test_sums_in_units_are_refused_where_each_record_must_be_rotated():
    subset = SkellamMixture(
        dimension=64, bits=12, scale=100.0, clip_norm=1.0, total_noise=50.0, keep=32, rotation_seed=bytes(32)
    )
    with pytest.raises(InvalidInput, match="bound='gdp'"):
        subset.silo_sum(round=0).add_units(np.zeros(32, np.int64), 0)


def test_answers_of_a_plan_with_zeros_behind_its_vectors_are_right(tmp_path):
    """Where a hundred million records may come, the rotation spreads their sum over more coordinates."""
    found = plan_statistics(parse_question("count; mean(age, 0..110)"), TARGET, Parties(2, 100_000_000))
    assert found.mechanism.dimension > found.layout.dimension
    answers = release(hospitals(tmp_path, count=2, records=500), found)
    count = answers.answers[0].estimates
    assert abs(count.value - 1_000) < 6 * count.standard_error < 100


def test_a_modulus_that_is_too_small_is_noticed(planned):
    assert wrap_probability(planned.plan) < 1e-6
    narrow = plan(
        TARGET, dimension=16, bits=14, bound="gdp", scale=planned.mechanism.scale,
        cohort=Silos(3, 1_500, 1_500), allow_wrapping=True,
    )  # fmt: skip
    assert wrap_probability(narrow) > 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files[:2], "2 files for a plan of 3"),
        (lambda files: [*files[:2], files[0]], "given twice"),
    ],
)
def test_other_files_than_planned_are_refused(files, planned, change, message):
    with pytest.raises(InvalidInput, match=message):
        release(change(files), planned)


def test_one_call_answers_a_question_in_words(files):
    answers = private_statistics(files, "count", TARGET, records=1_500)
    found = answers.answers[0].estimates
    assert abs(found.value - 1_500) < 6 * found.standard_error


def test_one_party_alone_is_refused():
    with pytest.raises(InvalidInput, match="count = 1"):
        Parties(1, 1_000)
