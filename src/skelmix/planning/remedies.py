"""Finds changes to a request that would meet its target against the aggregator, where the request cannot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.planning.calibrate import at_scale
from skelmix.planning.cohort import Cohort
from skelmix.planning.request import PlanRequest
from skelmix.planning.search import at_best_scale, wraps_too_often

_FEWER = (4, 16, 64)
_COINS = (0.25, 0.1, 0.05)

#: a remedy: the change in words, and the changed request
Change = tuple[str, PlanRequest]


def with_remedies(message: str, request: PlanRequest, scale: float | None) -> str:
    """The message of a failed plan, with the changes of rounds, cohorts, coin and cap that meet both targets.

    Without a target for the aggregator, or for silos, the message stays as it is. Of each kind the mildest
    change that works is named.
    """
    cohort, limit = request.cohort, request.target.epsilon_aggregator
    if limit is None or not isinstance(cohort, Cohort):
        return message
    kinds = (_larger_rounds(request, cohort), _coins(request, cohort), _caps(request, cohort))
    working = [text for kind in kinds if (text := _first_that_works(kind, scale))]
    wanted = f"epsilon = {request.target.epsilon:g} with epsilon_aggregator = {limit:g}"
    if working:
        return f"{message}. Tried, and meeting {wanted}: {'; or '.join(working)}"
    return (
        f"{message}. For {wanted}, fewer and larger rounds, coins down to {min(_COINS):g} and caps were "
        "tried without success: raise epsilon_aggregator, use more bits, or enlarge the population"
    )


def _first_that_works(changes: Iterator[Change], scale: float | None) -> str | None:
    return next((text for text, request in changes if _works(request, scale)), None)


def _works(request: PlanRequest, scale: float | None) -> bool:
    """Whether the request can be planned, for both targets, within its bits."""
    if scale is not None and _hopeless(request, scale):
        return False
    try:
        mechanism, _ = at_best_scale(request) if scale is None else at_scale(request, scale)
    except PrivacyUnattainable:
        return False
    return not wraps_too_often(mechanism, request.cohort)


def _hopeless(request: PlanRequest, scale: float) -> bool:
    """Whether even a Gaussian's noise for the targets wraps too often: seen without any certificate."""
    bare = request.build(request.bounds[0], scale, 1.0)
    noisy = replace(bare, total_noise=bare.noise_for_multiplier(request.multiplier))
    return wraps_too_often(noisy, request.cohort)


def _changed(request: PlanRequest, cohort: Cohort, rounds: int, **changes: Any) -> PlanRequest | None:
    """The request with another cohort; None where that is impossible."""
    try:
        return replace(request, rounds=rounds, cohort=replace(cohort, **changes))
    except (InvalidInput, PrivacyUnattainable):
        return None


def _larger_rounds(request: PlanRequest, cohort: Cohort) -> Iterator[Change]:
    """Fewer rounds with larger cohorts, at equal expected contributions."""
    for fewer in _FEWER:
        rounds, expected = request.rounds // fewer, cohort.expected * fewer
        if rounds and (changed := _changed(request, cohort, rounds, expected=expected)):
            yield f"rounds = {rounds:,} with cohorts of {expected:,}", changed


def _coins(request: PlanRequest, cohort: Cohort) -> Iterator[Change]:
    """A coin, with cohorts that keep the expected contributions."""
    for coin in _COINS:
        expected = round(cohort.expected / coin)
        contribute = cohort.contribute * coin
        if changed := _changed(request, cohort, request.rounds, expected=expected, contribute=contribute):
            yield f"contribute = {contribute:g} with cohorts of {expected:,}", changed


def _caps(request: PlanRequest, cohort: Cohort) -> Iterator[Change]:
    """A cap at the expected number of participations, or at half of it: it costs contributions."""
    participations = request.rounds * cohort.sampling_probability
    for cap in dict.fromkeys((round(participations), round(participations / 2))):
        known = cohort.max_participations or request.rounds
        if 1 <= cap < known and (
            changed := _changed(request, cohort, request.rounds, max_participations=cap)
        ):
            yield f"max_participations = {cap} (participants are in {participations:.3g} rounds)", changed
