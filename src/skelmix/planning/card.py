"""A plan in words and figures: its card, its warnings, and its numbers as one flat record."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from skelmix.display import Fact, Section, card_text
from skelmix.planning.failing import failing_warning
from skelmix.wording import counted, figure, up

if TYPE_CHECKING:
    from skelmix.planning.plans import Plan

#: share of wrapping coordinates above which a plan warns
WRAP_WARNING = 0.01


def plan_warnings(plan: Plan) -> tuple[str, ...]:
    """What a user should know before running this plan."""
    warnings = []
    if not plan.mechanism.distributed:
        warnings.append(
            "NOT DISTRIBUTED: a trusted aggregator sees every vector and adds the noise, in floating "
            "point; a reference to compare with"
        )
    if plan.predicted.wrap_probability > WRAP_WARNING:
        warnings.append(
            f"{plan.predicted.wrap_probability:.1%} of coordinates may wrap around "
            f"2^{plan.mechanism.bits}; "
            "use more bits or a smaller scale"
        )
    predicted = plan.predicted
    coding = predicted.rounding + predicted.wrap_loss + predicted.bias
    if plan.central_gaussian_mse and max(coding, predicted.sketch) > predicted.noise:
        what, remedy = "rounding and wrapping cost", "use more bits"
        if predicted.sketch > coding:
            what = "coordinates that are not sent cost"
            remedy = "raise the rate, or keep, unless errors average out over rounds"
        warnings.append(
            f"the error is {figure(predicted.effective_mse / plan.central_gaussian_mse)} times "
            f"the central Gaussian's: {what} more than the noise does; {remedy}"
        )
    if plan.target.delta >= 1 / plan.cohort.members:
        warnings.append(
            f"δ = {plan.target.delta:g} allows revealing one of {plan.cohort.members:,} "
            f"{plan.cohort.unit}s outright; choose δ well below one over their number"
        )
    if predicted.kept_length < 0.99 and plan.mechanism.keep is None:
        warnings.append(
            f"the clip keeps {predicted.kept_length:.1%} of a vector's length: the sum is biased; "
            "use bound='tight', which clips the L2 norm only"
        )
    elif predicted.kept_length < 0.95:
        warnings.append(
            f"the clip of the coordinates sent keeps {predicted.kept_length:.1%} of a vector's length: "
            "the sum is biased; raise the rate, or keep"
        )
    if failing := failing_warning(plan.cohort, plan.cohort.dropout_rate):
        warnings.append(failing)
    return tuple(warnings)


def plan_summary(plan: Plan) -> dict[str, Any]:
    """The plan's numbers as one flat record: what `skelmix plan --json` prints."""
    mechanism, report, renyi = plan.mechanism, plan.report, plan.central_gaussian_mse_rdp
    return {
        "epsilon": report.epsilon,
        "delta": report.delta,
        "order": report.order,
        "mu": report.mu,
        "epsilon_aggregator": report.epsilon_aggregator,
        "epsilon_every_round": report.epsilon_every_round,
        "binding_target": plan.binding_target,
        "unit": plan.cohort.unit,
        "mechanism": mechanism.name,
        "bound": report.bound,
        "scale": mechanism.scale,
        "bits": mechanism.bits,
        "rate": plan.rate,
        "keep": plan.keep,
        "coordinates": mechanism.coordinates,
        "clip_slack": mechanism.clip_slack,
        "upload_bytes": plan.upload_bytes,
        "round_bytes": plan.round_bytes,
        "clip_norm": plan.first_clip_norm,
        "adaptive_clip": None if plan.adaptive_clip is None else asdict(plan.adaptive_clip),
        "dimension": plan.dimension,
        "rounds": plan.rounds,
        "noise": plan.noise_of_one,
        "total_noise": mechanism.total_noise,
        "noise_in_sum": plan.noise_in_sum,
        "min_survivors": report.min_survivors,
        "sampling": plan.cohort.sampling,
        **plan.cohort.summary(),
        "dropout_tolerance": plan.cohort.dropout_tolerance,
        "dropout_rate": plan.cohort.dropout_rate,
        "least_survivors": plan.cohort.least_survivors,
        "failing_rounds": plan.failing_rounds,
        "opening_delta": report.opening_delta,
        "colluding": plan.cohort.colluding,
        "modelled": report.modelled,
        "warnings": list(plan.warnings),
        "predicted": plan.predicted.to_dict(),
        "central_gaussian_mse": plan.central_gaussian_mse,
        "central_gaussian_mse_rdp": renyi if math.isfinite(renyi) else None,
    }


def plan_text(plan: Plan, mean_of: int | None = None) -> str:
    """The card of a plan: its guarantee, what it costs, what it rests on and what it leaves out."""
    return card_text(plan.report.headline, plan_sections(plan, mean_of))


def plan_sections(plan: Plan, mean_of: int | None = None) -> tuple[Section, ...]:
    """All facts of a plan under their titles; the last title has what is not covered.

    mean_of: the sum is divided by this number, and the error is that of the mean.
    """
    guarantee, *rest = plan.report.sections
    return (guarantee, Section("What it takes", _costs(plan, mean_of)), *rest)


def relative_error(plan: Plan) -> float:
    """The predicted error of the sum, as a multiple of the central Gaussian's."""
    central = plan.central_gaussian_mse
    return plan.predicted.effective_mse / central if central else math.inf


