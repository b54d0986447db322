"""From the decoded noisy sum to the answers, each with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skelmix.arrays import FloatArray
from skelmix.errors import InvalidInput
from skelmix.statistics.answers import Answer, Estimates
from skelmix.statistics.consistency import Consistency
from skelmix.statistics.domains import number_text
from skelmix.statistics.intervals import (
    CumulativeNoise,
    Estimate,
    OrderedCounts,
    mean_estimate,
    normal_quantile,
    variance_estimate,
)
from skelmix.statistics.layout import Layout
from skelmix.statistics.queries import (
    Count,
    CrossTable,
    Histogram,
    Mean,
    Quantiles,
    Query,
    Sum,
    Top,
    Variance,
)
from skelmix.validation import positive, probability


@dataclass(frozen=True)
class Precision:
    """How far the decoded sum is from the true one, in units of the clip norm.

    standard_deviation: of the noise of each entry, with a bound on the rounding error's included.
    failure: the probability that the sum is not noisy in this way but wrong (a coordinate wrapped around).

    Example: `Precision(standard_deviation=3.0)`.
    """

    standard_deviation: float
    failure: float = 0.0

    def __post_init__(self) -> None:
        positive(standard_deviation=self.standard_deviation)
        if not 0 <= self.failure < 0.01:
            raise InvalidInput(f"failure = {self.failure!r}: must be in [0, 0.01); size the modulus for less")


class Estimator:
    """Turns a decoded sum into answers; everything but the sum is known before any data is read.

    radius, rows: as for the parties' sums. level: how often an interval covers the truth. joint: all
    intervals of all answers hold together that often (Bonferroni), instead of each by itself.

    Example: `Estimator(layout, Precision(3.0)).answers(total)`.
    """

    def __init__(
        self,
        layout: Layout,
        precision: Precision,
        *,
        radius: int = 1 << 34,
        rows: int = 1,
        level: float = 0.95,
        joint: bool = False,
    ) -> None:
        probability(level=level)
        self._layout, self._joint = layout, joint
        self._units = layout.entry_units(radius, rows)
        self.deviations = precision.standard_deviation * self._units
        self.consistency = Consistency(layout, self.deviations)
        self._error = 1 - level - precision.failure
        if self._error <= 0:
            raise InvalidInput(
                f"level = {level!r}: not reachable when {precision.failure:g} of sums are wrong"
            )

    @cached_property
    def _numbers(self) -> int:
        return sum(_size(query) for query in self._layout.question.queries)

    def answers(self, total: FloatArray) -> tuple[Answer, ...]:
        """The answers to all queries from the decoded sum, (dimension,), in units of the clip norm."""
        total = np.asarray(total, np.float64)
        if total.shape != (self._layout.dimension,) or not np.isfinite(total).all():
            raise InvalidInput(
                f"total has shape {total.shape}: must be ({self._layout.dimension},) and finite; "
                "decode the sum of this question"
            )
        raw = total * self._units
        fitted = self.consistency.reconciled(raw)
        released = _Released(raw, fitted, self.consistency.non_negative(fitted))
        return tuple(self._answer(query, released) for query in self._layout.question.queries)

    def _answer(self, query: Query, released: _Released) -> Answer:
        error = self._error / self._numbers if self._joint else self._error
        estimates: Estimates
        match query:
            case Count():
                estimates = self._counts(query, released, error)[0]
            case Sum():
                estimates = self._sum(query, released, error)
            case Mean() | Variance():
                estimates = self._moment(query, released, error)
            case Histogram():
                estimates = dict(
                    zip(query.axis.domain.labels, self._counts(query, released, error), strict=True)
                )
            case CrossTable():
                estimates = self._table(query, released, error)
            case Quantiles():
                estimates = self._quantiles(query, released, error)
            case Top():
                estimates = self._top(query, released, error)
        return Answer(query, estimates, self._joint or isinstance(query, Top))

    def _counts(self, query: Query, released: _Released, error: float) -> list[Estimate]:
        (place,) = self._layout.places(query)
        z = normal_quantile(error)
        rows = zip(
            released.fitted[place].tolist(),
            released.non_negative[place].tolist(),
            self.consistency.deviations[place].tolist(),
            strict=True,
        )
        estimates = []
        for fitted, value, deviation in rows:
            low, high = max(0.0, fitted - z * deviation), max(0.0, fitted + z * deviation)
            estimates.append(Estimate(value, deviation, min(low, value), max(high, value)))
        return estimates

    def _table(self, query: CrossTable, released: _Released, error: float) -> Estimates:
        cells = iter(self._counts(query, released, error))
        return {
            first: {second: next(cells) for second in query.second.domain.labels}
            for first in query.first.domain.labels
        }

    def _sum(self, query: Sum, released: _Released, error: float) -> Estimate:
        counters, (place,) = self._layout.counts_and_moments(query)
        value, deviation = float(released.fitted[place]), self.deviation_of_sum(query)
        if counters:
            value = query.bounds.half_range * value + query.bounds.middle * _number(released.fitted, counters)
        margin = normal_quantile(error) * deviation
        estimate = Estimate(value, deviation, value - margin, value + margin)
        low = 0.0 if query.bounds.low >= 0 else -math.inf
        return estimate.clamped(low, 0.0 if query.bounds.high <= 0 else math.inf)

    def deviation_of_sum(self, query: Sum) -> float:
        """The standard deviation of a sum's noise."""
        counters, (place,) = self._layout.counts_and_moments(query)
        deviation = float(self.deviations[place])
        if not counters:
            return deviation
        bounds = query.bounds
        return math.hypot(
            bounds.half_range * deviation, bounds.middle * self.consistency.deviation_of(counters)
        )

    def noise_of_ranks(self, query: Quantiles) -> tuple[CumulativeNoise, bool]:
        """The noise of how many values are in the first bins, and whether it is that of reconciled counts."""
        (place,) = self._layout.places(query)
        bins = query.bins.count
        noise = self.consistency.cumulative(place.start, place.start + bins)
        if noise is not None:
            return noise, True
        return CumulativeNoise.independent(float(self.deviations[place.start]), bins), False

    def _moment(self, query: Mean | Variance, released: _Released, error: float) -> Estimate:
        counters, places = self._layout.counts_and_moments(query)
        sums = np.array([_number(released.fitted, counters), *released.fitted[places]])
        deviations = np.array([self.consistency.deviation_of(counters), *self.deviations[places]])
        half = query.bounds.half_range
        if isinstance(query, Variance):
            return variance_estimate(sums, deviations, error).scaled(half**2)
        estimate = mean_estimate(sums[1], deviations[1], sums[0], deviations[0], error)
        return estimate.scaled(half, query.bounds.middle)

    def _quantiles(self, query: Quantiles, released: _Released, error: float) -> Estimates:
        (place,) = self._layout.places(query)
        noise, reconciled = self.noise_of_ranks(query)
        values = released.fitted if reconciled else released.raw
        counts = OrderedCounts(values[place][: query.bins.count], query.bins.edges, noise)
        return {number_text(p): counts.quantile(p, error) for p in query.probabilities}

    def _top(self, query: Top, released: _Released, error: float) -> Estimates:
        names = query.names
        counts = dict(
            zip(query.axis.domain.labels, self._counts(query, released, error / len(names)), strict=True)
        )
        ranked = sorted(names, key=lambda name: -counts[name].value)
        return {name: counts[name] for name in ranked[: query.k]}


def _number(counts: FloatArray, counters: list[int]) -> float:
    """The first of the counts less those that follow it."""
    first, *rest = counts[counters].tolist()
    return float(first - sum(rest))


@dataclass(frozen=True, eq=False)
class _Released:
    raw: FloatArray
    fitted: FloatArray
    non_negative: FloatArray


def _size(query: Query) -> int:
    """How many numbers the answer has, for joint claims."""
    match query:
        case Quantiles():
            return len(query.probabilities)
        case Histogram():
            return query.axis.domain.size
        case CrossTable():
            return query.first.domain.size * query.second.domain.size
        case _:
            return 1
