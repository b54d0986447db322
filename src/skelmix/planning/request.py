"""What a plan is asked for, and the mechanisms that could do it: everything but their scale and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from skelmix import validation
from skelmix.accounting import calibration
from skelmix.accounting import gaussian as gaussian_dp
from skelmix.accounting.prediction import PredictedError, predict
from skelmix.accounting.rdp import closed_form
from skelmix.encoding.rotation import padded
from skelmix.errors import InvalidInput
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
)
from skelmix.noise.entropy import system_entropy
from skelmix.planning.guarantee import (
    LARGEST_CERTIFIED,
    Cohort,
    PrivacyTarget,
    claim,
    rdp_epsilon,
    spendable,
    usable_bounds,
)

#: L-infinity clip of the flat certificate, in standard deviations of a rotated coordinate
FLAT_DEVIATIONS = 5.0

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
class Job:
    """The arguments of `plan`, checked (`InvalidInput`), and a rotation that no one could know before."""

    target: PrivacyTarget
    cohort: Cohort
    rounds: int
    mechanism: str
    dimension: int
    clip_norm: float
    bits: int
    bound: str
    alignment: float
    rotation_seed: bytes = field(default_factory=lambda: system_entropy().bytes(32))

    def __post_init__(self) -> None:
        validation.one_of(tuple(_KINDS), mechanism=self.mechanism)
        validation.one_of(("tight", "rdp", "gdp", "flat", "paper"), bound=self.bound)
        validation.whole(1, 2**26, dimension=self.dimension)
        validation.positive(clip_norm=self.clip_norm)
        validation.bits(self.bits)
        validation.whole(1, rounds=self.rounds)
        validation.non_negative(alignment=self.alignment)
        if self.alignment > 1:
            raise InvalidInput(
                f"alignment = {self.alignment!r}: must be in [0, 1]; it is the mean cosine between "
                "participants' vectors"
            )

    @property
    def left(self) -> PrivacyTarget:
        """The target that the noise has to meet, after what the cohort's size may tell."""
        return PrivacyTarget(self.target.epsilon, spendable(self.target.delta, self.cohort, self.rounds))

    @property
    def bounds(self) -> tuple[str, ...]:
        """The bounds to try, the likely best first. A baseline has the literature's own under any such
        name."""
        name, known = self.mechanism, _BOUNDS[self.mechanism]
        if self.bound == "tight":
            # the paper's own bound goes with the paper's own clip: not a rival of the others
            certified = tuple(one for one in known if one != "paper" or name not in ("smm", "dgm"))
            return usable_bounds(certified, self.cohort, self.left.delta)
        if self.bound in known:
            return (self.bound,)
        if self.bound in ("paper", "rdp"):
            return known[-1:]
        raise InvalidInput(
            f"bound = {self.bound!r}: {name} has {', '.join(known)}; take one of them or 'tight'"
        )

    @property
    def multiplier(self) -> float:
        """Noise multiplier of the central Gaussian for the target, accounted as this job's bound is."""
        return central_multiplier(self.left, self.cohort, self.rounds, self.bound in ("rdp", "paper"))

    def build(self, bound: str, scale: float, total_noise: float) -> Mechanism:
        """The mechanism with this scale and noise, with the clip that goes with the bound."""
        central = self.mechanism == "gaussian"
        fields: dict[str, Any] = {
            "dimension": self.dimension,
            "bits": self.bits,
            "scale": 1.0 if central else scale,
            "clip_norm": self.clip_norm,
            "total_noise": total_noise,
            "shares": 1 if central else self.cohort.whole_shares,
            "rotation_seed": self.rotation_seed,
        }
        if self.mechanism in ("smm", "dgm"):
            flat = FLAT_DEVIATIONS * scale * self.clip_norm / math.sqrt(padded(self.dimension))
            fields["clip"] = {"paper": MixtureClip(linf=1), "flat": FlatClip(flat)}.get(bound, L2Clip())
        return _KINDS[self.mechanism](**fields)

    def widened(self, mechanism: Mechanism, bound: str) -> Mechanism:
        """The paper's clip with the largest integer Δ∞ that its conditions allow at the order used (Eq. 3,
        Eq. 8)."""
        if not isinstance(mechanism, SkellamMixture | GaussianMixture) or bound != "paper":
            return mechanism
        report = claim(
            mechanism, bound=bound, cohort=self.cohort, rounds=self.rounds, delta=self.target.delta
        )
        if report.order is None:
            return mechanism
        return replace(mechanism, clip=MixtureClip(linf=mechanism.largest_linf(report.order)))


def predicted(mechanism: Mechanism, cohort: Cohort, alignment: float) -> PredictedError:
    """The error of the expected cohort's sum when everyone's vector is as long as the clip allows."""
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


@lru_cache(maxsize=256)
def central_multiplier(target: PrivacyTarget, cohort: Cohort, rounds: int, renyi: bool) -> float:
    """Noise multiplier of the central Gaussian for the target: by Rényi accounting, or by privacy-loss
    distributions."""
    epsilon, delta = target.epsilon, target.delta
    if not renyi and cohort.sampling != "fixed" and epsilon <= LARGEST_CERTIFIED:
        return 1 / gaussian_dp.largest_mu(epsilon, delta, rounds, cohort.sampling_probability)
    return calibration.least_noise(
        lambda multiplier: rdp_epsilon(closed_form.gaussian(multiplier**2, 1.0), cohort, rounds, delta)[0],
        epsilon,
        1e-3,
        1e9,
        guess=1.0,
    )
