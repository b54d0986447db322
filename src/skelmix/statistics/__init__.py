"""Counts, means, histograms and quantiles of many parties' records, as one private sum.

A question becomes one vector per record (`Layout`), each party adds up its own records exactly (`party_sum`),
the sums are noised and added under one privacy budget, and the decoded total becomes answers with intervals
(`Estimator`). `private_statistics` does all of that in one call; `plan_statistics` predicts how accurate each
answer will be.

The rules for values: numbers are clamped to the stated bounds; a missing number (empty, NaN, or text that is
no number) is left out of sums, means, variances and quantiles and counts as "missing" in histograms; unknown
and missing categories count as "other". Categories and bounds come from the question, never from the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.statistics.answers import Answer, Answers
    from skelmix.statistics.domains import Axis, Bins, Bounds, Categories
    from skelmix.statistics.estimates import Estimator, Precision
    from skelmix.statistics.expectation import ExpectedError, expected_errors, least_epsilon
    from skelmix.statistics.intervals import Estimate
    from skelmix.statistics.layout import Layout
    from skelmix.statistics.parsing import parse_question
    from skelmix.statistics.party import Owners, PartySum, party_sum
    from skelmix.statistics.queries import (
        Count,
        CrossTable,
        Histogram,
        Mean,
        Quantiles,
        Query,
        Question,
        Sum,
        Top,
        Variance,
    )
    from skelmix.statistics.question_file import read_question
    from skelmix.statistics.releases import private_statistics, release
    from skelmix.statistics.sizing import Parties, StatisticsPlan, plan_for_error, plan_statistics

__all__ = [
    "Answer",
    "Answers",
    "Axis",
    "Bins",
    "Bounds",
    "Categories",
    "Count",
    "CrossTable",
    "Estimate",
    "Estimator",
    "ExpectedError",
    "Histogram",
    "Layout",
    "Mean",
    "Owners",
    "Parties",
    "PartySum",
    "Precision",
    "Quantiles",
    "Query",
    "Question",
    "StatisticsPlan",
    "Sum",
    "Top",
    "Variance",
    "expected_errors",
    "least_epsilon",
    "parse_question",
    "party_sum",
    "plan_for_error",
    "plan_statistics",
    "private_statistics",
    "read_question",
    "release",
]

_HOMES = {
    "answers": ("Answer", "Answers"),
    "domains": ("Axis", "Bins", "Bounds", "Categories"),
    "estimates": ("Estimator", "Precision"),
    "expectation": ("ExpectedError", "expected_errors", "least_epsilon"),
    "intervals": ("Estimate",),
    "layout": ("Layout",),
    "parsing": ("parse_question",),
    "party": ("Owners", "PartySum", "party_sum"),
    "queries": (
        "Count",
        "CrossTable",
        "Histogram",
        "Mean",
        "Quantiles",
        "Query",
        "Question",
        "Sum",
        "Top",
        "Variance",
    ),
    "question_file": ("read_question",),
    "releases": ("private_statistics", "release"),
    "sizing": ("Parties", "StatisticsPlan", "plan_for_error", "plan_statistics"),
}

__getattr__ = lazily(__name__, _HOMES)
