"""The plain private sum of rows of numbers over parties: its plan, and its answer with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.planning.plans import Plan
from skelmix.planning.target import PrivacyTarget
from skelmix.statistics.answers import Answer, Answers
from skelmix.statistics.asked import AskedSum
from skelmix.statistics.expectation import ExpectedError
from skelmix.statistics.intervals import Estimate, normal_quantile
from skelmix.statistics.sizing import Parties, entry_deviation, plan_record_sum, wrap_probability


@dataclass(frozen=True)
class ColumnTotal:
    """The sum of one column; each record was clipped as a whole, all of its columns together."""

    column: str

    def __str__(self) -> str:
        return f"total({self.column})"


def plan_row_sum(asked: AskedSum, target: PrivacyTarget, parties: Parties, *, clip_norm: float) -> Plan:
    """The plan of a sum of rows, each clipped to an L2 norm of `clip_norm`; reads no data."""
    return plan_record_sum(target, parties, asked.dimension, clip_norm=clip_norm)


def row_sum_errors(asked: AskedSum, plan: Plan) -> tuple[ExpectedError, ...]:
    """The standard error of each column's total, relative to the largest that it can be; reads no data."""
    deviation = entry_deviation(plan)
    relative = deviation / (plan.cohort.members * plan.mechanism.clip_norm)
    return tuple(
        ExpectedError(ColumnTotal(name), deviation, relative, "about")  # type: ignore[arg-type]
        for name in asked.columns
    )


def row_sum_answers(total: NDArray[np.float64], asked: AskedSum, plan: Plan, level: float = 0.95) -> Answers:
    """The decoded sum, by column, with intervals for the noise; what clipping took away is not in them."""
    deviation = entry_deviation(plan)
    reach = deviation * normal_quantile(1 - level - wrap_probability(plan))
    answers: list[Any] = [
        Answer(ColumnTotal(name), Estimate(value, deviation, value - reach, value + reach))  # type: ignore[arg-type]
        for name, value in zip(asked.columns, total[: asked.dimension].tolist(), strict=True)
    ]
    return Answers(plan.report.epsilon, plan.report.delta, plan.cohort.unit, tuple(answers), level)
