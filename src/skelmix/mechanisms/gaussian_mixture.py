"""The discrete Gaussian mixture mechanism, DGM (Bao et al. 2022, Appendix B, Algorithms 11, 12 and 14)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from skelmix.accounting.bisection import boundary
from skelmix.mechanisms.base import Shares
from skelmix.mechanisms.clips import MixtureClip
from skelmix.mechanisms.mixture import Mixture, chi_square, skellam_rate
from skelmix.noise.laws import DiscreteGaussian

if TYPE_CHECKING:
    from skelmix.accounting.rdp.curve import RdpCurve


_LEAST_VARIANCE = (
    1 / 3
)  # least variance of one participant's noise: sums of narrower discrete Gaussians stop hiding a shift


@dataclass(frozen=True)
class GaussianMixture(Mixture):
    """Each participant adds N_Z(0, σ²) with σ² = total_noise/shares.

    Sums of them are not quite discrete Gaussians: the bounds are about the law of the sum of `shares` of
    them.

    Example:

        >>> GaussianMixture(4, 12, scale=100.0, clip_norm=1.0, total_noise=50.0, shares=2).noise
        5.0
    """

    name: ClassVar[str] = "dgm"
    noise_is_deviation: ClassVar[bool] = True

    @classmethod
    def total_from_one(cls, noise: float, shares: int) -> float:
        return noise**2 * shares

    def participant_law(self, shares: Shares = None) -> DiscreteGaussian | None:
        # never a smaller share than was accounted for: a larger cohort adds whole copies more, which is
        # post-processing, while sums of more and narrower discrete Gaussians would hide less
        share = Fraction(self.total_noise) / min(math.ceil(self._shares(shares)), self.shares)
        return DiscreteGaussian(share) if share else None

    @property
    def noise(self) -> float:
        """σ of one participant."""
        return math.sqrt(float(self.total_noise) / self.shares)

    def noise_for_multiplier(self, multiplier: float) -> float:
        return max((multiplier * self.radius) ** 2, _LEAST_VARIANCE * self.shares)

    def starting_noise(self, multiplier: float) -> float:
        """From the χ² of the summed law: a sum of narrow shares hides less than its variance suggests."""
        start, enough = self.noise_for_multiplier(multiplier), (multiplier * self.radius) ** 2
        if start <= enough:
            return start

        def hides(log_noise: float) -> bool:
            law = replace(self, total_noise=math.exp(log_noise)).accounted_law
            return chi_square(law) * enough <= 1

        return math.exp(boundary(hides, math.log(start / 32), math.log(start), absolute=1e-3))

    def estimated_noise(self, multiplier: float) -> float:
        """The variance of a Skellam that hides as much: it does not depend on how the noise is divided."""
        return 2 * skellam_rate((multiplier * self.radius) ** 2)

    def proved_in_smaller_cohorts(self, bound: str) -> bool:
        return bound == "paper"

    def largest_linf(self, order: int) -> int:
        """The largest integer Δ∞ that the paper's Eq. (8) allows at this order, at least 1."""
        from skelmix.accounting.rdp.closed_form import convolution_gap

        gap = convolution_gap(self.total_noise / self.shares, self.shares)
        deviation = math.sqrt(self.total_noise)
        first = math.sqrt(max(0.0, 2 * (0.1 / (order - 1) - gap) / order)) * deviation
        second = (math.sqrt(0.2 / (order * order - order)) - gap) * deviation
        least = min(first, second)
        return max(1, math.ceil(least) - 1) if math.isfinite(least) else 1

    def _paper_rdp(self, clip: MixtureClip, orders: Sequence[int]) -> RdpCurve:
        from skelmix.accounting.rdp.closed_form import corollary_3

        self._noisy()
        return corollary_3(
            self.total_noise / self.shares,
            self.shares,
            clip.threshold(self.radius),
            self.l1_sensitivity,
            clip.linf,
            self.padded_dimension,
            orders,
        )
