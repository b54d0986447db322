"""Rounds that fail because too many drop out: they cost privacy and give nothing, so a plan warns of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from skelmix.errors import InvalidInput

if TYPE_CHECKING:
    from skelmix.planning.cohort import Cohort
    from skelmix.planning.silos import Silos

#: shares of failing rounds: above the first a plan warns, above the second it is refused unless allowed
WARNING, REFUSAL = 0.01, 0.5


def failing_warning(cohort: Cohort | Silos, dropout_rate: float | None) -> str | None:
    """The warning, with a remedy, when this dropout rate makes too many rounds fail; else None."""
    if dropout_rate is None:
        return None
    share = cohort.failing_rounds(dropout_rate)
    if share <= WARNING:
        return None
    rounds = "all rounds" if share > 0.9995 else f"{share:.1%} of rounds"
    return (
        f"{rounds} would fail at a dropout rate of {dropout_rate:g}: they are charged and give no sum; "
        f"{_remedy(cohort, dropout_rate)}"
    )


def refuse_failing(cohort: Cohort | Silos, dropout_rate: float | None, *, allowed: bool) -> None:
    """Raise `InvalidInput` when this dropout rate makes most rounds fail, unless that is allowed."""
    if dropout_rate is None or allowed or cohort.failing_rounds(dropout_rate) <= REFUSAL:
        return
    raise InvalidInput(
        f"dropout_rate = {dropout_rate:g}: {failing_warning(cohort, dropout_rate)}, or allow it "
        "(allow_failing_rounds=True, --allow-failing-rounds)"
    )


def refuse_beyond_law(cohort: Cohort | Silos, dropout_rate: float) -> None:
    """Raise `InvalidInput` when participants drop out more often than the law that ε is proved under."""
    law = cohort.roster.assumed_dropout_rate
    if law is not None and dropout_rate > law:
        raise InvalidInput(
            f"dropout_rate = {dropout_rate:g}: the plan's ε is proved for participants that drop out with "
            f"probability {law:g} at most; plan with Cohort(dropout_rate={dropout_rate:g})"
        )


def _remedy(cohort: Cohort | Silos, dropout_rate: float) -> str:
    """The smallest tolerance, in whole percents, with which at most `WARNING` of the rounds fail."""
    for percent in range(int(100 * cohort.dropout_tolerance) + 1, 100):
        try:
            wider = replace(cohort, dropout_tolerance=percent / 100, least_survivors=None)
        except InvalidInput:  # too few are left beside the colluders
            break
        if wider.failing_rounds(dropout_rate) <= WARNING:
            return f"plan with dropout_tolerance = {percent / 100:g}"
    return "expect more participants, or fewer dropouts"
