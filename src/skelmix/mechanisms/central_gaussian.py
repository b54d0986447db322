"""The central Gaussian mechanism: the reference that distributed mechanisms are measured against."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from skelmix import validation
from skelmix.errors import InvalidInput
from skelmix.mechanisms.base import EncodeStats, Mechanism, Shares
from skelmix.mechanisms.blocks import as_blocks, counted_from, rows_of
from skelmix.mechanisms.clips import Clipped, L2Clip
from skelmix.noise.entropy import Entropy, system_entropy

if TYPE_CHECKING:
    from skelmix.accounting.gaussian import GaussianCertificate
    from skelmix.accounting.prediction import PredictedError
    from skelmix.accounting.rdp.curve import RdpCurve


@dataclass(frozen=True)
class CentralGaussian(Mechanism):
    """NOT DISTRIBUTED: a trusted aggregator sees the clipped vectors and adds Gaussian noise to their sum.

    The noise has variance `total_noise` and is added once.

    A reference in floating point: its noise is a float64 approximation of a normal law, and it neither
    rotates, rounds nor wraps. There is no modulus; `bits`, `shares`, `rotation_seed`, `keep` and
    `clip_slack` are not used and `scale` must be 1.

    Example:

        >>> central = CentralGaussian(dimension=4, bits=8, scale=1.0, clip_norm=1.0, total_noise=9.0)
        >>> central.noise, central.encode_sum(np.zeros((5, 4)), round=0).shape
        (3.0, (4,))
    """

    name: ClassVar[str] = "gaussian"
    noise_is_deviation: ClassVar[bool] = True
    distributed: ClassVar[bool] = False
    noise_varies_with_cohort: ClassVar[bool] = False
    certificate_leaves_slack: ClassVar[bool] = False
    known_bounds: ClassVar[tuple[str, ...]] = ("pld", "rdp")
    stand_ins: ClassVar[Mapping[str, str]] = {"paper": "rdp"}

    @classmethod
    def for_bound(cls, bound: str, **fields: Any) -> Self:
        return cls(**(fields | {"scale": 1.0, "shares": 1}))

    @classmethod
    def total_from_one(cls, noise: float, shares: int) -> float:
        return noise**2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale != 1:
            raise InvalidInput(
                f"scale = {self.scale!r}: the central Gaussian has no integer grid; use scale = 1"
            )

    def _check_subset(self) -> None:
        """Accept any `keep`: nothing is sent, all coordinates reach the aggregator."""

    @property
    def radius(self) -> float:
        return float(self.clip_norm)

    @property
    def padded_dimension(self) -> int:
        return self.dimension

    @property
    def coordinates(self) -> int:
        return self.dimension

    def encode(
        self, vectors: Any, *, round: int, shares: Shares = None, entropy: Entropy | None = None
    ) -> NDArray[np.float64]:
        """The clipped vectors, float64, as the trusted aggregator sees them.

        NOT PRIVATE: the noise is added to the sum only.
        """
        rows, single = rows_of(vectors, self.dimension)
        clipped = self._clipped(rows)[0]
        return clipped[0] if single else clipped

    def encode_sum(
        self,
        vectors: Any,
        *,
        round: int,
        shares: Shares = None,
        participants: int | None = None,
        entropy: Entropy | None = None,
        stats: EncodeStats | None = None,
    ) -> NDArray[np.float64]:
        """What the aggregator releases: the sum of the clipped vectors plus one draw of Gaussian noise.

        float64 (d,).
        """
        seen = EncodeStats()
        total = np.zeros(self.dimension)
        rows = max(1, (1 << 18) // self.dimension)
        for start, block in as_blocks(vectors, rows, self.dimension, ahead=False):
            with counted_from(start):
                x, clipped = self._clipped(block)
            total += x.sum(axis=0)
            seen.add(EncodeStats(len(x), clipped.rows, squared_norms=clipped.squared_norms))
        if seen.participants == 0:
            raise InvalidInput("vectors is empty: at least one participant is needed")
        if participants is not None:
            validation.whole(seen.participants, participants=participants)
        if stats is not None:
            stats.add(seen)
        return self.noisy_total(total, entropy)

    def noisy_total(self, total: NDArray[np.float64], entropy: Entropy | None = None) -> NDArray[np.float64]:
        """What `encode_sum` releases, from a sum of vectors that are clipped already."""
        source = system_entropy() if entropy is None else entropy
        normal = np.random.Generator(np.random.PCG64DXSM(int.from_bytes(source.bytes(32), "little")))
        return total + math.sqrt(self.total_noise) * normal.standard_normal(self.dimension)

    def decode(self, total: Any, *, round: int) -> NDArray[np.float64]:
        """The noisy sum itself, float64 (d,)."""
        values = np.asarray(total, np.float64)
        if values.shape != (self.dimension,) or not np.isfinite(values).all():
            raise InvalidInput(f"total has shape {values.shape}: must be ({self.dimension},) finite numbers")
        return values.copy()

    def _clipped(self, rows: NDArray[Any]) -> tuple[NDArray[np.float64], Clipped]:
        x = np.array(rows, np.float64, order="C")
        return x, L2Clip().apply(x, self.clip_norm)

    @property
    def noise(self) -> float:
        """σ of the aggregator's noise."""
        return math.sqrt(self.total_noise)

    def noise_variance(self, participants: int, shares: Shares = None) -> float:
        return float(self.total_noise)

    def predicted_error(
        self, uploads: int, alignment: float, *, vectors: float | None = None, shares: Shares = None
    ) -> PredictedError:
        from skelmix.accounting.prediction import PredictedError

        return PredictedError(noise=float(self.total_noise), rounding=0.0, wrap=0.0)

    def noise_for_multiplier(self, multiplier: float) -> float:
        return (multiplier * self.clip_norm) ** 2

    @property
    def l1_sensitivity(self) -> float:
        return math.sqrt(self.dimension) * self.clip_norm

    @property
    def l2_sensitivity(self) -> float:
        return self.clip_norm

    @property
    def linf_sensitivity(self) -> float:
        return self.clip_norm

    @property
    def bounds(self) -> tuple[str, ...]:
        return ("pld", "rdp")

    def rdp(self, orders: Sequence[int]) -> RdpCurve:
        """αΔ²/(2σ²) (Mironov 2017)."""
        from skelmix.accounting.rdp.closed_form import gaussian

        self._noisy()
        return gaussian(self.total_noise, self.clip_norm, orders)

    def certificate(self, bound: str, slack: float) -> GaussianCertificate:
        """It is the Gaussian mechanism itself, with noise multiplier σ/Δ."""
        from skelmix.accounting.gaussian import gaussian_certificate

        if bound != "pld":
            raise InvalidInput(f"bound = {bound!r}: {self.name} has {', '.join(self.bounds)}")
        self._noisy()
        return gaussian_certificate(math.sqrt(self.total_noise) / self.clip_norm)
