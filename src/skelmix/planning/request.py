"""The request for a plan: everything but the scale and the noise, checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from skelmix import validation
from skelmix.accounting.gaussian.participation import largest_mu_against_aggregator
from skelmix.accounting.schedule import Schedule
from skelmix.errors import InvalidInput
from skelmix.mechanisms import Mechanism
from skelmix.mechanisms.bounds import BOUNDS, Bound
from skelmix.mechanisms.registry import MECHANISMS
from skelmix.noise.entropy import system_entropy
from skelmix.planning.central import central_multiplier
from skelmix.planning.cohort import Cohort
from skelmix.planning.silos import Silos
from skelmix.planning.target import PrivacyTarget

#: what a user may ask for as `bound`; each name is a bound, or "tight" for the best certified one
BOUND_NAMES = ("tight", "rdp", "gdp", "flat", "paper")


@dataclass(frozen=True)
class PlanRequest:
    """The arguments of `plan`, checked (`InvalidInput`), and a rotation that nobody could know before."""

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
    rotation_seed: bytes = field(default_factory=lambda: system_entropy().bytes(32))

    def __post_init__(self) -> None:
        validation.one_of(tuple(MECHANISMS), mechanism=self.mechanism)
        validation.one_of(BOUND_NAMES, bound=self.bound)
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

    @property
    def kind(self) -> type[Mechanism]:
        """The class of mechanism that was asked for."""
        return MECHANISMS[self.mechanism]

    @property
    def sends_subsets(self) -> bool:
        """Whether fewer coordinates than all may be sent: the paper's bound needs them all."""
        return self.kind.sends_subsets and self.bound != "paper"

    @property
    def schedule(self) -> Schedule:
        """How often one participant's vector enters, as the accountant sees it."""
        return self.cohort.schedule(self.rounds)

    @cached_property
    def noise_target(self) -> PrivacyTarget:
        """The target that the noise has to meet, after what the cohort's size may reveal was paid for."""
        delta = self.cohort.delta_left_for_noise(self.target.delta, self.rounds)
        return replace(self.target, delta=delta)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds to try, the likely best first; of a baseline the literature's own."""
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
        if self.bound in known:
            return (BOUNDS[self.bound],)
        if self.bound in ("paper", "rdp") and self.bound not in self.kind.known_bounds:
            return (BOUNDS[known[-1]],)
        raise InvalidInput(
            f"bound = {self.bound!r}: {self.mechanism} has {', '.join(known)}; take one of them or 'tight'"
        )

    @cached_property
    def multiplier(self) -> float:
        """Noise multiplier of a Gaussian that meets the target, accounted as this request's bound is."""
        target, schedule = self.noise_target, self.schedule
        enough = central_multiplier(target, schedule, self.bound in ("rdp", "paper"))
        if target.epsilon_aggregator is None or schedule.secret:
            return enough
        largest = largest_mu_against_aggregator(
            target.epsilon_aggregator, target.delta, schedule.seen_by_aggregator, coin=schedule.contribute
        )
        return max(enough, 1 / largest)

    def build(self, bound: Bound, scale: float, total_noise: float) -> Mechanism:
        """The mechanism with this scale and noise, with the clip that goes with the bound."""
        return self.kind.for_bound(
            bound.name,
            dimension=self.dimension,
            bits=self.bits,
            scale=scale,
            clip_norm=self.clip_norm,
            total_noise=total_noise,
            shares=self.cohort.whole_shares,
            rotation_seed=self.rotation_seed,
            keep=self.keep,
            clip_slack=self.clip_slack,
        )
