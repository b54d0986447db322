"""PrivacyTarget + Cohort + dimension + bits -> Plan: the one object that participants and aggregator
share."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from skelmix import validation
from skelmix.accounting import calibration, closed_form, gaussian_dp
from skelmix.accounting.prediction import PredictedError, predict
from skelmix.accounting.report import PrivacyReport
from skelmix.claim import (
    LARGEST_CERTIFIED,
    Cohort,
    PrivacyTarget,
    claim,
    least_noise,
    rdp_epsilon,
    slack_budget,
    usable_bounds,
)
from skelmix.encoding.rotation import padded
from skelmix.errors import BitsTooFew, InvalidInput, PrivacyUnattainable, SkelmixError
from skelmix.mechanisms import (
    Binomial,
    CentralGaussian,
    DiscreteGaussian,
    FlatClip,
    GaussianMixture,
    L2Clip,
    Mechanism,
    MixtureClip,
    Skellam,
    SkellamMixture,
    mechanism_from_dict,
)
from skelmix.noise.entropy import system_entropy

__all__ = ["Cohort", "Plan", "PrivacyTarget", "account", "plan"]

FORMAT = 1

#: L-infinity clip of the flat certificate, in standard deviations of a rotated coordinate
FLAT_DEVIATIONS = 5.0

#: share of wrapping coordinates above which a plan warns
WRAP_WARNING = 0.01

_NARROWEST = 1e-4
"""Of the scales looked at, against the widest."""

_LOST = 1e100
"""Error where the modulus takes more than the noise does."""

_KINDS: dict[str, type[Mechanism]] = {
    "smm": SkellamMixture,
    "dgm": GaussianMixture,
    "skellam": Skellam,
    "ddg": DiscreteGaussian,
    "cpsgd": Binomial,
    "gaussian": CentralGaussian,
}
_BOUNDS = {
    "smm": ("flat", "gdp", "rdp", "paper"),
    "dgm": ("flat", "gdp", "rdp", "paper"),
    "skellam": ("gdp", "paper"),  # tight takes its Gaussian certificate
    "ddg": ("paper",),
    "cpsgd": ("composition",),
    "gaussian": ("pld", "rdp"),
}


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
                "point; "
                "a reference to compare with"
            )
        if self.predicted.wrap_probability > WRAP_WARNING:
            told.append(
                f"{self.predicted.wrap_probability:.1%} of coordinates may wrap around "
                f"2^{self.mechanism.bits}; "
                "use more bits or a smaller scale"
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
    name = mechanism or "smm"
    _check(name, bound, dimension, clip_norm, bits, rounds, scale, alignment)
    central = _central_multiplier(target.epsilon, target.delta, cohort, rounds, bound in ("rdp", "paper"))
    names = _bounds(name, bound, cohort, target.delta)
    common = _Settings(
        name, dimension, clip_norm, bits, cohort, rounds, target, alignment, system_entropy().bytes(32)
    )
    if scale is None:
        chosen = _at_best_scale(common, names, central)
    else:
        chosen = _at_scale(common, names, scale, central)
    if not allow_wrapping and _too_wide(chosen):
        raise BitsTooFew(_refusal(chosen, common, names, central, scale is not None))
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
    _check(mechanism, bound, dimension, clip_norm, bits, rounds, scale, alignment)
    validation.positive(noise=noise)
    shares = cohort.whole_shares
    each = noise if mechanism in ("smm", "skellam", "cpsgd") else noise**2
    total = each if mechanism == "gaussian" else each * shares
    one = _bounds(mechanism, bound, cohort, delta)[0]
    common = _Settings(
        mechanism,
        dimension,
        clip_norm,
        bits,
        cohort,
        rounds,
        PrivacyTarget(1.0, delta),
        alignment,
        system_entropy().bytes(32),
    )
    built = _widened(common, _build(common, one, scale, total), one)
    report = claim(
        built, bound="tight" if bound == "tight" else one, cohort=cohort, rounds=rounds, delta=delta
    )
    if not math.isfinite(report.epsilon):
        raise PrivacyUnattainable(
            f"noise = {noise:g}: the bound {bound!r} proves nothing for it at any order; add noise, lower "
            "the scale or choose another bound"
        )
    return _finish(
        PrivacyTarget(report.epsilon, delta), cohort, rounds, built, report.bound, alignment, report.slack
    )


@dataclass(frozen=True)
class _Settings:
    """What stays the same while scale and noise are looked for."""

    name: str
    dimension: int
    clip_norm: float
    bits: int
    cohort: Cohort
    rounds: int
    target: PrivacyTarget
    alignment: float
    rotation_seed: bytes


def _check(
    name: str,
    bound: str,
    dimension: int,
    clip_norm: float,
    bits: int,
    rounds: int,
    scale: float | None,
    alignment: float,
) -> None:
    validation.one_of(tuple(_KINDS), mechanism=name)
    validation.one_of(("tight", "rdp", "gdp", "flat", "paper"), bound=bound)
    validation.whole(1, 2**26, dimension=dimension)
    validation.positive(clip_norm=clip_norm)
    validation.bits(bits)
    validation.whole(1, rounds=rounds)
    if scale is not None:
        validation.positive(scale=scale)
    validation.non_negative(alignment=alignment)
    if alignment > 1:
        raise InvalidInput(
            f"alignment = {alignment!r}: must be in [0, 1]; it is the mean cosine between participants' "
            "vectors"
        )


def _bounds(name: str, bound: str, cohort: Cohort, delta: float) -> tuple[str, ...]:
    """The bounds to try, the likely best first. A baseline has the literature's own under any such name."""
    known = _BOUNDS[name]
    if bound == "tight":
        # the paper's own bound goes with the paper's own clip: not a rival of the others
        certified = tuple(one for one in known if one != "paper" or name not in ("smm", "dgm"))
        return usable_bounds(certified, cohort, delta)
    if bound in known:
        return (bound,)
    if bound in ("paper", "rdp"):
        return known[-1:]
    raise InvalidInput(f"bound = {bound!r}: {name} has {', '.join(known)}; take one of them or 'tight'")


