"""The Skellam mechanism (Agarwal, Kairouz and Liu 2021): conditional rounding plus Skellam noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from skelmix.errors import InvalidInput
from skelmix.mechanisms.base import Shares
from skelmix.mechanisms.conditional import ConditionallyRounded
from skelmix.noise import laws

if TYPE_CHECKING:
    from skelmix.accounting.gaussian import GaussianCertificate
    from skelmix.accounting.rdp.curve import RdpCurve


@dataclass(frozen=True)
class Skellam(ConditionallyRounded):
    """Each participant adds Sk(λ, λ), λ = total_noise/shares, to its conditionally rounded vector.

    Example:

        >>> mechanism = Skellam(dimension=4, bits=12, scale=10.0, clip_norm=1.0, total_noise=50.0, shares=2)
        >>> mechanism.noise, mechanism.l2_sensitivity > mechanism.radius  # rounding made it longer
        (25.0, True)
    """

    name: ClassVar[str] = "skellam"
    noise_varies_with_cohort: ClassVar[bool] = False
    noise_in_pieces: ClassVar[bool] = True
    certificate_leaves_slack: ClassVar[bool] = False
    known_bounds: ClassVar[tuple[str, ...]] = ("gdp", "paper")
    stand_ins: ClassVar[Mapping[str, str]] = {"rdp": "paper"}

    def participant_law(self, shares: Shares = None) -> laws.Skellam | None:
        share = Fraction(self.total_noise) / self._shares(shares)
        return laws.Skellam(share) if share else None

    @property
    def noise(self) -> float:
        """λ of one participant."""
        return float(self.total_noise) / self.shares

    def noise_for_multiplier(self, multiplier: float) -> float:
        return (multiplier * self.l2_sensitivity) ** 2 / 2

    @property
    def bounds(self) -> tuple[str, ...]:
        return ("gdp", "paper")

    def rdp(self, orders: Sequence[int]) -> RdpCurve:
        """Agarwal, Kairouz and Liu 2021, Theorem 3.5, with V = 2Λ, Δ2 = c̃ and Δ1 = c̃·min(√d, c̃)."""
        from skelmix.accounting.rdp.closed_form import skellam

        self._noisy()
        return skellam(self.total_noise, self.l2_sensitivity, self.l1_sensitivity, orders)

    def certificate(self, bound: str, slack: float) -> GaussianCertificate:
        """An integer shift of a Skellam is no worse than a Gaussian shift by 2Φ⁻¹((1 + P(0))/2) per unit."""
        from skelmix.accounting.gaussian import integer_gdp_certificate

        if bound != "gdp":
            raise InvalidInput(f"bound = {bound!r}: {self.name} has {', '.join(self.bounds)}")
        self._noisy()
        return integer_gdp_certificate(
            laws.Skellam(self.total_noise), self.l2_sensitivity, self.padded_dimension
        )
