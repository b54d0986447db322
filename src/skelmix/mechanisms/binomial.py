"""cpSGD: binomial noise (Agarwal, Suresh, Yu, Kumar and McMahan 2018)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from skelmix.mechanisms.base import Shares
from skelmix.mechanisms.conditional import ConditionallyRounded
from skelmix.noise import laws

_HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Binomial(ConditionallyRounded):
    """Each participant adds Bin(N, 1/2) - N/2 to its conditionally rounded vector.

    N = ⌈total_noise/shares⌉ or one more.

    N is made even, so that the noise is a centred integer: at most one trial more than asked for. The bound
    has no Rényi form; rounds compose linearly or by advanced composition.

    Example:

        >>> Binomial(dimension=4, bits=12, scale=10.0, clip_norm=1.0, total_noise=5_000, shares=3).trials()
        1668
    """

    name: ClassVar[str] = "cpsgd"
    known_bounds: ClassVar[tuple[str, ...]] = ("composition",)
    stand_ins: ClassVar[Mapping[str, str]] = {"rdp": "composition", "paper": "composition"}

    def trials(self, shares: Shares = None) -> int:
        """Coin flips of one participant per coordinate: an even number."""
        return 2 * math.ceil(Fraction(self.total_noise) / (2 * self._shares(shares)))

    def participant_law(self, shares: Shares = None) -> laws.Binomial | None:
        trials = self.trials(shares)
        return laws.Binomial(trials, _HALF, centred=True) if trials else None

    @property
    def noise(self) -> float:
        """Trials of one participant."""
        return float(self.trials())

    def noise_for_multiplier(self, multiplier: float) -> float:
        return 4 * (multiplier * self.l2_sensitivity) ** 2

    @property
    def bounds(self) -> tuple[str, ...]:
        return ("composition",)

    def approximate_dp(self, delta: float) -> float:
        """The ε of one round at δ; infinite where the theorem's condition fails.

        Agarwal et al. 2018, Theorem 1, and no less than its tail gives.
        """
        from skelmix.accounting.rdp.closed_form import binomial

        self._noisy()
        return binomial(
            self.total_noise,  # the fewest trials that any cohort adds, however its shares are rounded up
            self.l2_sensitivity,
            self.l1_sensitivity,
            self.linf_sensitivity,
            self.padded_dimension,
            delta,
        )
