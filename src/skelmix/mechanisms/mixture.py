"""The two mixtures' common part: clip, round without bias, add noise.

The noise hides the rounding as well.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from skelmix.encoding.fused import encode_rows
from skelmix.encoding.rounding import round_and_noise, round_into_sum
from skelmix.errors import InvalidInput
from skelmix.mechanisms.blocks import Block, as_floats, counted_from
from skelmix.mechanisms.clips import Clip, Clipped, FlatClip, L2Clip, MixtureClip, clip_to_dict
from skelmix.mechanisms.silo import SiloMechanism
from skelmix.noise.entropy import Entropy
from skelmix.noise.laws import Law, Skellam
from skelmix.noise.table import ExactSampler

if TYPE_CHECKING:
    from skelmix.accounting.gaussian import GaussianCertificate
    from skelmix.accounting.rdp.curve import RdpCurve


#: L-infinity clip of the flat certificate, in standard deviations of a rotated coordinate
FLAT_DEVIATIONS = 5.0


@dataclass(frozen=True)
class Mixture(SiloMechanism):
    """Stochastic rounding plus integer noise, an unbiased sum.

    Each coordinate has the variance of the summed noise plus Σp(1-p) over the participants (Bao et al. 2022,
    Corollary 2), on the integer grid.
    """

    clip: Clip = field(default_factory=L2Clip)

    known_bounds: ClassVar[tuple[str, ...]] = ("flat", "gdp", "rdp", "paper")
    rival_bounds: ClassVar[tuple[str, ...] | None] = ("flat", "gdp", "rdp")  # the paper's has its own clip

    silo_bounds: ClassVar[tuple[str, ...]] = ("flat", "gdp", "rdp")

    sends_subsets: ClassVar[bool] = True

    @classmethod
    def for_bound(cls, bound: str, **fields: Any) -> Self:
        return cls(**fields, clip=L2Clip())._clipped_for(bound)

    def _clipped_for(self, bound: str) -> Self:
        if bound == "paper":
            return replace(self, clip=MixtureClip(linf=1))
        flat = FLAT_DEVIATIONS * self.radius / math.sqrt(self.coordinates)
        return replace(self, clip=FlatClip(flat)) if bound == "flat" else self

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep is not None and isinstance(self.clip, MixtureClip):
            raise InvalidInput(
                f"keep = {self.keep!r}: the paper's clip needs all coordinates; use L2Clip() or FlatClip"
            )
        if not isinstance(self.clip, L2Clip | FlatClip | MixtureClip):
            raise InvalidInput(f"clip = {self.clip!r}: must be L2Clip(), FlatClip(linf) or MixtureClip(linf)")

    @property
    def l1_sensitivity(self) -> float:
        """A bound on ‖x‖₁ of the clipped vector that is rounded next."""
        return self.clip.bounds(self.radius, self.coordinates)[0]

    @property
    def l2_sensitivity(self) -> float:
        """A bound on ‖x‖₂ of the clipped vector that is rounded next."""
        return self.clip.bounds(self.radius, self.coordinates)[1]

    @property
    def linf_sensitivity(self) -> float:
        """A bound on the coordinates of the clipped vector that is rounded next."""
        return self.clip.bounds(self.radius, self.coordinates)[2]

    def _clip(self, x: NDArray[Any]) -> Clipped:
        return self.clip.apply(x, self.radius)

    def _encode_block(
        self, block: Block, round: int, draws: ExactSampler | None, out: NDArray[Any], entropy: Entropy
    ) -> None:
        wide = self.coordinates > 1 << 20  # longer rows would not stay in the cache from one step to the next
        if draws is None or wide or not self.rotate or isinstance(self.clip, MixtureClip):
            super()._encode_block(block, round, draws, out, entropy)
            return
        start, rows = block
        given = as_floats(rows)
        with counted_from(start):
            encode_rows(
                given,
                self.rotation_seed,
                round,
                scale=self.scale,
                l2=self.radius,
                linf=self._linf,
                sampler=draws,
                out=out,
                bits=self.bits,
                entropy=entropy,
            )

    def _round_and_noise(
        self, x: NDArray[Any], draws: ExactSampler | None, out: NDArray[Any], entropy: Entropy
    ) -> None:
        round_and_noise(x, draws, out, entropy, bits=self.bits)

    def _round_into(self, x: NDArray[Any], total: NDArray[np.int64], entropy: Entropy) -> None:
        round_into_sum(x, total, entropy)

    @property
    def _linf(self) -> float:
        return self.clip.linf if isinstance(self.clip, FlatClip) else math.inf

    # The bound

    @property
    def bounds(self) -> tuple[str, ...]:
        """The certified bounds that hold with this clip."""
        if isinstance(self.clip, MixtureClip):
            return ("paper",)
        return ("flat", "rdp", "gdp") if isinstance(self.clip, FlatClip) else ("rdp", "gdp")

    @property
    def accounted_law(self) -> Law:
        """The law of the summed noise that the bounds are about: that of `shares` participants."""
        law = self.total_law(self.shares)
        if law is None:
            raise InvalidInput("this mechanism adds no noise: it has no privacy bound")
        return law

    def rdp(self, orders: Sequence[int]) -> RdpCurve:
        """Rényi divergences of one round, one participant's vector against zero (Bao et al. 2022, Section 5).

        With the L2 and the flat clip the certified κ·γ²Δ²; with the paper's clip the paper's own theorem.
        """
        self._noisy()
        if isinstance(self.clip, MixtureClip):
            return self._paper_rdp(self.clip, orders)
        from skelmix.accounting.rdp.mixture_constant import mixture_curve

        return mixture_curve(self.accounted_law, self.radius, orders)

    def certificate(self, bound: str, slack: float) -> GaussianCertificate:
        """The Gaussian that one round is no worse than, up to total variation `slack`.

        For the bounds "gdp" and "flat".
        """
        from skelmix.accounting import gaussian as gaussian_dp

        if bound == "gdp" and not isinstance(self.clip, MixtureClip):
            return gaussian_dp.gdp_certificate(self.accounted_law, self.radius, self.coordinates, slack)
        if bound == "flat" and isinstance(self.clip, FlatClip):
            return gaussian_dp.flat_certificate(
                self.accounted_law, self.radius, self.clip.linf, self.coordinates, slack
            )
        raise InvalidInput(f"bound = {bound!r}: with this clip there is {', '.join(self.bounds)}")

    def with_largest_linf(self, order: int | None) -> Self:
        if order is None or not isinstance(self.clip, MixtureClip):
            return self
        return replace(self, clip=MixtureClip(linf=self.largest_linf(order)))

    @abstractmethod
    def largest_linf(self, order: int) -> int:
        """The largest integer Δ∞ that the paper's conditions allow at this order, at least 1."""

    def _clip_effects(self) -> dict[str, Any]:
        if isinstance(self.clip, L2Clip):
            return {}
        shrink_to = self.clip.threshold(self.radius) if isinstance(self.clip, MixtureClip) else None
        return {"shrink_to": shrink_to, "linf": self.clip.linf}

    @abstractmethod
    def _paper_rdp(self, clip: MixtureClip, orders: Sequence[int]) -> RdpCurve: ...

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "clip": clip_to_dict(self.clip)}


def chi_square(law: Law) -> float:
    """The χ² of a unit shift: E[(P(k-1)/P(k) - 1)²] under P, about 1/variance.

    It is μ² of the Gaussian that the mixture approaches, per unit of ‖x‖².
    """
    low, high = law.support_bound(-50.0)
    logs = law.log_pmf(np.arange(low - 1, high + 1))
    with np.errstate(invalid="ignore"):
        ratio = np.expm1(logs[:-1] - logs[1:])
    inside = np.isfinite(ratio) & (logs[1:] > -60.0)
    return float(np.sum(np.exp(logs[1:][inside]) * ratio[inside] ** 2))


def skellam_rate(variance: float) -> float:
    """The approximate Λ of the Skellam law that hides a unit shift as well as a Gaussian of this variance."""
    rate = variance / 2
    for _ in range(4 if rate < 1e4 else 0):
        rate *= chi_square(Skellam(rate)) * variance
    return rate