def _build(common: _Settings, bound: str, scale: float, total_noise: float) -> Mechanism:
    shares = common.cohort.whole_shares
    fields: dict[str, Any] = {
        "dimension": common.dimension,
        "bits": common.bits,
        "scale": 1.0 if common.name == "gaussian" else scale,
        "clip_norm": common.clip_norm,
        "total_noise": total_noise,
        "shares": 1 if common.name == "gaussian" else shares,
        "rotation_seed": common.rotation_seed,
    }
    if common.name in ("smm", "dgm"):
        flat = FLAT_DEVIATIONS * scale * common.clip_norm / math.sqrt(padded(common.dimension))
        fields["clip"] = {"paper": MixtureClip(linf=1), "flat": FlatClip(flat)}.get(bound, L2Clip())
    return _KINDS[common.name](**fields)


def _widened(common: _Settings, mechanism: Mechanism, bound: str) -> Mechanism:
    """The paper's clip with the largest integer Δ∞ that its conditions allow at the order used (Eq. 3, Eq.
    8)."""
    if not isinstance(mechanism, SkellamMixture | GaussianMixture) or bound != "paper":
        return mechanism
    order = claim(
        mechanism, bound="paper", cohort=common.cohort, rounds=common.rounds, delta=common.target.delta
    ).order
    return (
        mechanism
        if order is None
        else replace(mechanism, clip=MixtureClip(linf=mechanism.largest_linf(order)))
    )


def _calibrated(
    common: _Settings, bound: str, scale: float, central: float, below: float
) -> Mechanism | None:
    """The mechanism with the least noise under this bound; None when it is not below `below`."""
    total = least_noise(
        lambda noise: _build(common, bound, scale, noise),
        bound=bound,
        cohort=common.cohort,
        rounds=common.rounds,
        target=common.target,
        multiplier=central,
        below=below,
    )
    return None if total is None else _widened(common, _build(common, bound, scale, total), bound)


