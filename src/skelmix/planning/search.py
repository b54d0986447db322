"""Where the error of a sum is least: the search for the scale γ, with the least noise at each, and the
remedies when the bits carry none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from skelmix.errors import PrivacyUnattainable
from skelmix.mechanisms import Mechanism
from skelmix.planning.guarantee import Cohort, least_noise
from skelmix.planning.request import Job, predicted

#: share of wrapping coordinates above which a plan warns
WRAP_WARNING = 0.01

_NARROWEST = 1e-4
"""Of the scales looked at, against the widest."""

_LOST = 1e100
"""Error where the modulus takes more than the noise does."""


def at_best_scale(job: Job) -> tuple[Mechanism, str]:
    """`at_scale` where the predicted error is least; at the narrowest scale, where wrapping is rarest, if
    none is any good."""
    guess = _best_scale(job, job.bounds[0], lambda one: one.noise_for_multiplier(job.multiplier))
    if guess is not None:
        try:
            found = at_scale(job, guess)
        except PrivacyUnattainable:
            pass
        else:
            if not too_wide(found[0], job.cohort):
                return found
    # the bound asks for more noise than a Gaussian of the same χ²: look again, with what it does ask for
    own = _best_scale(job, job.bounds[-1], _own_noise(job, job.bounds[-1]))
    return at_scale(job, own or _NARROWEST * _widest(job))


def at_scale(job: Job, scale: float) -> tuple[Mechanism, str]:
    """The mechanism with the least noise of all the job's bounds at this scale, and the bound.

    Raises `PrivacyUnattainable` when no noise meets the target under any of them.
    """
    best: tuple[Mechanism, str] | None = None
    reason: Exception | None = None
    for one in job.bounds:
        try:
            found = _calibrated(job, one, scale, best[0].total_noise if best else math.inf)
        except PrivacyUnattainable as error:
            reason = reason or error
        else:
            best = (found, one) if found else best
    if best is None:
        raise PrivacyUnattainable(str(reason)) from reason
    return best


def too_wide(mechanism: Mechanism, cohort: Cohort) -> bool:
    """Whether noise alone wraps so often that the modulus does more harm than the noise."""
    bare = predicted(mechanism, cohort, 0.0)
    return bare.lost > bare.noise + bare.rounding


def refusal(job: Job, mechanism: Mechanism, scale_given: bool) -> str:
    """Why the bits do not do, and remedies that were tried: more bits, or another scale if one was given."""

    def wrapping(bits: int) -> float:
        return predicted(replace(mechanism, bits=bits), job.cohort, 0.0).wrap_probability

    def best_scale(bits: int) -> float | None:
        try:
            found, _ = at_best_scale(replace(job, bits=bits))
        except PrivacyUnattainable:
            return None
        return None if too_wide(found, job.cohort) else found.scale

    # at a given scale the noise stays; at the best one it changes with the bits
    wider = (bits for bits in range(job.bits + 1, 33) if wrapping(bits) < WRAP_WARNING)
    need = next((bits for bits in wider if scale_given or best_scale(bits)), None)
    remedy = f"use bits = {need}" if need else "no width up to 32 bits carries it"
    if scale_given and (other := best_scale(job.bits)):
        remedy += f", or scale = {other:g}"
    return (
        f"bits = {job.bits}: {wrapping(job.bits):.0%} of coordinates would wrap around 2^{job.bits} at scale "
        f"γ = {mechanism.scale:.3g} by the noise alone; {remedy}"
    )


def _calibrated(job: Job, bound: str, scale: float, below: float = math.inf) -> Mechanism | None:
    """The mechanism with the least noise under this bound; None when it is not below `below`."""
    total = least_noise(
        lambda noise: job.build(bound, scale, noise),
        bound=bound,
        cohort=job.cohort,
        rounds=job.rounds,
        target=job.left,
        multiplier=job.multiplier,
        below=below,
    )
    return None if total is None else job.widened(job.build(bound, scale, total), bound)


def _widest(job: Job) -> float:
    """The largest γ worth a look: wider than the modulus is of no use, nor more levels than a sampler's table
    holds, nor noise beside which rounding is nothing any more (certificates take seconds there)."""
    most_variance = min(1e8 * job.cohort.whole_shares, 2.0**28)
    return min(2.0**job.bits / 2, math.sqrt(most_variance)) / (job.multiplier * job.clip_norm)


def _log_scales(job: Job, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return math.log(_widest(job)) + np.linspace(math.log(_NARROWEST), 0.0, count)


def _best_scale(job: Job, bound: str, noise_for: Callable[[Mechanism], float]) -> float | None:
    """The γ with the least predicted error, to three digits; None where wrapping takes more than the noise at
    every γ. Privacy is calibrated afterwards, at the γ found.

    noise_for: about the total noise that a mechanism needs; that of a Gaussian with the same χ² (exact in the
    limit of many coordinates) needs no certificate while searching.
    """
    if job.mechanism == "gaussian":
        return 1.0
    from scipy.optimize import minimize_scalar  # loads slowly: clients that only check a plan do without

    def error(log_scale: float) -> float:
        mechanism = job.build(bound, math.exp(log_scale), 1.0)
        noise = noise_for(mechanism)
        if not noise < math.inf:
            return _LOST
        told = predicted(replace(mechanism, total_noise=noise), job.cohort, job.alignment)
        # where wrapping rules, a larger scale looks better only because the sum is lost anyway
        return told.unbiased if told.lost <= told.noise + told.rounding else _LOST

    grid = _log_scales(job, 24)
    errors = [error(point) for point in grid]
    middle = int(np.argmin(errors))
    if errors[middle] == _LOST:
        return None
    around = (grid[max(0, middle - 1)], grid[min(len(grid) - 1, middle + 1)])
    best = minimize_scalar(error, bounds=around, method="bounded", options={"xatol": 1e-3, "maxiter": 25})
    return float(f"{math.exp(best.x if best.fun < errors[middle] else grid[middle]):.3g}")


def _own_noise(job: Job, bound: str) -> Callable[[Mechanism], float]:
    """What the bound itself asks for. A theorem of the literature: calibrated at a few scales, interpolated
    between them. A certificate: about the noise of a Skellam mixture, at shares of any size."""
    if bound not in ("paper", "composition"):
        skellam, times = replace(job, mechanism="smm"), 1 if job.mechanism == "smm" else 2
        return lambda mechanism: (
            times * skellam.build(bound, mechanism.scale, 1.0).noise_for_multiplier(job.multiplier)
        )

    def log_noise(log_scale: float) -> float:
        try:
            found = _calibrated(job, bound, math.exp(log_scale))
        except PrivacyUnattainable:
            return math.inf
        return math.log(found.total_noise) if found else math.inf

    points = _log_scales(job, 8)
    logs = [log_noise(point) for point in points]

    def interpolated(mechanism: Mechanism) -> float:
        with np.errstate(invalid="ignore"):  # between no bound and none
            return float(np.exp(np.interp(math.log(mechanism.scale), points, logs)))

    return interpolated
