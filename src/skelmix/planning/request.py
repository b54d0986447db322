"""The request for a plan: everything but the scale and the noise, checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from skelmix import validation
from skelmix.accounting.gaussian import gaussian_pld_epsilon
from skelmix.accounting.gaussian.participation import largest_mu_against_aggregator
from skelmix.accounting.schedule import Schedule
from skelmix.encoding.indicator import AdaptiveClip
from skelmix.errors import InvalidInput
from skelmix.mechanisms import Mechanism
from skelmix.mechanisms.bounds import BOUNDS, Bound, slack_budget
from skelmix.mechanisms.registry import MECHANISMS
from skelmix.noise.entropy import system_entropy
from skelmix.planning.central import central_multiplier
from skelmix.planning.cohort import Cohort
from skelmix.planning.silos import Silos
from skelmix.planning.target import PrivacyTarget


@dataclass(frozen=True)
class PlanRequest:
    """The arguments of `plan`, checked (`InvalidInput`), with a fresh random rotation seed.

    With an adaptive clip the vector that is sent has one coordinate more, and the adaptive clip's own norm.
    """

    target: PrivacyTarget
    cohort: Cohort | Silos
    rounds: int
    mechanism: str
    dimension: int
    clip_norm: float
    bits: int
    bound: str
    alignment: float
    keep: int | None = None
    clip_slack: float = 0.0
    adaptive: AdaptiveClip | None = None
    rotation_seed: bytes = field(default_factory=lambda: system_entropy().bytes(32))

    def __post_init__(self) -> None:
        validation.one_of(tuple(MECHANISMS), mechanism=self.mechanism)
        object.__setattr__(self, "cohort", self._completed(self.cohort))
        validation.one_of(("tight", *BOUNDS), bound=self.bound)
        validation.whole(1, 2**26, dimension=self.dimension)
        validation.positive(clip_norm=self.clip_norm)
        validation.bits(self.bits)
        validation.whole(1, rounds=self.rounds)
        validation.non_negative(alignment=self.alignment)
        if self.target.epsilon_aggregator is not None and not self.kind.distributed:
            raise InvalidInput(
                f"epsilon_aggregator = {self.target.epsilon_aggregator:g}: {self.mechanism} trusts its "
                "aggregator with every vector, so no ε holds against it; leave the limit out, or take 'smm'"
            )
        if self.alignment > 1:
            raise InvalidInput(
                f"alignment = {self.alignment!r}: must be in [0, 1]; it is the mean cosine between "
                "participants' vectors"
            )

    def _completed(self, cohort: Cohort | Silos) -> Cohort | Silos:
        """The cohort with the least number of survivors that these rounds need, where noise is in pieces."""
        if not (self.kind.noise_in_pieces and cohort.divides_noise_into_pieces):
            return replace(cohort, least_survivors=None)
        validation.whole(1, rounds=self.rounds)
        return cohort.with_least_survivors(self.target.delta, self.rounds)

    @property
    def length(self) -> int:
        """Coordinates of the vector that is sent, before it is rotated."""
        return self.dimension + (self.adaptive is not None)

    @property
    def kind(self) -> type[Mechanism]:
        """The class of mechanism that was asked for."""
        return MECHANISMS[self.mechanism]

    @property
    def sends_subsets(self) -> bool:
        """Whether fewer coordinates than all may be sent: the paper's bound needs them all."""
        asked = self.asked_bound
        return self.kind.sends_subsets and not (asked and asked.needs_every_coordinate)

    @property
    def schedule(self) -> Schedule:
        """How often one participant's vector enters the sums, as the accountant sees it."""
        return self.cohort.schedule(self.rounds)

    @cached_property
    def noise_target(self) -> PrivacyTarget:
        """The target that the noise has to meet, after δ has paid for what a cohort's size may reveal."""
        delta = self.cohort.delta_left_for_noise(self.target.delta, self.rounds)
        return replace(self.target, delta=delta)

    @property
    def asked_bound(self) -> Bound | None:
        """The bound that was asked for by its name; None for "tight", the best certified one."""
        return BOUNDS.get(self.bound)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds to try, the most promising first; for a baseline mechanism, those of its own paper."""
        known = self.kind.known_bounds
        if self.cohort.unit != "participant":
            known = self.kind.silo_bounds
            if not known:
                raise InvalidInput(
                    f"mechanism = {self.mechanism!r} has no bound for records in silos; take 'smm' or 'dgm'"
                )
        if self.bound == "tight":
            rivals = [BOUNDS[name] for name in self.kind.rival_bounds or known if name in known]
            return tuple(bound for bound in rivals if bound.serves(self.schedule, self.noise_target.delta))
        name = self.kind.stand_ins.get(self.bound, self.bound)
        if name in known:
            return (BOUNDS[name],)
        raise InvalidInput(
            f"bound = {self.bound!r}: {self.mechanism} has {', '.join(known)}; take one of them or 'tight'"
        )

    @cached_property
    def multiplier(self) -> float:
        """Noise multiplier of a Gaussian that meets the target, accounted as this request's bound is."""
        return max(self._multiplier_for_observers, self._multiplier_for_aggregator)

    @cached_property
    def _multiplier_for_observers(self) -> float:
        asked = self.asked_bound
        return central_multiplier(self.noise_target, self.schedule, asked is not None and asked.renyi)

    @cached_property
    def _multiplier_for_aggregator(self) -> float:
        target, schedule = self.noise_target, self.schedule
        if target.epsilon_aggregator is None or schedule.secret:
            return 0.0
        return 1 / largest_mu_against_aggregator(
            target.epsilon_aggregator, target.delta, schedule.seen_by_aggregator, coin=schedule.contribute
        )

    @cached_property
    def slack(self) -> float:
        """The total variation that a Gaussian certificate of the finished plan may leave out per round.

        δ pays for it at the observers' ε. Where the aggregator's limit decides, that ε is below its own
        limit, and the slack may be larger.
        """
        target, schedule = self.noise_target, self.schedule
        epsilon = target.epsilon
        if self._multiplier_for_aggregator > self._multiplier_for_observers and schedule.independent:
            reached = gaussian_pld_epsilon(self.multiplier, schedule.rate, self.rounds, target.delta)
            epsilon = min(epsilon, reached)
        return slack_budget(epsilon, target.delta, schedule)

    def build(self, bound: Bound, scale: float, total_noise: float) -> Mechanism:
        """The mechanism with this scale and noise, with the clip that goes with the bound."""
        return self.kind.for_bound(
            bound.name,
            dimension=self.length,
            bits=self.bits,
            scale=scale,
            clip_norm=self.clip_norm if self.adaptive is None else self.adaptive.norm,
            total_noise=total_noise,
            shares=self.cohort.whole_shares,
            rotation_seed=self.rotation_seed,
            keep=self.keep,
            clip_slack=self.clip_slack,
        )