def _at_best_scale(common: _Settings, names: tuple[str, ...], central: float) -> Plan:
    """The plan at the scale with the least predicted error; at the narrowest, where wrapping is rarest, if
    none is any good."""
    guess = _best_scale(common, names[0], lambda one: one.noise_for_multiplier(central), central)
    if guess is not None:
        try:
            chosen = _at_scale(common, names, guess, central)
        except PrivacyUnattainable:
            pass
        else:
            if not _too_wide(chosen):
                return chosen
    # the bound asks for more noise than a Gaussian of the same χ²: look again, with what it does ask for
    own = _best_scale(common, names[-1], _own_noise(common, names[-1], central), central)
    return _at_scale(common, names, own or _NARROWEST * _widest(common, central), central)


def _at_scale(common: _Settings, names: tuple[str, ...], scale: float, central: float) -> Plan:
    """The plan with the least noise of all these bounds, at this scale."""
    target, cohort, rounds = common.target, common.cohort, common.rounds
    best: tuple[Mechanism, str] | None = None
    reason: Exception | None = None
    for one in names:
        try:
            found = _calibrated(common, one, scale, central, best[0].total_noise if best else math.inf)
        except PrivacyUnattainable as error:
            reason = reason or error
        else:
            best = (found, one) if found else best
    if best is None:
        raise PrivacyUnattainable(str(reason)) from reason
    chosen = _finish(target, cohort, rounds, *best, common.alignment, slack_budget(target, cohort, rounds))
    if chosen.report.epsilon > target.epsilon:
        raise PrivacyUnattainable(
            f"epsilon = {target.epsilon:g}: the calibrated noise gives {chosen.report.epsilon:.6g} when "
            "checked again; "
            "choose another bound or scale"
        )
    return chosen


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
    return Plan(
        target=target,
        cohort=cohort,
        rounds=rounds,
        mechanism=mechanism,
        report=report,
        predicted=_predicted(mechanism, cohort, alignment),
        alignment=alignment,
        slack=slack,
        central_gaussian_mse=unit
        * _central_multiplier(target.epsilon, target.delta, cohort, rounds, False) ** 2,
        central_gaussian_mse_rdp=unit
        * _central_multiplier(target.epsilon, target.delta, cohort, rounds, True) ** 2,
    )


def _predicted(mechanism: Mechanism, cohort: Cohort, alignment: float) -> PredictedError:
    if isinstance(mechanism, CentralGaussian):
        return PredictedError(noise=mechanism.total_noise, rounding=0.0, wrap=0.0)
    clip = getattr(mechanism, "clip", None)
    return predict(
        noise_variance=mechanism.noise_variance(cohort.expected),
        participants=cohort.expected,
        norm=mechanism.clip_norm,
        scale=mechanism.scale,
        dimension=mechanism.padded_dimension,
        bits=mechanism.bits,
        alignment=alignment,
        shrink_to=(mechanism.scale * mechanism.clip_norm) ** 2 if isinstance(clip, MixtureClip) else None,
        linf=clip.linf if isinstance(clip, MixtureClip | FlatClip) else math.inf,
    )


def _widest(common: _Settings, central: float) -> float:
    """The largest γ worth a look: wider than the modulus is of no use, nor more levels than a sampler's table
    holds."""
    most_variance = min(1e8 * common.cohort.whole_shares, 1e11)
    return min(2.0**common.bits / 2, math.sqrt(most_variance)) / (central * common.clip_norm)


def _best_scale(
    common: _Settings, bound: str, noise_for: Callable[[Mechanism], float], central: float
) -> float | None:
    """The γ with the least predicted error, to three digits; None where wrapping takes more than the noise at
    every γ. Privacy is calibrated afterwards, at the γ found.

    noise_for: about the total noise that a mechanism needs; that of a Gaussian with the same χ² (exact in the
    limit of many coordinates) needs no certificate while searching.
    """
    if common.name == "gaussian":
        return 1.0
    from scipy.optimize import minimize_scalar  # loads slowly: clients that only check a plan do without

    def error(log_scale: float) -> float:
        mechanism = _build(common, bound, math.exp(log_scale), 1.0)
        noise = noise_for(mechanism)
        if not noise < math.inf:
            return _LOST
        predicted = _predicted(replace(mechanism, total_noise=noise), common.cohort, common.alignment)
        # where wrapping rules, a larger scale looks better only because the sum is lost anyway
        return predicted.unbiased if predicted.lost <= predicted.noise + predicted.rounding else _LOST

    grid = math.log(_widest(common, central)) + np.linspace(math.log(_NARROWEST), 0.0, 24)
    errors = [error(point) for point in grid]
    middle = int(np.argmin(errors))
    if errors[middle] == _LOST:
        return None
    around = (grid[max(0, middle - 1)], grid[min(len(grid) - 1, middle + 1)])
    best = minimize_scalar(error, bounds=around, method="bounded", options={"xatol": 1e-3, "maxiter": 25})
    return float(f"{math.exp(best.x if best.fun < errors[middle] else grid[middle]):.3g}")


