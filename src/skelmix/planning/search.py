"""The search for the scale γ with the least error, and the remedies when the bits are too few."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from skelmix.errors import PrivacyUnattainable
from skelmix.mechanisms import Mechanism
from skelmix.mechanisms.bounds import Bound
from skelmix.planning.calibrate import at_scale, calibrated
from skelmix.planning.cohort import Cohort
from skelmix.planning.plans import WRAP_WARNING, predicted_error
from skelmix.planning.request import PlanRequest
from skelmix.planning.silos import Silos

#: the smallest scale tried, as a fraction of the largest
_SMALLEST_SCALE = 1e-4

_NO_SUM_LEFT = 1e100
"""Error where the modulus takes more than the noise does."""


def at_best_scale(request: PlanRequest) -> tuple[Mechanism, Bound]:
    """`at_scale` where the predicted error is least; at the smallest scale, where wrapping is rarest, if
    none is any good."""
    multiplier = request.multiplier
    guess = _best_scale(
        request, request.bounds[0], lambda mechanism: mechanism.noise_for_multiplier(multiplier)
    )
    if guess is not None:
        try:
            best = at_scale(request, guess)
        except PrivacyUnattainable:
            pass
        else:
            if not wraps_too_often(best[0], request.cohort):
                return best
    # the bound asks for more noise than a Gaussian of the same χ²: look again, with what it does ask for
    own = _best_scale(request, request.bounds[-1], _own_noise(request, request.bounds[-1]))
    return at_scale(request, own or _SMALLEST_SCALE * _largest_scale(request))


def wraps_too_often(mechanism: Mechanism, cohort: Cohort | Silos) -> bool:
    """Whether noise alone wraps so often that the modulus does more harm than the noise."""
    bare = predicted_error(mechanism, cohort, 0.0)
    return bare.wrap_loss > bare.noise + bare.rounding


def bits_too_few_message(request: PlanRequest, mechanism: Mechanism, scale_given: bool) -> str:
    """Why the bits do not suffice, and remedies that were tried: more bits, or another scale."""

    def wrapping(bits: int) -> float:
        wider = replace(mechanism, bits=bits)
        return predicted_error(wider, request.cohort, 0.0).wrap_probability

    def best_scale(bits: int) -> float | None:
        try:
            best, _ = at_best_scale(replace(request, bits=bits))
        except PrivacyUnattainable:
            return None
        return None if wraps_too_often(best, request.cohort) else best.scale

    # at a given scale the noise stays; at the best one it changes with the bits
    wider = (bits for bits in range(request.bits + 1, 33) if wrapping(bits) < WRAP_WARNING)
    need = next((bits for bits in wider if scale_given or best_scale(bits)), None)
    remedy = f"use bits = {need}" if need else "no width up to 32 bits carries it"
    if scale_given and (other := best_scale(request.bits)):
        remedy += f", or scale = {other:g}"
    return (
        f"bits = {request.bits}: {wrapping(request.bits):.0%} of coordinates would wrap around "
        f"2^{request.bits} at scale γ = {mechanism.scale:.3g} by the noise alone; {remedy}"
    )


def _largest_scale(request: PlanRequest) -> float:
    """The largest γ worth trying: within the modulus, within a sampler's table, and not beyond noise large
    enough that rounding error is negligible (certificates take seconds there)."""
    most_variance = min(1e8 * request.cohort.whole_shares, 2.0**28)
    return min(2.0**request.bits / 2, math.sqrt(most_variance)) / (request.multiplier * request.clip_norm)


def _log_scales(request: PlanRequest, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return math.log(_largest_scale(request)) + np.linspace(math.log(_SMALLEST_SCALE), 0.0, count)


def _best_scale(request: PlanRequest, bound: Bound, noise_for: Callable[[Mechanism], float]) -> float | None:
    """The γ with the least predicted error, to three digits; None where wrapping takes more than the noise at
    every γ. Privacy is calibrated afterwards, at the γ found.

    noise_for: about the total noise that a mechanism needs; that of a Gaussian with the same χ² (exact in the
    limit of many coordinates) needs no certificate while searching.
    """
    if not request.kind.distributed:
        return 1.0
    from scipy.optimize import minimize_scalar  # loads slowly: clients that only check a plan do without

    def error(log_scale: float) -> float:
        mechanism = request.build(bound, math.exp(log_scale), 1.0)
        noise = noise_for(mechanism)
        if not noise < math.inf:
            return _NO_SUM_LEFT
        with_noise = replace(mechanism, total_noise=noise)
        predicted = predicted_error(with_noise, request.cohort, request.alignment)
        # where wrapping rules, a larger scale looks better only because the sum is lost anyway
        readable = predicted.wrap_loss <= predicted.noise + predicted.rounding
        return predicted.effective_mse if readable else _NO_SUM_LEFT

    grid = _log_scales(request, 24)
    errors = [error(point) for point in grid]
    middle = int(np.argmin(errors))
    if errors[middle] == _NO_SUM_LEFT:
        return None
    around = (grid[max(0, middle - 1)], grid[min(len(grid) - 1, middle + 1)])
    best = minimize_scalar(error, bounds=around, method="bounded", options={"xatol": 1e-3, "maxiter": 25})
    return float(f"{math.exp(best.x if best.fun < errors[middle] else grid[middle]):.3g}")


def _own_noise(request: PlanRequest, bound: Bound) -> Callable[[Mechanism], float]:
    """What the bound itself asks for. A theorem of the literature: calibrated at a few scales, interpolated
    between them. A certificate: about the noise of an equal Gaussian."""
    if bound.certified:
        return lambda mechanism: mechanism.estimated_noise(request.multiplier)

    def log_noise(log_scale: float) -> float:
        try:
            mechanism = calibrated(request, bound, math.exp(log_scale))
        except PrivacyUnattainable:
            return math.inf
        return math.log(mechanism.total_noise) if mechanism else math.inf

    points = _log_scales(request, 8)
    logs = [log_noise(point) for point in points]

    def interpolated(mechanism: Mechanism) -> float:
        with np.errstate(invalid="ignore"):  # between no bound and none
            return float(np.exp(np.interp(math.log(mechanism.scale), points, logs)))

    return interpolated
