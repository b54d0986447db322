"""The least noise that meets a target at a given scale, by the best of the bounds."""

from __future__ import annotations

import math

from skelmix.accounting import calibration
from skelmix.errors import PrivacyUnattainable
from skelmix.mechanisms import Mechanism
from skelmix.mechanisms.bounds import Bound
from skelmix.planning.request import PlanRequest


def at_scale(request: PlanRequest, scale: float) -> tuple[Mechanism, Bound]:
    """The mechanism with the least noise of all the request's bounds at this scale, and the bound.

    Raises `PrivacyUnattainable` when no noise meets the target under any of them.
    """
    best: tuple[Mechanism, Bound] | None = None
    reason: Exception | None = None
    for bound in request.bounds:
        try:
            mechanism = calibrated(request, bound, scale, best[0].total_noise if best else math.inf)
        except PrivacyUnattainable as error:
            reason = reason or error
        else:
            best = (mechanism, bound) if mechanism else best
    if best is None:
        raise PrivacyUnattainable(str(reason)) from reason
    return best


def calibrated(request: PlanRequest, bound: Bound, scale: float, below: float = math.inf) -> Mechanism | None:
    """The mechanism with the least noise under this bound; None when its noise is not below `below`."""
    target = request.noise_target
    total = bound.least_noise(
        lambda noise: request.build(bound, scale, noise),
        request.schedule,
        target.epsilon,
        target.delta,
        multiplier=request.multiplier,
        below=below,
    )
    if total is None:
        return None
    total = _enough_for_both(request, bound, scale, total)
    if total >= below:
        return None
    mechanism = request.build(bound, scale, total)
    return mechanism.with_largest_linf(bound.epsilon(mechanism, request.schedule, target.delta).order)


def _enough_for_both(request: PlanRequest, bound: Bound, scale: float, total: float) -> float:
    """The noise raised, where needed, until the target's ε against the aggregator is met as well.

    Each ε is that of the finished plan: with the request's own slack.
    """
    target, schedule = request.noise_target, request.schedule
    limit = target.epsilon_aggregator
    if limit is None or schedule.secret:
        return total

    def cost(noise: float) -> float:
        """Both ε as fractions of their limits, the larger one."""
        mechanism = request.build(bound, scale, noise)
        proved = bound.epsilon(mechanism, schedule, target.delta, request.slack)
        reached = bound.against_aggregator(proved, mechanism, schedule, target.delta)[0]
        return max(proved.epsilon / target.epsilon, reached / limit)

    if cost(total) <= 1:
        return total
    return calibration.least_noise(cost, 1.0, total, total * 1e6, guess=total * 1.2)
