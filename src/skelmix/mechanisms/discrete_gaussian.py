"""The distributed discrete Gaussian mechanism, DDG (Kairouz, Liu and Steinke 2021)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from skelmix.errors import InvalidInput
from skelmix.mechanisms.base import Shares
from skelmix.mechanisms.conditional import ConditionallyRounded
from skelmix.noise import laws

if TYPE_CHECKING:
    from skelmix.accounting.rdp.curve import RdpCurve


@dataclass(frozen=True)
class DiscreteGaussian(ConditionallyRounded):
    """Each participant adds N_Z(0, σ²), σ² = total_noise/shares, to its conditionally rounded vector.

    round_sigma_up: take the next integer for σ, as TensorFlow Privacy does, to reproduce published figures;
    it adds noise, and the bound counts it.

    Example:

        >>> common = dict(dimension=4, bits=12, scale=10.0, clip_norm=1.0, total_noise=30.0, shares=2)
        >>> round(DiscreteGaussian(**common).noise, 3), DiscreteGaussian(**common, round_sigma_up=True).noise
        (3.873, 4.0)
    """

    round_sigma_up: bool = False
    name: ClassVar[str] = "ddg"
    noise_is_deviation: ClassVar[bool] = True
    known_bounds: ClassVar[tuple[str, ...]] = ("paper",)
    stand_ins: ClassVar[Mapping[str, str]] = {"rdp": "paper"}

    @classmethod
    def total_from_one(cls, noise: float, shares: int) -> float:
        return noise**2 * shares

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.round_sigma_up, bool):
            raise InvalidInput(f"round_sigma_up = {self.round_sigma_up!r}: must be True or False")

    def participant_variance(self, shares: Shares = None) -> Fraction:
        """σ² of one participant, exact."""
        total = Fraction(self.total_noise)
        if self.round_sigma_up:  # the accounted variance: a smaller cohort must reach it, too
            total = self.shares * _square_above(total / self.shares)
        # never a smaller share than was accounted for: many narrow ones hide less, see GaussianMixture
        share = total / min(math.ceil(self._shares(shares)), self.shares)
        return _square_above(share) if self.round_sigma_up else share

    def participant_law(self, shares: Shares = None) -> laws.DiscreteGaussian | None:
        variance = self.participant_variance(shares)
        return laws.DiscreteGaussian(variance) if variance else None

    @property
    def noise(self) -> float:
        """σ of one participant."""
        return math.sqrt(self.participant_variance())

    def noise_for_multiplier(self, multiplier: float) -> float:
        return (multiplier * self.l2_sensitivity) ** 2

    @property
    def bounds(self) -> tuple[str, ...]:
        return ("paper",)

    def rdp(self, orders: Sequence[int]) -> RdpCurve:
        """Kairouz, Liu and Steinke 2021, Theorem 1, for the sum of `shares` participants' noise."""
        from skelmix.accounting.rdp.closed_form import discrete_gaussian

        self._noisy()
        return discrete_gaussian(
            float(self.participant_variance()),
            self.shares,
            self.l2_sensitivity,
            self.l1_sensitivity,
            self.padded_dimension,
            orders,
        )


def _square_above(number: Fraction) -> Fraction:
    """The smallest square of a whole number that is not below `number`."""
    whole = math.isqrt(math.ceil(number))
    return Fraction((whole if whole * whole >= number else whole + 1) ** 2)
