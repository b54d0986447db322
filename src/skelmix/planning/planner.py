"""`plan`: the least noise for a privacy target. `account`: the privacy of a given noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from skelmix import validation
from skelmix.encoding.indicator import AdaptiveClip
from skelmix.errors import BitsTooFew, InvalidInput, PrivacyUnattainable
from skelmix.planning.calibrate import at_scale
from skelmix.planning.cohort import Cohort
from skelmix.planning.failing import refuse_failing
from skelmix.planning.guarantee import privacy_report
from skelmix.planning.plans import Plan
from skelmix.planning.rate import DEFAULT_BITS, UploadShape, upload_shapes
from skelmix.planning.remedies import with_remedies
from skelmix.planning.request import PlanRequest
from skelmix.planning.search import (
    at_best_scale,
    best_shape,
    bits_too_few_message,
    with_fewest_bits,
    wraps_too_often,
)
from skelmix.planning.silos import Silos
from skelmix.planning.target import PrivacyTarget

_LEAST_EPSILON = 1e-6  # a target must be positive, even where the guarantee is zero


def plan(
    target: PrivacyTarget,
    *,
    dimension: int,
    cohort: Cohort | Silos,
    clip_norm: float = 1.0,
    clip: str | AdaptiveClip = "fixed",
    rate: float | None = None,
    bits: int | Literal["auto"] | None = None,
    keep: float | None = None,
    rounds: int = 1,
    mechanism: str | None = None,
    scale: float | None = None,
    bound: str = "tight",
    alignment: float = 1.0,
    allow_wrapping: bool = False,
    allow_failing_rounds: bool = False,
) -> Plan:
    """Find the least noise, and the best upload for the bits, with which `rounds` rounds meet the target.

    clip: "fixed", at clip_norm; or "adaptive": the first round's clip norm is clip_norm, and each round moves
    it towards the 0.8 quantile of the vectors' norms, found in the same release for 0.125 % more noise. With
    an `AdaptiveClip` start, quantile and rate are chosen by hand. It is for runs of several rounds (`Trainer`
    or Flower); single sums refuse it.

    rate: bits per weight that an upload may have, 0.01..32; the planner then finds how many coordinates are
    sent and how many bits each has, with the least predicted error. By hand: bits per coordinate (8 when
    nothing is given) and keep, the fraction of the rotated coordinates that is sent, a public random subset
    in each round (all by default); with a rate and one of them the other follows. bits="auto": 16 or
    as many more as lower the predicted error; for single sums, whose bytes hardly matter.

    mechanism: "smm" (the default), "dgm", "skellam", "ddg", "cpsgd" or "gaussian". scale: γ; without it the
    one with the least predicted error is found. bound: "tight" (the best certified bound), or "rdp", "gdp",
    "flat", "paper".

    alignment: mean cosine between participants' vectors, which determines how long their sum is. A longer sum
    wraps around the modulus sooner, and sending a subset of its coordinates costs more. 1, everyone alike, is
    safe for any data and the default; at 1 the planner sends as many coordinates as it can. Gradients of
    single records have 0.02 or less; a low rate costs little there, but the prediction shows that only if
    alignment is given.

    allow_failing_rounds: plan even if the cohort's `dropout_rate` makes more than half of the rounds fail.

    Raises `InvalidInput` for bad arguments, `PrivacyUnattainable` when no noise meets the target and
    `BitsTooFew` when the bits cannot carry it, unless allow_wrapping.

    Example:

        >>> planned = plan(
        ...     PrivacyTarget(1.0, 1e-5), dimension=8, bits=12, bound="gdp",
        ...     cohort=Cohort.everyone(10),
        ... )
        >>> planned.report.epsilon <= 1.0, planned.mechanism.name
        (True, 'smm')
    """
    given = None if bits == "auto" else bits
    request = PlanRequest(
        target, cohort, rounds, mechanism or "smm", dimension, clip_norm, given or DEFAULT_BITS, bound,
        alignment, adaptive=_adaptive(clip, clip_norm),
    )  # fmt: skip
    if scale is not None:
        validation.positive(scale=scale)
    cohort = request.cohort
    refuse_failing(cohort, cohort.dropout_rate, allowed=allow_failing_rounds)
    shapes = _shapes(request, rate, given, keep)
    if bits == "auto" and rate is None and request.kind.distributed:
        request = with_fewest_bits(request, shapes[0].keep, scale)
    else:
        request = best_shape(request, shapes, scale)
    try:
        calibrated, proof = at_best_scale(request) if scale is None else at_scale(request, scale)
    except PrivacyUnattainable as error:
        raise PrivacyUnattainable(with_remedies(str(error), request, scale)) from error
    if not allow_wrapping and wraps_too_often(calibrated, cohort):
        message = bits_too_few_message(request, calibrated, scale is not None)
        more = "" if rate is None else f", or raise the rate of {rate:g}"
        raise BitsTooFew(with_remedies(message + more, request, scale))
    finished = Plan.around(
        target, cohort, rounds, calibrated, proof.name, alignment, request.slack, request.adaptive
    )
    if not finished.meets_target():
        raise PrivacyUnattainable(
            f"epsilon = {target.epsilon:g}: the calibrated noise gives {finished.report.epsilon:.6g} "
            f"({finished.report.epsilon_aggregator:.6g} against the aggregator) when checked again; choose "
            "another bound or scale"
        )
    return finished


def _shapes(
    request: PlanRequest, rate: float | None, bits: int | None, keep: float | None
) -> list[UploadShape]:
    """The shapes of an upload to choose from; the central Gaussian's aggregator sees whole vectors."""
    if not request.kind.distributed:
        rate = keep = None
    return upload_shapes(
        rate=rate,
        bits=bits,
        keep=keep,
        dimension=request.length,
        subsets=request.sends_subsets,
        weights=request.dimension,
    )


