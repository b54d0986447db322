"""The plan: the one object that participants and aggregator share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from skelmix import validation
from skelmix.accounting.prediction import PredictedError
from skelmix.display import Section
from skelmix.encoding.indicator import AdaptiveClip
from skelmix.errors import InvalidInput, SkelmixError
from skelmix.mechanisms import Mechanism, mechanism_from_dict
from skelmix.planning.card import plan_sections, plan_summary, plan_text, plan_warnings
from skelmix.planning.central import central_multiplier, renyi_multiplier
from skelmix.planning.cohort import Cohort
from skelmix.planning.digest import json_digest
from skelmix.planning.guarantee import privacy_report
from skelmix.planning.rate import packed_bytes
from skelmix.planning.report import PrivacyReport
from skelmix.planning.silos import Silos, contributors_from_dict
from skelmix.planning.target import PrivacyTarget

FORMAT = 1
_FIELDS = {
    "format", "target", "cohort", "rounds", "alignment", "mechanism", "bound", "slack", "epsilon",
    "adaptive_clip",
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """A mechanism ready to use, its privacy report and its predicted error.

    Made by `plan` or `account`. Participants and aggregator must hold the same one: `to_json` and
    `from_json` carry it, and `from_json` proves the claim again instead of believing it.

    adaptive_clip: None with a fixed clip norm. Otherwise the mechanism is for joint vectors, `dimension` + 1
    long: those that `AdaptiveClip.join` makes of the participants' own. Engines do that (`Trainer`, Flower).

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
    adaptive_clip: AdaptiveClip | None = None

    @property
    def dimension(self) -> int:
        """Coordinates of a participant's own vector: the model's trainable weights."""
        return self.mechanism.dimension - (self.adaptive_clip is not None)

    @property
    def first_clip_norm(self) -> float:
        """The L2 norm that vectors are clipped to: in all rounds, or with an adaptive clip in the first."""
        return self.mechanism.clip_norm if self.adaptive_clip is None else self.adaptive_clip.start

    def meets_target(self, tolerance: float = 0.0) -> bool:
        """Whether the guarantee is within the target, for observers and, where asked for, the aggregator."""
        limit = self.target.epsilon_aggregator
        enough = limit is None or self.report.epsilon_aggregator <= limit * (1 + tolerance)
        return enough and self.report.epsilon <= self.target.epsilon * (1 + tolerance)

    @property
    def binding_target(self) -> str:
        """Which limit decides the noise: "observers" or "aggregator", whichever ε is closer to its limit."""
        limit = self.target.epsilon_aggregator
        if limit is None:
            return "observers"
        used = self.report.epsilon / self.target.epsilon
        return "aggregator" if self.report.epsilon_aggregator / limit > used else "observers"

    @property
    def fewest_at_start(self) -> int:
        """The fewest participants that may start a round, before any of them drops out.

        All of the expected ones, where no ε is proved when fewer participants divide the noise among them.
        """
        sampled = self.cohort.roster.sampling == "poisson"
        anyone = sampled or self.mechanism.proved_in_smaller_cohorts(self.report.bound)
        return 1 if anyone else self.cohort.uploads

    @property
    def noise_in_sum(self) -> float:
        """The noise of an opened sum, on the integer grid: the accounted noise plus what colluders may know.

        Where the noise is not drawn in pieces, this is its value in an expected round without dropouts.
        """
        if not self.mechanism.distributed:
            return float(self.mechanism.total_noise)
        return self.cohort.noise_in_sum(self.mechanism.total_noise)

    @property
    def noise_of_one(self) -> float:
        """The noise of one upload in an expected round without dropouts."""
        if self.cohort.least_survivors is None:
            return self.mechanism.noise
        return self.noise_in_sum / self.cohort.uploads

    @property
    def removable_noise(self) -> float:
        """`Settings.noise` of a round: `noise_in_sum` where it is drawn in pieces, else 0."""
        return 0.0 if self.cohort.least_survivors is None else self.noise_in_sum

    @property
    def failing_rounds(self) -> float | None:
        """The share of rounds that are expected to fail at the cohort's `dropout_rate`; None without one."""
        rate = self.cohort.dropout_rate
        return None if rate is None else self.cohort.failing_rounds(rate)

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
        return self.upload_bytes + protocol_bytes(
            uploads,
            cohort.min_survivors(uploads),
            cohort.colluding,
            excess=cohort.least_survivors is not None,
            dropout_rate=cohort.roster.assumed_dropout_rate,
        )

    @property
    def rate(self) -> float:
        """Bits per weight that an upload has."""
        mechanism = self.mechanism
        if not mechanism.distributed:
            return 32.0
        return mechanism.coordinates * mechanism.bits / self.dimension

    @property
    def keep(self) -> float:
        """The fraction of the rotated coordinates that is sent."""
        return self.mechanism.coordinates / self.mechanism.padded_dimension

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know before running this plan."""
        return plan_warnings(self)

    def summary(self) -> dict[str, Any]:
        """The plan's numbers as one flat record: what `skelmix plan --json` prints."""
        return plan_summary(self)

    @property
    def sections(self) -> tuple[Section, ...]:
        """The plan's card as facts under titles: guarantee, cost, assumptions, what is not covered."""
        return plan_sections(self)

    def __str__(self) -> str:
        return plan_text(self)

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
        adaptive_clip: AdaptiveClip | None = None,
    ) -> Self:
        """The plan around a finished mechanism: its guarantee, proved here, and its predicted error.

        With an adaptive clip the error is in units of a round's clip norm, and compared with a central
        Gaussian that knows the norm without asking.
        """
        validation.non_negative(slack=slack)
        if adaptive_clip is not None and (
            mechanism.clip_norm != adaptive_clip.norm or mechanism.dimension < 2
        ):
            raise InvalidInput(
                f"clip_norm = {mechanism.clip_norm}, dimension = {mechanism.dimension}: joint vectors of "
                f"this adaptive clip have a norm of {adaptive_clip.norm} and 2 coordinates or more; make the "
                "plan anew"
            )
        shares = cohort.whole_shares if mechanism.distributed else 1
        if mechanism.shares != shares:
            raise InvalidInput(
                f"shares = {mechanism.shares}: the cohort has {shares} noise shares; make the plan anew"
            )
        report = privacy_report(
            mechanism, bound=bound, cohort=cohort, rounds=rounds, delta=target.delta, slack=slack or None
        )
        unit = mechanism.clip_norm**2 if adaptive_clip is None else 1.0
        left = PrivacyTarget(target.epsilon, cohort.delta_left_for_noise(target.delta, rounds))
        schedule = cohort.schedule(rounds)
        return cls(
            target=target,
            cohort=cohort,
            rounds=rounds,
            mechanism=mechanism,
            report=report,
            predicted=predicted_error(mechanism, cohort, alignment),
            alignment=alignment,
            slack=slack,
            central_gaussian_mse=unit * central_multiplier(left, schedule, False) ** 2,
            central_gaussian_mse_rdp=unit * renyi_multiplier(left, schedule) ** 2,
            adaptive_clip=adaptive_clip,
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
        """The name of this plan, 64 hexadecimal digits: the same for equal plans, different for all others.

        It covers all that encoding, noise, threshold and accounting read, the rotation seed included. Report
        and predictions follow from these, so they are left out: a machine whose floating point differs in
        the last place agrees on the plan. Participants compare it before they join a round.
        """
        return json_digest("plan", self._choices())

    def _choices(self) -> dict[str, Any]:
        """The choices behind a plan as plain data: everything else in a plan is computed from them."""
        choices: dict[str, Any] = {
            "format": FORMAT,
            "target": asdict(self.target),
            "cohort": self.cohort.to_dict(),
            "rounds": self.rounds,
            "alignment": self.alignment,
            "mechanism": self.mechanism.to_dict(),
            "bound": self.report.bound,
            "slack": self.slack,
        }
        if self.adaptive_clip is not None:
            choices["adaptive_clip"] = asdict(self.adaptive_clip)
        return choices

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
                AdaptiveClip(**data["adaptive_clip"]) if "adaptive_clip" in data else None,
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
    shares = cohort.encoding_shares(mechanism.total_noise, cohort.uploads)
    return mechanism.predicted_error(cohort.uploads, alignment, vectors=cohort.divisor, shares=shares)
