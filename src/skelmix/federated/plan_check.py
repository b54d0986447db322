"""Whether a plan fits the model that is trained, its participants and their dropouts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from skelmix.errors import InvalidInput
from skelmix.planning.failing import failing_warning, refuse_beyond_law, refuse_failing
from skelmix.validation import fraction

if TYPE_CHECKING:
    from skelmix.planning import Plan

log = logging.getLogger("skelmix")


def check_dropouts(plan: Plan, rate: float, *, allowed: bool) -> None:
    """Refuse a dropout rate that the plan does not cover; warn of rounds that will fail."""
    fraction(dropout_rate=rate)
    refuse_beyond_law(plan.cohort, rate)
    if rate != plan.cohort.dropout_rate:  # otherwise the plan has already warned, and was allowed
        refuse_failing(plan.cohort, rate, allowed=allowed)
        if failing := failing_warning(plan.cohort, rate):
            log.warning("%s", failing)


def check_sizes(plan: Plan, weights: int, participants: int) -> None:
    """Refuse a plan for another model or another population."""
    if weights != plan.dimension:
        raise InvalidInput(
            f"the model has {weights} trainable weights, the plan is for {plan.dimension}: make the plan "
            f"with dimension={weights}"
        )
    if participants != plan.cohort.roster.population:
        raise InvalidInput(
            f"{participants} participants, but the plan's population is {plan.cohort.roster.population}: "
            "sampling would not have the rate that was accounted for; plan for that population"
        )
