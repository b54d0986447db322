"""The search for the upload's shape and the scale γ with the least error.

And the remedies when the bits are too few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from skelmix.errors import PrivacyUnattainable
from skelmix.mechanisms import Mechanism
from skelmix.mechanisms.bounds import Bound
from skelmix.planning.calibrate import at_scale, calibrated
from skelmix.planning.card import WRAP_WARNING
from skelmix.planning.cohort import Cohort
from skelmix.planning.plans import predicted_error
from skelmix.planning.rate import MOST_BITS, UploadShape
from skelmix.planning.request import PlanRequest
from skelmix.planning.silos import Silos

#: the smallest scale tried, as a fraction of the largest
_SMALLEST_SCALE = 1e-4

_NO_SUM_LEFT = 1e100
"""The predicted error of a mechanism whose modulus loses more than the noise does."""

_SMALL_SLACK = 0.05  # if this little slack does not help, none is best
_MOST_SLACK = 8.0  # with more, only one vector in 10^15 would be clipped
_FEWEST_CHOSEN = 16  # bits: the planner goes lower only on request
_WORTH_A_BIT = 1.0001  # bits are enough when the error is at most this many times that of 32 bits
_RISES = 6  # after this many shapes in a row worse than the best, the search stops


def best_shape(request: PlanRequest, shapes: Sequence[UploadShape], scale: float | None) -> PlanRequest:
    """The request with the shape, and the slack of its clip, that have the least predicted error.

    Shapes are compared with the noise of an equal Gaussian, at the best scale of each or at the given one:
    no certificate is made. Where none is any good, the one with the most bits per coordinate.
    """
    best, least, rises = _with_shape(request, shapes[-1]), _NO_SUM_LEFT, 0
    if len(shapes) == 1 and best.keep is None:
        return best
    for shape in shapes:
        candidate = _with_shape(request, shape)
        error, candidate = _with_best_slack(candidate, scale)
        if error < least:
            best, least, rises = candidate, error, 0
        elif least < _NO_SUM_LEFT:
            rises += 1
        if rises == _RISES:
            break
    return best


def with_fewest_bits(request: PlanRequest, keep: int | None, scale: float | None) -> PlanRequest:
    """The request with the fewest bits per coordinate, at least 16, that are nearly as accurate as 32.

    "Nearly", because shapes are compared by Gaussians, and a certificate needs more noise than those: the
    fewer bits there are, the more.
    """
    shapes = [UploadShape(bits, keep) for bits in range(_FEWEST_CHOSEN, MOST_BITS + 1)]
    widest = best_shape(request, shapes[-1:], scale)
    enough = _WORTH_A_BIT * _with_best_slack(widest, scale)[0]
    for shape in shapes[:-1]:
        error, candidate = _with_best_slack(_with_shape(request, shape), scale)
        if error <= enough and error < _NO_SUM_LEFT:
            return candidate
    return widest


def _with_shape(request: PlanRequest, shape: UploadShape) -> PlanRequest:
    return replace(request, bits=shape.bits, keep=shape.keep, clip_slack=0.0)


def _with_best_slack(request: PlanRequest, scale: float | None) -> tuple[float, PlanRequest]:
    """(predicted error, the request with the best slack of the subset's clip).

    Less slack shortens vectors; more slack needs more noise. Shorter vectors also lose less through the
    coordinates that are not sent, so the best slack is usually zero.
    """
    bound, noise_for = request.bounds[0], _gaussian_noise(request)
    if scale is None:
        scale = _best_scale(request, bound, noise_for)
    if scale is None:
        return _NO_SUM_LEFT, request
    if request.keep is None:
        return _error(request, bound, scale, noise_for), request
    from scipy.optimize import minimize_scalar

    def error(slack: float) -> float:
        return _error(replace(request, clip_slack=slack), bound, scale, noise_for)

    tight = error(0.0)
    if tight <= error(_SMALL_SLACK):
        return tight, request
    best = minimize_scalar(
        error, bounds=(0.0, _MOST_SLACK), method="bounded", options={"xatol": 0.02, "maxiter": 20}
    )
    return float(best.fun), replace(request, clip_slack=float(f"{best.x:.2f}"))


def at_best_scale(request: PlanRequest) -> tuple[Mechanism, Bound]:
    """The mechanism, made by `at_scale`, at the scale with the least predicted error.

    If no scale is any good, the smallest one, where wrapping is rarest.
    """
    guess = _best_scale(request, request.bounds[0], _gaussian_noise(request))
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
    """The largest γ worth trying.

    It is within the modulus, within a sampler's table, and not beyond noise large enough that rounding error
    is negligible (certificates take seconds there).
    """
    most_variance = min(1e8 * request.cohort.whole_shares, 2.0**28)
    radius = request.build(request.bounds[0], 1.0, 1.0).radius  # per unit of the scale
    return min(2.0**request.bits / 2, math.sqrt(most_variance)) / (request.multiplier * radius)


def _log_scales(request: PlanRequest, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return math.log(_largest_scale(request)) + np.linspace(math.log(_SMALLEST_SCALE), 0.0, count)


def _best_scale(request: PlanRequest, bound: Bound, noise_for: Callable[[Mechanism], float]) -> float | None:
    """The γ with the least predicted error, to three digits; None if wrapping outweighs the noise at every γ.

    Privacy is calibrated afterwards, at the γ found.

    noise_for: estimates the total noise that a mechanism needs. The search uses the noise of a Gaussian with
    the same χ², which needs no certificate and is exact in the limit of many coordinates.
    """
    if not request.kind.distributed:
        return 1.0
    from scipy.optimize import minimize_scalar  # loads slowly: clients that only check a plan do without

    def error(log_scale: float) -> float:
        return _error(request, bound, math.exp(log_scale), noise_for)

    grid = _log_scales(request, 24)
    errors = [error(point) for point in grid]
    middle = int(np.argmin(errors))
    if errors[middle] == _NO_SUM_LEFT:
        return None
    around = (grid[max(0, middle - 1)], grid[min(len(grid) - 1, middle + 1)])
    best = minimize_scalar(error, bounds=around, method="bounded", options={"xatol": 1e-3, "maxiter": 25})
    return float(f"{math.exp(best.x if best.fun < errors[middle] else grid[middle]):.3g}")


def _error(
    request: PlanRequest, bound: Bound, scale: float, noise_for: Callable[[Mechanism], float]
) -> float:
    """The predicted error at this scale, with an estimate of the noise that it needs."""
    mechanism = request.build(bound, scale, 1.0)
    noise = noise_for(mechanism)
    if not noise < math.inf:
        return _NO_SUM_LEFT
    with_noise = replace(mechanism, total_noise=noise)
    predicted = predicted_error(with_noise, request.cohort, request.alignment)
    # once most of the error is wrapping, a larger scale only seems better: the sum is unusable either way
    readable = predicted.wrap_loss <= predicted.noise + predicted.rounding
    return predicted.effective_mse if readable else _NO_SUM_LEFT


def _gaussian_noise(request: PlanRequest) -> Callable[[Mechanism], float]:
    """The noise that hides a vector as well as the central Gaussian that meets the target."""
    multiplier = request.multiplier
    return lambda mechanism: mechanism.noise_for_multiplier(multiplier)


def _own_noise(request: PlanRequest, bound: Bound) -> Callable[[Mechanism], float]:
    """The noise that the bound itself asks for, as a function of the scale.

    For a theorem of the literature it is calibrated at a few scales and interpolated between them; for a
    certificate it is estimated from an equal Gaussian.
    """
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
        with np.errstate(invalid="ignore"):  # inf - inf, between two scales at which the bound says nothing
            return float(np.exp(np.interp(math.log(mechanism.scale), points, logs)))

    return interpolated