def _own_noise(common: _Settings, bound: str, central: float) -> Callable[[Mechanism], float]:
    """What the bound itself asks for. A theorem of the literature: calibrated at a few scales, interpolated
    between them. A certificate: about the noise of a Skellam mixture, at shares of any size."""
    if bound not in ("paper", "composition"):
        skellam, times = replace(common, name="smm"), 1 if common.name == "smm" else 2

        def like_skellam(mechanism: Mechanism) -> float:
            return times * _build(skellam, bound, mechanism.scale, 1.0).noise_for_multiplier(central)

        return like_skellam
    points = math.log(_widest(common, central)) + np.linspace(math.log(_NARROWEST), 0.0, 8)

    def calibrated(log_scale: float) -> float:
        try:
            found = _calibrated(common, bound, math.exp(log_scale), central, math.inf)
        except PrivacyUnattainable:
            return math.inf
        return math.log(found.total_noise) if found else math.inf

    logs = np.array([calibrated(point) for point in points])

    def noise_for(mechanism: Mechanism) -> float:
        with np.errstate(invalid="ignore"):  # between no bound and none
            return float(np.exp(np.interp(math.log(mechanism.scale), points, logs)))

    return noise_for


def _too_wide(chosen: Plan) -> bool:
    """Whether noise alone wraps so often that the modulus does more harm than the noise."""
    bare = _predicted(chosen.mechanism, chosen.cohort, 0.0)
    return bare.lost > bare.noise + bare.rounding


def _refusal(
    chosen: Plan, common: _Settings, names: tuple[str, ...], central: float, scale_given: bool
) -> str:
    """Why the bits do not do, and remedies that were tried: more bits, or another scale if one was given."""
    mechanism, bits = chosen.mechanism, common.bits
    share = _predicted(mechanism, chosen.cohort, 0.0).wrap_probability

    def carries(wider: int) -> bool:
        return _predicted(replace(mechanism, bits=wider), chosen.cohort, 0.0).wrap_probability < WRAP_WARNING

    def works(wider: int) -> Plan | None:
        try:
            found = _at_best_scale(replace(common, bits=wider), names, central)
        except PrivacyUnattainable:
            return None
        return None if _too_wide(found) else found

    # at a given scale the noise stays; at the best one it changes with the bits
    enough = (wider for wider in range(bits + 1, 33) if carries(wider) and (scale_given or works(wider)))
    need = next(enough, None)
    remedy = f"use bits = {need}" if need else "no width up to 32 bits carries it"
    if scale_given and (other := works(bits)):
        remedy += f", or scale = {other.mechanism.scale:g}"
    return (
        f"bits = {bits}: {share:.0%} of coordinates would wrap around 2^{bits} at scale "
        f"γ = {mechanism.scale:.3g} by the noise alone; {remedy}"
    )


@lru_cache(maxsize=256)
def _central_multiplier(epsilon: float, delta: float, cohort: Cohort, rounds: int, renyi: bool) -> float:
    """Noise multiplier of the central Gaussian for the target: by Rényi accounting, or by privacy-loss
    distributions."""
    if not renyi and cohort.sampling != "fixed" and epsilon <= LARGEST_CERTIFIED:
        return 1 / gaussian_dp.largest_mu(epsilon, delta, rounds, cohort.sampling_probability)
    return calibration.least_noise(
        lambda multiplier: rdp_epsilon(closed_form.gaussian(multiplier**2, 1.0), cohort, rounds, delta)[0],
        epsilon,
        1e-3,
        1e9,
        guess=1.0,
    )


class _CallableModule(ModuleType):
    """`skelmix.plan` is a function and a module of the same name; importing the module must not hide the
    function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Plan:
        return plan(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
