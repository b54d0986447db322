"""PrivacyTarget + Cohort + dimension + bits -> Plan: the one object that participants and aggregator
share."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from skelmix import validation
from skelmix.accounting.prediction import PredictedError
from skelmix.errors import BitsTooFew, InvalidInput, PrivacyUnattainable, SkelmixError
from skelmix.mechanisms import CentralGaussian, Mechanism, mechanism_from_dict
from skelmix.planning.guarantee import Cohort, PrivacyTarget, claim, slack_budget, spendable
from skelmix.planning.report import PrivacyReport
from skelmix.planning.request import Job, central_multiplier, predicted
from skelmix.planning.search import WRAP_WARNING, at_best_scale, at_scale, refusal, too_wide

__all__ = ["Cohort", "Plan", "PrivacyTarget", "account", "plan"]

FORMAT = 1
_FIELDS = {
    "format", "target", "cohort", "rounds", "alignment", "mechanism", "bound", "slack", "epsilon",
}  # fmt: skip
_LEAST_EPSILON = 1e-6  # a target is positive, even where the claim is zero


@dataclass(frozen=True)
class Plan:
    """A mechanism ready to use, its privacy report and its predicted error.

    Made by `plan` or `account`. Participants and aggregator must hold the same one: `to_json` and
    `from_json` carry it, and `from_json` proves the claim again instead of believing it.

    Example:

        >>> made = plan(
        ...     PrivacyTarget(1.0, 1e-5), dimension=8, bits=12, bound="gdp",
        ...     cohort=Cohort(10, 10, sampling="none"),
        ... )
        >>> Plan.from_json(made.to_json()) == made
        True
    """

    target: PrivacyTarget
    cohort: Cohort
    rounds: int
    mechanism: Mechanism
    report: PrivacyReport
    predicted: PredictedError
    alignment: float
    slack: float
    central_gaussian_mse: float
    central_gaussian_mse_rdp: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know before running this plan."""
        told = []
        if isinstance(self.mechanism, CentralGaussian):
            told.append(
                "NOT DISTRIBUTED: a trusted aggregator sees every vector and adds the noise, in floating "
                "point; a reference to compare with"
            )
        if self.predicted.wrap_probability > WRAP_WARNING:
            told.append(
                f"{self.predicted.wrap_probability:.1%} of coordinates may wrap around "
                f"2^{self.mechanism.bits}; "
                "use more bits or a smaller scale"
            )
        beside = self.predicted.unbiased - self.predicted.noise
        if self.central_gaussian_mse and beside > self.predicted.noise:
            told.append(
                f"the error is {self.predicted.unbiased / self.central_gaussian_mse:.3g} times the central "
                "Gaussian's: rounding and wrapping cost more than the noise does; use more bits"
            )
        if self.target.delta >= 1 / self.cohort.population:
            told.append(
                f"δ = {self.target.delta:g} allows to reveal one of {self.cohort.population:,} participants "
                "outright; take it well below one over their number"
            )
        if self.predicted.kept_length < 0.99:
            told.append(
                f"the clip keeps {self.predicted.kept_length:.1%} of a vector's length: the sum is biased; "
                "use bound='tight', which clips the L2 norm only"
            )
        return tuple(told)

    def summary(self) -> dict[str, Any]:
        """The plan's numbers, flat: what `skelmix plan --json` prints."""
        mechanism, report = self.mechanism, self.report
        return {
            "epsilon": report.epsilon,
            "delta": report.delta,
            "order": report.order,
            "mu": report.mu,
            "epsilon_aggregator": report.epsilon_aggregator,
            "mechanism": mechanism.name,
            "bound": report.bound,
            "scale": mechanism.scale,
            "bits": mechanism.bits,
            "clip_norm": mechanism.clip_norm,
            "dimension": mechanism.dimension,
            "rounds": self.rounds,
            "noise": mechanism.noise,
            "total_noise": mechanism.total_noise,
            "min_survivors": report.min_survivors,
            "sampling": self.cohort.sampling,
            "cohort": self.cohort.expected,
            "population": self.cohort.population,
            "dropout_tolerance": self.cohort.dropout_tolerance,
            "colluding": self.cohort.colluding,
            "modelled": report.modelled,
            "warnings": list(self.warnings),
            "predicted": self.predicted.to_dict(),
            "central_gaussian_mse": self.central_gaussian_mse,
            "central_gaussian_mse_rdp": self.central_gaussian_mse_rdp,
        }

    def __str__(self) -> str:
        mechanism, predicted = self.mechanism, self.predicted
        ratio = predicted.unbiased / self.central_gaussian_mse if self.central_gaussian_mse else math.inf
        bias = f" + bias {predicted.bias:.3g}" if predicted.bias > 1e-3 * predicted.mse else ""
        lost = ", counting all that wraps as lost" if predicted.unbiased > 1.001 * predicted.mse else ""
        return "\n".join(
            [
                self.report.card(),
                "",
                f"mechanism   {mechanism.name}: d = {mechanism.dimension:,}, {mechanism.bits} bits a "
                f"coordinate, scale γ = {mechanism.scale:.6g}, "
                f"clip norm {mechanism.clip_norm:g}",
                f"noise       {mechanism.noise:.6g} a participant, {mechanism.total_noise:.6g} in the sum",
                f"cohort      {self.cohort.expected:,} of {self.cohort.population:,} "
                f"({self.cohort.sampling}), "
                f"at least {self.report.min_survivors:,} survivors",
                f"error       {predicted.mse:.4g} a coordinate of the sum = noise {predicted.noise:.3g} + "
                f"rounding {predicted.rounding:.3g} + "
                f"wrapping {predicted.wrap:.3g}{bias}",
                f"            {ratio:.4f} times the central Gaussian's best known "
                f"({self.central_gaussian_mse:.4g}; "
                f"{self.central_gaussian_mse_rdp:.4g} with Rényi accounting){lost}",
                *(f"warning     {warning}" for warning in self.warnings),
            ]
        )  # fmt: skip

    def to_json(self) -> str:
        """The plan as text; `Plan.from_json` reads it."""
        return json.dumps(
            {
                "format": FORMAT,
                "target": asdict(self.target),
                "cohort": asdict(self.cohort),
                "rounds": self.rounds,
                "alignment": self.alignment,
                "mechanism": self.mechanism.to_dict(),
                "bound": self.report.bound,
                "slack": self.slack,
                "epsilon": self.report.epsilon,
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """Read a plan and prove its claim again.

        Raises `InvalidInput` for anything that is not a plan of this format, and for one whose stated ε is
        below what its mechanism gives: a plan is never believed.
        """
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data.get("format") != FORMAT:
                raise InvalidInput(
                    f"this is not a skelmix plan of format {FORMAT}; make it with this version of skelmix"
                )
            if odd := data.keys() - _FIELDS:
                raise InvalidInput(f"a plan has no {', '.join(sorted(odd))}; make it anew")
            found = _finish(
                PrivacyTarget(**data["target"]),
                Cohort(**data["cohort"]),
                data["rounds"],
                mechanism_from_dict(data["mechanism"]),
                data["bound"],
                data["alignment"],
                data["slack"],
            )
            stated = float(data["epsilon"])
        except SkelmixError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError, MemoryError) as error:
            raise InvalidInput(
                f"this is not a skelmix plan ({type(error).__name__}: {error}); make it anew"
            ) from error
        if not found.report.epsilon <= min(stated, found.target.epsilon) * (1 + 1e-6):
            raise InvalidInput(
                f"the plan states ε = {stated:.6g}, but its mechanism gives {found.report.epsilon:.6g}: "
                "do not use it, make it anew"
            )
        return found


def plan(
    target: PrivacyTarget,
    *,
    dimension: int,
    cohort: Cohort,
    clip_norm: float = 1.0,
    bits: int = 8,
    rounds: int = 1,
    mechanism: str | None = None,
    scale: float | None = None,
    bound: str = "tight",
    alignment: float = 1.0,
    allow_wrapping: bool = False,
) -> Plan:
    """The least noise, and the best scale for the bits, with which `rounds` rounds meet the target.

    mechanism: "smm" (the default), "dgm", "skellam", "ddg", "cpsgd" or "gaussian". scale: γ; without it the
    one with the least predicted error is found. bound: "tight" (the best certified bound), or "rdp", "gdp",
    "flat", "paper". alignment: mean cosine between participants' vectors, from which the length of the sum
    and so the risk of wrapping is predicted; 1, everyone alike, is safe for any data.

    Raises `InvalidInput` for bad arguments, `PrivacyUnattainable` when no noise meets the target and
    `BitsTooFew` when the bits cannot carry it, unless allow_wrapping.

    Example:

        >>> made = plan(
        ...     PrivacyTarget(1.0, 1e-5), dimension=8, bits=12, bound="gdp",
        ...     cohort=Cohort(10, 10, sampling="none"),
        ... )
        >>> made.report.epsilon <= 1.0, made.mechanism.name
        (True, 'smm')
    """
    job = Job(target, cohort, rounds, mechanism or "smm", dimension, clip_norm, bits, bound, alignment)
    if scale is not None:
        validation.positive(scale=scale)
    made, by = at_best_scale(job) if scale is None else at_scale(job, scale)
    if not allow_wrapping and too_wide(made, cohort):
        raise BitsTooFew(refusal(job, made, scale is not None))
    chosen = _finish(target, cohort, rounds, made, by, alignment, slack_budget(job.left, cohort, rounds))
    if not chosen.report.epsilon <= target.epsilon:
        raise PrivacyUnattainable(
            f"epsilon = {target.epsilon:g}: the calibrated noise gives {chosen.report.epsilon:.6g} when "
            "checked again; choose another bound or scale"
        )
    return chosen


def account(
    *,
    noise: float,
    delta: float,
    dimension: int,
    cohort: Cohort,
    clip_norm: float = 1.0,
    bits: int = 8,
    rounds: int = 1,
    mechanism: str = "smm",
    scale: float = 64.0,
    bound: str = "tight",
    alignment: float = 1.0,
) -> Plan:
    """The reverse of `plan`: the noise of one participant is given (λ, σ or trials, on the integer grid), ε
    is asked.

    The target of the returned plan is the ε found.

    Example:

        >>> found = account(
        ...     noise=5.95, delta=1e-5, dimension=65_536, scale=64.0, bound="paper", rounds=1_000,
        ...     cohort=Cohort(240, 60_000),
        ... )
        >>> round(found.report.epsilon, 4), found.report.order
        (2.9988, 5)
    """
    job = Job(
        PrivacyTarget(1.0, delta), cohort, rounds, mechanism, dimension, clip_norm, bits, bound, alignment
    )
    validation.positive(scale=scale, noise=noise)
    each = noise if mechanism in ("smm", "skellam", "cpsgd") else noise**2
    total = each if mechanism == "gaussian" else each * cohort.whole_shares
    one = job.bounds[0]
    built = job.widened(job.build(one, scale, total), one)
    report = claim(
        built, bound="tight" if bound == "tight" else one, cohort=cohort, rounds=rounds, delta=delta
    )
    if not math.isfinite(report.epsilon):
        raise PrivacyUnattainable(
            f"noise = {noise:g}: the bound {bound!r} proves nothing for it at any order; add noise, lower "
            "the scale or choose another bound"
        )
    return _finish(
        PrivacyTarget(max(report.epsilon, _LEAST_EPSILON), delta),
        cohort,
        rounds,
        built,
        report.bound,
        alignment,
        report.slack,
    )


def _finish(
    target: PrivacyTarget,
    cohort: Cohort,
    rounds: int,
    mechanism: Mechanism,
    bound: str,
    alignment: float,
    slack: float,
) -> Plan:
    """The plan around a finished mechanism: its claim, proved here, and its predicted error."""
    validation.non_negative(slack=slack)
    shares = 1 if isinstance(mechanism, CentralGaussian) else cohort.whole_shares
    if mechanism.shares != shares:
        raise InvalidInput(
            f"shares = {mechanism.shares}: the cohort has {shares} noise shares; make the plan anew"
        )
    report = claim(
        mechanism, bound=bound, cohort=cohort, rounds=rounds, delta=target.delta, slack=slack or None
    )
    unit = mechanism.clip_norm**2
    left = PrivacyTarget(target.epsilon, spendable(target.delta, cohort, rounds))
    central, renyi = (central_multiplier(left, cohort, rounds, renyi) for renyi in (False, True))
    return Plan(
        target=target,
        cohort=cohort,
        rounds=rounds,
        mechanism=mechanism,
        report=report,
        predicted=predicted(mechanism, cohort, alignment),
        alignment=alignment,
        slack=slack,
        central_gaussian_mse=unit * central**2,
        central_gaussian_mse_rdp=unit * renyi**2,
    )
