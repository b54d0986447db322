"""How a mechanism sums a silo's records: exact sums, one rounding, one share of noise, one message."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix import validation
from skelmix.encoding.fixed_point import FixedPoint
from skelmix.encoding.wrapping import wrap
from skelmix.errors import InvalidInput
from skelmix.mechanisms.base import EncodeStats, Mechanism, Shares
from skelmix.mechanisms.mechanism import IntegerMechanism
from skelmix.mechanisms.silo_sum import SiloSum
from skelmix.noise.entropy import Entropy, system_entropy


@dataclass(frozen=True)
class SiloMechanism(IntegerMechanism):
    """A mechanism that can protect one record of a silo's sum as it does one participant's vector.

    Its bound covers both, with certain clips.
    """

    @property
    @abstractmethod
    def _linf(self) -> float:
        """The bound on a clipped coordinate, infinite without one."""

    @property
    def fixed_point(self) -> FixedPoint:
        """How a record's vector becomes integers that are summed exactly."""
        return FixedPoint(
            dimension=self.dimension,
            length=self.padded_dimension,
            kept=self.coordinates,
            scale=float(self.scale),
            l2=self.radius,
            linf=self._linf,
            bits=self.bits,
            rotate=self.rotate,
        )

    def silo_sum(self, *, round: int) -> SiloSum:
        if not self.sums_records:
            return super().silo_sum(round=round)
        return SiloSum(self, round)

    def encode_silo(
        self, silo: SiloSum, *, shares: Shares = None, entropy: Entropy | None = None
    ) -> NDArray[Any]:
        source = system_entropy() if entropy is None else entropy
        draws = self._sampler(shares)
        total = self._rounded(silo, source)
        if draws is not None:
            total += draws.sample(total.shape, entropy=source)
        return wrap(total, self.bits)

    def encode_silos(
        self,
        silos: Iterable[SiloSum],
        *,
        shares: Shares = None,
        participants: int | None = None,
        entropy: Entropy | None = None,
        stats: EncodeStats | None = None,
    ) -> NDArray[Any]:
        source = system_entropy() if entropy is None else entropy
        total, count = np.zeros(self.coordinates, np.int64), 0
        seen = EncodeStats()
        for silo in silos:
            total += self._rounded(silo, source)
            seen.add(silo.stats)
            count += 1
        if count == 0:
            raise InvalidInput("silos is empty: at least one silo is needed")
        sums: SimpleQueue[NDArray[np.int64]] = SimpleQueue()
        sums.put(total)
        noisy = count if participants is None else participants
        validation.whole(count, participants=noisy)
        self._add_noise(sums, noisy, shares, entropy)
        if stats is not None:
            seen.wrapped_coordinates = self.overflow(total)
            stats.add(seen)
        return wrap(total, self.bits)

    def _rounded(self, silo: SiloSum, entropy: Entropy) -> NDArray[np.int64]:
        if not isinstance(silo, SiloSum) or silo.mechanism != self:
            raise InvalidInput("silo: must be a sum that this mechanism's silo_sum made")
        return silo.rounded(entropy)

    def decode_units(self, total: NDArray[np.int64], *, round: int) -> NDArray[np.float64]:
        """The vector (d,) of an exact sum in units of 2^-f, before any rounding."""
        return self._decoded(total / 2.0**self.fixed_point.fraction_bits, round)


def summing_records(mechanism: Mechanism) -> SiloMechanism:
    """The mechanism itself if it can sum the records of silos, else `InvalidInput`."""
    if not isinstance(mechanism, SiloMechanism):
        raise InvalidInput(f"{mechanism.name} cannot sum records exactly; use 'smm' or 'dgm'")
    return mechanism
