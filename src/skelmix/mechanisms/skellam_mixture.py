"""The Skellam mixture mechanism, SMM (Bao et al. 2022, Algorithms 1, 2 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from skelmix.mechanisms.base import Shares
from skelmix.mechanisms.clips import MixtureClip
from skelmix.mechanisms.mixture import Mixture, skellam_rate
from skelmix.noise.laws import Skellam

if TYPE_CHECKING:
    from skelmix.accounting.rdp.curve import RdpCurve


@dataclass(frozen=True)
class SkellamMixture(Mixture):
    """Each participant adds Sk(λ, λ) with λ = total_noise/shares.

    The sum of `shares` of them is Sk(Λ, Λ), variance 2Λ.

    clip=L2Clip(): the certified bound needs nothing but the L2 norm. clip=FlatClip(b): with it the
    Gaussian's own accounting. clip=MixtureClip(linf): the paper's clip and bound.

    Example:

        >>> import numpy as np
        >>> smm = SkellamMixture(dimension=4, bits=12, scale=100.0, clip_norm=1.0, total_noise=50.0, shares=2)
        >>> sent = smm.encode(np.array([[0.5, 0, 0, 0], [0.5, 0, 0, 0]]), round=0)
        >>> sent.shape, sent.dtype, smm.noise
        ((2, 4), dtype('uint16'), 25.0)
        >>> smm.decode(sent.sum(axis=0) % smm.modulus, round=0).shape  # about [1, 0, 0, 0]
        (4,)
    """

    name: ClassVar[str] = "smm"
    noise_varies_with_cohort: ClassVar[bool] = False
    noise_in_pieces: ClassVar[bool] = True

    def participant_law(self, shares: Shares = None) -> Skellam | None:
        share = Fraction(self.total_noise) / self._shares(shares)
        return Skellam(share) if share else None

    @property
    def noise(self) -> float:
        """λ of one participant."""
        return float(self.total_noise) / self.shares

    def noise_for_multiplier(self, multiplier: float) -> float:
        return skellam_rate((multiplier * self.radius) ** 2)

    def largest_linf(self, order: int) -> int:
        """The largest integer Δ∞ that the paper's Eq. (3) allows at this order, at least 1."""
        from skelmix.accounting.rdp.closed_form import largest_linf

        return max(1, largest_linf(self.total_noise, order))

    def _paper_rdp(self, clip: MixtureClip, orders: Sequence[int]) -> RdpCurve:
        from skelmix.accounting.rdp.closed_form import corollary_1

        return corollary_1(self.total_noise, clip.threshold(self.radius), clip.linf, orders)