def _costs(plan: Plan, mean_of: int | None) -> tuple[Fact, ...]:
    """Upload, noise and error; warnings last."""
    mechanism, predicted = plan.mechanism, plan.predicted
    bias = f" + bias {figure(predicted.bias)}" if predicted.bias > 1e-3 * predicted.mse else ""
    sketch = f" + coordinates not sent {figure(predicted.sketch)}" if predicted.sketch else ""
    lost = "; coordinates that wrap count as lost" if predicted.effective_mse > 1.001 * predicted.mse else ""
    wraps = f" + wrapping {figure(predicted.wrap)}" if abs(predicted.wrap) > 1e-3 * predicted.mse else ""
    return (
        *_targets(plan),
        Fact(
            "error",
            f"± {figure(predicted.deviation / (mean_of or 1))} per coordinate of the "
            f"{'mean' if mean_of else 'sum'}{_unit(plan)}",
            "one standard deviation",
        ),
        Fact(
            "squared error",
            f"{figure(relative_error(plan))} times the central Gaussian's",
            f"best known{lost}",
        ),
        Fact(
            "it consists of",
            ("for the sum, " if mean_of else "")
            + f"{figure(predicted.mse)} = noise {figure(predicted.noise)} + rounding "
            f"{figure(predicted.rounding)}{wraps}{sketch}{bias}",
            f"central Gaussian: {figure(plan.central_gaussian_mse)}{_by_renyi(plan)}",
        ),
        Fact("upload", *_upload(plan)),
        Fact("cohort", f"{plan.cohort}; {_survivors(plan)}"),
        Fact("mechanism", f"{mechanism.name}: d = {plan.dimension:,}, {_grid(plan)}{_clip(plan)}"),
        Fact("noise", _noise(plan)),
        *(Fact("warning", warning, alarm=True) for warning in plan.warnings),
    )


def _by_renyi(plan: Plan) -> str:
    mse = plan.central_gaussian_mse_rdp
    return f", or {figure(mse)} with Rényi accounting" if math.isfinite(mse) else ""


def _grid(plan: Plan) -> str:
    """The integers that are sent, in words; the central reference sends floating-point numbers."""
    mechanism = plan.mechanism
    if not mechanism.distributed:
        return ""
    return f"{counted(mechanism.bits, 'bit')} per coordinate, scale γ = {figure(mechanism.scale)}, "


def _noise(plan: Plan) -> str:
    """The noise of one participant, or of one silo, and of the sum, in words."""
    mechanism, total = plan.mechanism, plan.noise_in_sum
    if not mechanism.distributed:
        return f"{figure(plan.noise_of_one)}, one standard deviation, added to the sum by the aggregator"
    who = "participant" if plan.cohort.unit == "participant" else "silo"
    if mechanism.noise_is_deviation:
        return f"σ = {figure(plan.noise_of_one)} per {who}, variance {figure(total)} in the sum"
    text = f"{figure(plan.noise_of_one)} per {who}, {figure(total)} in the sum"
    if plan.cohort.least_survivors is not None:
        text += " whoever drops out" if plan.cohort.dropout_tolerance else " whatever the cohort's size"
    accounted = f": {figure(mechanism.total_noise)} is accounted for"
    return text if total <= mechanism.total_noise else text + accounted


def _targets(plan: Plan) -> tuple[Fact, ...]:
    """With two limits: the ε reached for each, and which limit decides."""
    limit, report = plan.target.epsilon_aggregator, plan.report
    if limit is None:
        return ()
    binds = "the aggregator's" if plan.binding_target == "aggregator" else "the observers'"
    return (
        Fact(
            "targets",
            f"ε ≤ {plan.target.epsilon:g} for observers (reached: {up(report.epsilon)}), ε ≤ {limit:g} for "
            f"the aggregator (reached: {up(report.epsilon_aggregator)}); {binds} binds",
        ),
    )


def _clip(plan: Plan) -> str:
    """The clip norm, in words."""
    clip = plan.adaptive_clip
    if clip is None:
        return f"clip norm {plan.mechanism.clip_norm:,g}"
    return f"clip norm adaptive: from {clip.start:g} towards the {clip.quantile:g} quantile of the norms"


def _unit(plan: Plan) -> str:
    """The unit of the error, where it differs from that of the vectors."""
    return "" if plan.adaptive_clip is None else ", in units of the clip norm"


def _bits_of(plan: Plan) -> str:
    """The word after the printed rate: "bit" after 1, else "bits"."""
    return "bit" if f"{plan.rate:.3g}" == "1" else "bits"


def _survivors(plan: Plan) -> str:
    """How many must survive; where cohort sizes are random, in a cohort of the expected size."""
    report, roster, uploads = plan.report, plan.cohort.roster, plan.cohort.uploads
    silos = " silos" if plan.cohort.unit != "participant" else ""
    number = "all" if report.min_survivors >= uploads else f"at least {report.min_survivors:,}"
    varies = roster.sampling == "poisson" and roster.sampled
    return f"{f'if {uploads:,} are drawn, ' if varies else ''}{number}{silos} must survive"


def _upload(plan: Plan) -> tuple[str, str]:
    """What one participant sends in a round: coordinates, bits and bytes."""
    mechanism = plan.mechanism
    if mechanism.keep is None or not mechanism.distributed:
        count = mechanism.coordinates
        which = "its only coordinate" if count == 1 else f"all {count:,} coordinates"
    else:
        which = f"{mechanism.coordinates:,} of {mechanism.padded_dimension:,} coordinates"
    text = f"{plan.rate:.3g} {_bits_of(plan)} per weight, {plan.upload_bytes:,} bytes"
    if not mechanism.distributed:
        return text, which
    return text, f"{which}; {plan.round_bytes:,} bytes with secure aggregation's keys and shares"