def _adaptive(clip: str | AdaptiveClip, clip_norm: float) -> AdaptiveClip | None:
    """The adaptive clip that was asked for, None for a fixed one."""
    if isinstance(clip, AdaptiveClip):
        if clip_norm not in (1.0, clip.start):
            raise InvalidInput(
                f"clip_norm = {clip_norm!r}: the adaptive clip starts at {clip.start!r}; leave clip_norm out"
            )
        return clip
    validation.one_of(("fixed", "adaptive"), clip=clip)
    return AdaptiveClip(start=clip_norm) if clip == "adaptive" else None


def account(
    *,
    noise: float,
    delta: float,
    dimension: int,
    cohort: Cohort | Silos,
    clip_norm: float = 1.0,
    clip: str | AdaptiveClip = "fixed",
    rate: float | None = None,
    bits: int | None = None,
    keep: float | None = None,
    clip_slack: float = 0.0,
    rounds: int = 1,
    mechanism: str = "smm",
    scale: float = 64.0,
    bound: str = "tight",
    alignment: float = 1.0,
) -> Plan:
    """Compute the privacy of a given noise: the reverse of `plan`.

    noise: the noise of one participant (λ, σ or trials), on the integer grid.

    clip, bits (8 by default) and keep as in `plan`; in place of keep a rate may be given. clip_slack: by how
    much the clip of a subset exceeds its root mean square, 1 + clip_slack/√coordinates times; 0 when all are
    sent. The target of the returned plan is the ε found.

    Example:

        >>> accounted = account(
        ...     noise=5.95, delta=1e-5, dimension=65_536, scale=64.0, bound="paper", rounds=1_000,
        ...     cohort=Cohort(240, 60_000),
        ... )
        >>> round(accounted.report.epsilon, 4), accounted.report.order
        (2.9988, 5)
    """
    if bits is None and (rate is None or keep is None):
        bits = DEFAULT_BITS
    request = PlanRequest(
        PrivacyTarget(1.0, delta), cohort, rounds, mechanism, dimension, clip_norm,
        DEFAULT_BITS if bits is None else bits, bound, alignment, clip_slack=clip_slack,
        adaptive=_adaptive(clip, clip_norm),
    )  # fmt: skip
    (shape,) = _shapes(request, rate, bits, keep)
    cohort = request.cohort
    request = replace(request, bits=shape.bits, keep=shape.keep)
    validation.positive(scale=scale, noise=noise)
    total = request.kind.total_from_one(noise, cohort.whole_shares)
    if cohort.least_survivors is not None:
        total = noise * float(cohort.encoding_shares(1.0, cohort.uploads))
    first = request.bounds[0]
    given = request.build(first, scale, total)
    left = request.noise_target.delta
    given = given.with_largest_linf(first.epsilon(given, request.schedule, left).order)
    report = privacy_report(
        given,
        bound="tight" if bound == "tight" else first.name,
        cohort=cohort,
        rounds=rounds,
        delta=delta,
    )
    if not math.isfinite(report.epsilon):
        raise PrivacyUnattainable(
            f"noise = {noise:g}: the bound {bound!r} proves nothing for it at any order; add noise, lower "
            "the scale or choose another bound"
        )
    return Plan.around(
        PrivacyTarget(max(report.epsilon, _LEAST_EPSILON), delta),
        cohort,
        rounds,
        given,
        report.bound,
        alignment,
        report.slack,
        request.adaptive,
    )
