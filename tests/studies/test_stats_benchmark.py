"""The benchmark of statistics asks both sides the same, and the private one is not slower than it may be."""

import time

import numpy as np
import pytest

from skelmix.planning import PrivacyTarget
from skelmix.statistics import Estimate, Parties, parse_question, plan_statistics
from skelmix.studies.benchmarks.stats import ASK, PARTIES, make_files, private_answers, true_answers


@pytest.fixture(scope="module")
def planned():
    return plan_statistics(parse_question(ASK), PrivacyTarget(1.0, 1e-6), Parties(PARTIES, 1_000_000))


def test_the_private_answers_are_near_those_of_numpy(tmp_path, planned):
    files = make_files(tmp_path, 50_000)
    answers = private_answers(files, planned).answers
    truths = true_answers(files, planned)
    assert len(answers) == len(truths) == 20
    for answer, truth in zip(answers, truths, strict=True):
        kind, numbers = str(answer.query).partition("(")[0], np.atleast_1d(truth).tolist()
        rows = [row for row in answer.rows() if "other" not in row[0] and "missing" not in row[0]]
        if kind == "top":
            assert {label for label, _ in rows} <= {f"D{place:02d}" for place in range(20)}
            continue
        assert len(rows) == len(numbers), answer.query
        for (label, estimate), number in zip(rows, numbers, strict=True):
            assert near(estimate, number, kind), f"{answer.query} {label}: {estimate}, truly {number}"


def near(estimate: Estimate, number: float, kind: str) -> bool:
    """Within six standard errors; a quantile within its interval, and as much again on either side."""
    reach = estimate.high - estimate.low if kind == "quantiles" else 6 * estimate.standard_error
    return abs(estimate.value - number) <= reach


def test_a_million_records_take_at_most_twice_as_long_as_with_numpy(tmp_path, planned):
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    private_answers(make_files(small, PARTIES * 100), planned)  # compiles
    files = make_files(large, 1_000_000)
    seconds = []
    for job in (private_answers, true_answers):
        best = []
        for _ in range(3):
            start = time.process_time()
            job(files, planned)
            best.append(time.process_time() - start)
        seconds.append(min(best))
    assert seconds[0] <= 2 * seconds[1], f"{seconds[0]:.2f} s, NumPy {seconds[1]:.2f} s"
