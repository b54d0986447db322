"""What the three baselines share: L2 clip, conditional rounding, integer noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.encoding.conditional_rounding import largest_rounded_square, round_conditionally
from skelmix.encoding.wrapping import add_rows, wrap
from skelmix.mechanisms.clips import Clipped, L2Clip
from skelmix.mechanisms.mechanism import IntegerMechanism
from skelmix.noise.entropy import Entropy
from skelmix.noise.scratch_memory import scratch
from skelmix.noise.table import ExactSampler


@dataclass(frozen=True)
class ConditionallyRounded(IntegerMechanism):
    """A mechanism that rounds again until the rounded vector is not longer than c̃.

    Kairouz, Liu and Steinke 2021: the sensitivities are those of *integer* vectors, and the rounding has a
    small bias.
    """

    @cached_property
    def largest_square(self) -> int:
        """⌊c̃²⌋, for the padded dimension and β = e^(-1/2)."""
        return largest_rounded_square(self.radius, self.padded_dimension)

    @property
    def l2_sensitivity(self) -> float:
        """c̃, rounded up: the largest L2 norm of a rounded vector."""
        return math.nextafter(math.sqrt(self.largest_square), math.inf)

    @property
    def l1_sensitivity(self) -> float:
        """c̃·min(√d, c̃): in an integer vector each coordinate has |s| <= s²."""
        return self.l2_sensitivity * min(math.sqrt(self.padded_dimension), self.l2_sensitivity)

    @property
    def linf_sensitivity(self) -> float:
        """⌈γΔ⌉, and never above c̃."""
        return float(min(math.ceil(self.radius), math.isqrt(self.largest_square)))

    def _clip(self, x: NDArray[Any]) -> Clipped:
        return L2Clip().apply(x, self.radius)

    def _round_and_noise(
        self, x: NDArray[Any], draws: ExactSampler | None, out: NDArray[Any], entropy: Entropy
    ) -> None:
        integers = round_conditionally(x, self.largest_square, entropy=entropy).astype(np.int64)
        if draws is not None:
            integers += draws.sample(x.shape, entropy=entropy)
        out[:] = wrap(integers, self.bits)

    def _round_into(self, x: NDArray[Any], total: NDArray[np.int64], entropy: Entropy) -> None:
        with scratch(x.shape, np.int32) as integers:
            add_rows(round_conditionally(x, self.largest_square, out=integers, entropy=entropy), total)
