"""The plan: the one object that participants and aggregator share."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Self

from skelmix import validation
from skelmix.accounting.prediction import PredictedError
from skelmix.errors import InvalidInput, SkelmixError
from skelmix.mechanisms import Mechanism, mechanism_from_dict
from skelmix.planning.central import central_multiplier
from skelmix.planning.cohort import Cohort
from skelmix.planning.digest import json_digest
from skelmix.planning.guarantee import privacy_report
from skelmix.planning.rate import packed_bytes
from skelmix.planning.report import PrivacyReport
from skelmix.planning.silos import Silos, contributors_from_dict
from skelmix.planning.target import PrivacyTarget
from skelmix.wording import up

FORMAT = 1
_FIELDS = {
    "format", "target", "cohort", "rounds", "alignment", "mechanism", "bound", "slack", "epsilon",
}  # fmt: skip

#: share of wrapping coordinates above which a plan warns
WRAP_WARNING = 0.01


@dataclass(frozen=True)
class Plan:
    """A mechanism ready to use, its privacy report and its predicted error.

    Made by `plan` or `account`. Participants and aggregator must hold the same one: `to_json` and
    `from_json` carry it, and `from_json` proves the claim again instead of believing it.

    Example:

        >>> import skelmix as sk
        >>> plan = sk.plan(
        ...     sk.PrivacyTarget(1.0, 1e-5), dimension=8, bits=12, bound="gdp", cohort=sk.Cohort.everyone(10)
        ... )
        >>> Plan.from_json(plan.to_json()) == plan
        True
    """

    target: PrivacyTarget
    cohort: Cohort | Silos
    rounds: int
    mechanism: Mechanism
    report: PrivacyReport
    predicted: PredictedError
    alignment: float
    slack: float
    central_gaussian_mse: float
    central_gaussian_mse_rdp: float

    def meets_target(self, tolerance: float = 0.0) -> bool:
        """Whether the guarantee is within the target, for observers and, where asked for, the aggregator."""
        limit = self.target.epsilon_aggregator
        enough = limit is None or self.report.epsilon_aggregator <= limit * (1 + tolerance)
        return enough and self.report.epsilon <= self.target.epsilon * (1 + tolerance)

    @property
    def binding_target(self) -> str:
        """Which limit decides the noise: "observers" or "aggregator", whose ε is the larger part of it."""
        limit = self.target.epsilon_aggregator
        if limit is None:
            return "observers"
        used = self.report.epsilon / self.target.epsilon
        return "aggregator" if self.report.epsilon_aggregator / limit > used else "observers"

    @property
    def upload_bytes(self) -> int:
        """Bytes of one participant's masked vector in a round, packed.

        Secure aggregation's keys and shares come on top. To a trusted aggregator a vector goes as float32.
        """
        mechanism = self.mechanism
        if not mechanism.distributed:
            return 4 * mechanism.dimension
        return packed_bytes(mechanism.coordinates, mechanism.bits)

    @property
    def round_bytes(self) -> int:
        """All bytes that one participant uploads in an expected round.

        The vector, and the keys and shares of secure aggregation (honest-but-curious, without signatures). An
        engine's envelope comes on top.
        """
        if not self.mechanism.distributed:
            return self.upload_bytes
        from skelmix.secagg.sizes import protocol_bytes  # clients that only check a plan do without

        uploads, cohort = self.cohort.uploads, self.cohort
        return self.upload_bytes + protocol_bytes(uploads, cohort.min_survivors(uploads), cohort.colluding)

    @property
    def rate(self) -> float:
        """Bits per weight that an upload has."""
        mechanism = self.mechanism
        if not mechanism.distributed:
            return 32.0
        return mechanism.coordinates * mechanism.bits / mechanism.dimension

    @property
    def keep(self) -> float:
        """The fraction of the rotated coordinates that is sent."""
        return self.mechanism.coordinates / self.mechanism.padded_dimension

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know before running this plan."""
        warnings = []
        if not self.mechanism.distributed:
            warnings.append(
                "NOT DISTRIBUTED: a trusted aggregator sees every vector and adds the noise, in floating "
                "point; a reference to compare with"
            )
        if self.predicted.wrap_probability > WRAP_WARNING:
            warnings.append(
                f"{self.predicted.wrap_probability:.1%} of coordinates may wrap around "
                f"2^{self.mechanism.bits}; "
                "use more bits or a smaller scale"
            )
        predicted = self.predicted
        coding = predicted.rounding + predicted.wrap_loss + predicted.bias
        if self.central_gaussian_mse and max(coding, predicted.sketch) > predicted.noise:
            what, remedy = "rounding and wrapping cost", "use more bits"
            if predicted.sketch > coding:
                what = "coordinates that are not sent cost"
                remedy = "raise the rate, or keep, unless errors average out over rounds"
            warnings.append(
                f"the error is {predicted.effective_mse / self.central_gaussian_mse:.3g} times "
                f"the central Gaussian's: {what} more than the noise does; {remedy}"
            )
        if self.target.delta >= 1 / self.cohort.members:
            warnings.append(
                f"δ = {self.target.delta:g} allows revealing one of {self.cohort.members:,} "
                f"{self.cohort.unit}s outright; choose δ well below one over their number"
            )
        if predicted.kept_length < 0.99 and self.mechanism.keep is None:
            warnings.append(
                f"the clip keeps {predicted.kept_length:.1%} of a vector's length: the sum is biased; "
                "use bound='tight', which clips the L2 norm only"
            )
        elif predicted.kept_length < 0.95:
            warnings.append(
                f"the clip of the coordinates sent keeps {predicted.kept_length:.1%} of a vector's length: "
                "the sum is biased; raise the rate, or keep"
            )
        return tuple(warnings)

    def summary(self) -> dict[str, Any]:
        """The plan's numbers, flat: what `skelmix plan --json` prints."""
        mechanism, report = self.mechanism, self.report
        return {
            "epsilon": report.epsilon,
            "delta": report.delta,
            "order": report.order,
            "mu": report.mu,
            "epsilon_aggregator": report.epsilon_aggregator,
            "epsilon_every_round": report.epsilon_every_round,
            "binding_target": self.binding_target,
            "unit": self.cohort.unit,
            "mechanism": mechanism.name,
            "bound": report.bound,
            "scale": mechanism.scale,
            "bits": mechanism.bits,
            "rate": self.rate,
            "keep": self.keep,
            "coordinates": mechanism.coordinates,
            "clip_slack": mechanism.clip_slack,
            "upload_bytes": self.upload_bytes,
            "round_bytes": self.round_bytes,
            "clip_norm": mechanism.clip_norm,
            "dimension": mechanism.dimension,
            "rounds": self.rounds,
            "noise": mechanism.noise,
            "total_noise": mechanism.total_noise,
            "min_survivors": report.min_survivors,
            "sampling": self.cohort.sampling,
            **self.cohort.summary(),
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
        ratio = predicted.effective_mse / self.central_gaussian_mse if self.central_gaussian_mse else math.inf
        bias = f" + bias {predicted.bias:.3g}" if predicted.bias > 1e-3 * predicted.mse else ""
        sketch = f" + coordinates not sent {predicted.sketch:.3g}" if predicted.sketch else ""
        lost = ", counting all that wraps as lost" if predicted.effective_mse > 1.001 * predicted.mse else ""
        return "\n".join(
            [
                str(self.report),
                "",
                *self._targets(),
                f"mechanism   {mechanism.name}: d = {mechanism.dimension:,}, {mechanism.bits} bits per "
                f"coordinate, scale γ = {mechanism.scale:.6g}, "
                f"clip norm {mechanism.clip_norm:g}",
                f"upload      {self._upload()}",
                f"noise       {mechanism.noise:.6g} per participant, {mechanism.total_noise:.6g} in the sum",
                f"cohort      {self.cohort}, at least {self.report.min_survivors:,} survivors",
                f"error       {predicted.mse:.4g} per coordinate of the sum = noise {predicted.noise:.3g} + "
                f"rounding {predicted.rounding:.3g} + "
                f"wrapping {predicted.wrap:.3g}{sketch}{bias}",
                f"            {ratio:.4f} times the central Gaussian's best known "
                f"({self.central_gaussian_mse:.4g}; "
                f"{self.central_gaussian_mse_rdp:.4g} with Rényi accounting){lost}",
                *(f"warning     {warning}" for warning in self.warnings),
            ]
        )  # fmt: skip

    def _targets(self) -> list[str]:
        """Where two limits were asked for: what is reached of each, and which one binds."""
        limit, report = self.target.epsilon_aggregator, self.report
        if limit is None:
            return []
        binds = "the aggregator's" if self.binding_target == "aggregator" else "the observers'"
        return [
            f"targets     ε ≤ {self.target.epsilon:g} for observers (reached: {up(report.epsilon)}), ε ≤ "
            f"{limit:g} for the aggregator (reached: {up(report.epsilon_aggregator)}); {binds} binds"
        ]

    def _upload(self) -> str:
        """What one participant sends in a round, in words."""
        mechanism = self.mechanism
        if mechanism.keep is None or not mechanism.distributed:
            which = f"all {mechanism.coordinates:,} coordinates"
        else:
            which = f"{mechanism.coordinates:,} of {mechanism.padded_dimension:,} coordinates"
        text = f"{self.rate:.3g} bits per weight, {self.upload_bytes:,} bytes: {which}"
        if not mechanism.distributed:
            return text
        return f"{text}; {self.round_bytes:,} bytes with secure aggregation's keys and shares"

    @classmethod
    def around(
        cls,
        target: PrivacyTarget,
        cohort: Cohort | Silos,
        rounds: int,
        mechanism: Mechanism,
        bound: str,
        alignment: float,
        slack: float,
    ) -> Self:
        """The plan around a finished mechanism: its guarantee, proved here, and its predicted error."""
        validation.non_negative(slack=slack)
        shares = cohort.whole_shares if mechanism.distributed else 1
        if mechanism.shares != shares:
            raise InvalidInput(
                f"shares = {mechanism.shares}: the cohort has {shares} noise shares; make the plan anew"
            )
        report = privacy_report(
            mechanism, bound=bound, cohort=cohort, rounds=rounds, delta=target.delta, slack=slack or None
        )
        unit = mechanism.clip_norm**2
        left = PrivacyTarget(target.epsilon, cohort.delta_left_for_noise(target.delta, rounds))
        schedule = cohort.schedule(rounds)
        central, renyi = (central_multiplier(left, schedule, renyi) for renyi in (False, True))
        return cls(
            target=target,
            cohort=cohort,
            rounds=rounds,
            mechanism=mechanism,
            report=report,
            predicted=predicted_error(mechanism, cohort, alignment),
            alignment=alignment,
            slack=slack,
            central_gaussian_mse=unit * central**2,
            central_gaussian_mse_rdp=unit * renyi**2,
        )

    @classmethod
    def for_model(cls, model: Any, target: PrivacyTarget, **options: Any) -> Plan:
        """A plan whose dimension is the number of the model's trainable weights; options are those of `plan`.

        model: has `parameters()`, each with `numel()` and `requires_grad`, as a PyTorch module does.

        Example: `Plan.for_model(model, PrivacyTarget(3.0, 1e-5), cohort=Cohort(240, 60_000), rounds=1_000)`.
        """
        from skelmix.planning.planner import plan

        parameters = getattr(model, "parameters", None)
        if not callable(parameters):
            raise InvalidInput(
                f"model = {type(model).__name__}: has no parameters(); pass a PyTorch module, or call `plan` "
                "with dimension="
            )
        weights = sum(int(value.numel()) for value in parameters() if value.requires_grad)
        return plan(target, dimension=weights, **options)

    def to_json(self) -> str:
        """The plan as text; `Plan.from_json` reads it."""
        return json.dumps(self._choices() | {"epsilon": self.report.epsilon}, sort_keys=True)

    def digest(self) -> str:
        """The name of this plan, 64 hexadecimal digits: equal plans have it in common, and no others.

        It covers all that encoding, noise, threshold and accounting read, the rotation seed included. Report
        and predictions follow from these, so they are left out: a machine whose floating point differs in
        the last place agrees on the plan. Participants compare it before they join a round.
        """
        return json_digest("plan", self._choices())

    def _choices(self) -> dict[str, Any]:
        """What was chosen, as plain data: all else in a plan is computed from it."""
        return {
            "format": FORMAT,
            "target": asdict(self.target),
            "cohort": self.cohort.to_dict(),
            "rounds": self.rounds,
            "alignment": self.alignment,
            "mechanism": self.mechanism.to_dict(),
            "bound": self.report.bound,
            "slack": self.slack,
        }

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
            plan = cls.around(
                PrivacyTarget(**data["target"]),
                contributors_from_dict(data["cohort"]),
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
        if not (plan.report.epsilon <= stated * (1 + 1e-6) and plan.meets_target(1e-6)):
            raise InvalidInput(
                f"the plan states ε = {stated:.6g}, but its mechanism gives {plan.report.epsilon:.6g}: "
                "do not use it, make it anew"
            )
        return plan


def predicted_error(mechanism: Mechanism, cohort: Cohort | Silos, alignment: float) -> PredictedError:
    """The error of an expected round's sum when every vector is as long as the clip allows."""
    return mechanism.predicted_error(cohort.uploads, alignment, vectors=cohort.divisor)
