"""How accurate each answer will be, from the question and the noise alone, before any data is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skelmix.errors import PrivacyUnattainable
from skelmix.statistics.estimates import Estimator, Precision
from skelmix.statistics.layout import Layout
from skelmix.statistics.queries import Mean, Quantiles, Query, Sum, Variance
from skelmix.validation import positive, whole
from skelmix.wording import figure


@dataclass(frozen=True)
class ExpectedError:
    """The standard error of an answer, and the same relative to the answer's public range.

    For a mean or variance it is the largest over all data sets with that many values; for quantiles it is
    the error of the rank, as a fraction of the records; for tables, that of the least accurate cell.
    relative: to the number of records (counts), to records times the largest value (sums), to the range of
    the bounds (means) or half of it, squared (variances).

    Example: `[error.relative for error in expected_errors(estimator, layout, records=10_000)]`.
    """

    query: Query
    standard_error: float
    relative: float
    meaning: str

    def __str__(self) -> str:
        size = f"{figure(self.standard_error, 3)} ({100 * self.relative:.2g} %)"
        return f"{self.query}: standard error {self.meaning} {size}"


def expected_errors(estimator: Estimator, layout: Layout, records: int) -> tuple[ExpectedError, ...]:
    """The expected error of each answer. records: the public number of records that the plan is for.

    Example: `max(error.relative for error in expected_errors(estimator, layout, records=10_000))`.
    """
    whole(1, records=records)
    return tuple(_expected(query, estimator, layout, records) for query in layout.question.queries)


def _expected(query: Query, estimator: Estimator, layout: Layout, records: int) -> ExpectedError:
    match query:
        case Sum():
            error = estimator.deviation_of_sum(query)
            return ExpectedError(query, error, error / (records * query.bounds.largest), "about")
        case Mean() | Variance():
            counters, places = layout.counts_and_moments(query)
            count, moments = estimator.consistency.deviation_of(counters), estimator.deviations[places]
            if isinstance(query, Mean):
                relative = math.hypot(moments[0], count) / records
                return ExpectedError(query, relative * query.bounds.half_range, relative / 2, "at most")
            relative = math.hypot(moments[1] / 2, 2 * moments[0], 1.5 * count) / records
            return ExpectedError(query, relative * query.bounds.half_range**2, relative, "at most")
        case Quantiles():
            noise, _ = estimator.noise_of_ranks(query)
            error = max(float(noise.of_differences(p).max()) for p in query.probabilities) / records
            return ExpectedError(query, error, error, "of the rank at most")
        case _:
            (place,) = layout.places(query)
            error = float(np.max(estimator.consistency.deviations[place]))
            return ExpectedError(query, error, error / records, "about")


def least_epsilon(
    layout: Layout,
    relative_error: float,
    records: int,
    deviation_of: Callable[[float], float],
    *,
    rows: int = 1,
    low: float = 1e-3,
    high: float = 50.0,
) -> float:
    """The least ε in [low, high] at which every answer's relative standard error is small enough.

    deviation_of: the standard deviation of the decoded sum's noise at ε, in units of the clip norm; it falls
    as ε grows, and infinity says that no plan exists. Raises `PrivacyUnattainable` when `high` is too little.

    Example: `least_epsilon(layout, 0.01, 10_000, lambda epsilon: 4 / epsilon)`, ε for errors of one per cent.
    """
    from skelmix.accounting.calibration import least_noise

    positive(relative_error=relative_error)

    def worst(epsilon: float) -> float:
        deviation = deviation_of(epsilon)
        if not math.isfinite(deviation):
            return math.inf
        estimator = Estimator(layout, Precision(deviation), rows=rows)
        return max(expected.relative for expected in expected_errors(estimator, layout, records))

    try:
        return least_noise(worst, relative_error, low, high)
    except PrivacyUnattainable as error:
        raise PrivacyUnattainable(
            f"relative_error = {relative_error:g}: not reached with epsilon {high:g} for {records} records; "
            "allow a larger error, ask fewer queries or coarser bins"
        ) from error
