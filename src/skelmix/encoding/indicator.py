"""Find the clip norm privately: one more coordinate says whether the vector was within it.

A participant sends (g/C clipped to norm 1, β·(1{‖g‖ <= C} - 1/2)), of norm at most √(1 + β²/4): with β = 0.1
the noise for the whole grows by 0.125 %. The decoded last coordinate estimates the fraction of the vectors
that was within C, and the next round's C moves towards the wanted quantile (Andrew et al. 2021,
arXiv:1905.03871, there as a second release). That is post-processing: the guarantee is that of the joint
vector, and does not change with C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.encoding.clipping import clip_l2, float_at_most
from skelmix.errors import InvalidInput
from skelmix.validation import positive, probability

SMALLEST_CLIP = 2.0**-50
LARGEST_CLIP = 2.0**50


@dataclass(frozen=True)
class ClipIndicator:
    """The appended coordinate: ±`weight`/2, plus where the vector was within the clip norm.

    A heavier weight sees the fraction better and costs more noise: with noise σ on the unit-norm sum of n
    vectors, the fraction is known within √(1 + weight²/4)·σ/(weight·n).

    Example:

        >>> indicator = ClipIndicator(weight=0.1)
        >>> joint = indicator.append(np.array([[3.0, 4.0], [0.3, 0.4]]), clip_norm=1.0)
        >>> joint.round(2).tolist(), round(indicator.norm, 5)
        ([[0.6, 0.8, -0.05], [0.3, 0.4, 0.05]], 1.00125)
        >>> vector, fraction = indicator.split(joint.sum(0), clip_norm=1.0, expected=2)
        >>> vector.round(2).tolist(), fraction
        ([0.9, 1.2], 0.5)
    """

    weight: float = 0.1

    def __post_init__(self) -> None:
        positive(weight=self.weight)
        if not 2.0**-20 <= self.weight <= 2.0:
            raise InvalidInput(
                f"weight = {self.weight}: must be within 2^-20..2; 0.1 costs 0.125 % more noise"
            )

    @property
    def norm(self) -> float:
        """L2 bound of every joint vector, rounded up: make the plan for this norm, with clip norm 1."""
        return math.nextafter(math.sqrt(1 + self.weight**2 / 4) * (1 + 2.0**-51), math.inf)

    def append(
        self, vectors: NDArray[Any], clip_norm: float, *, contributes: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """The joint vectors (n, d + 1) of (n, d) float32 or float64 ones, of exact norm at most `norm` each.

        A row that contributes nothing is all zeros, the indicator included: its usual value for g = 0 would
        be weight/2, a trace of somebody who is not there. That holds for rows that `contributes` marks False
        and for rows with NaN or infinity. A norm within rounding of the clip counts as beyond it.
        """
        _check_clip(clip_norm)
        if vectors.ndim != 2 or vectors.dtype not in (np.float32, np.float64):
            raise InvalidInput(
                f"vectors is {vectors.dtype} of shape {vectors.shape}: must be (participants, d) of float32 "
                "or float64"
            )
        present = np.isfinite(vectors).all(axis=1)
        if contributes is not None:
            if contributes.shape != present.shape or contributes.dtype != np.bool_:
                raise InvalidInput(
                    f"contributes has shape {contributes.shape}: give one bool for each of the "
                    f"{len(vectors)} vectors"
                )
            present &= contributes
        unit = np.where(present[:, None], vectors, vectors.dtype.type(0))
        clipped, _ = clip_l2(unit, clip_norm)  # first in its own scale: dividing might overflow
        unit /= vectors.dtype.type(clip_norm)
        clip_l2(unit, 1.0)  # the quotients' rounding
        half = float_at_most(self.weight / 2, vectors.dtype)
        indicators = np.where(present, np.where(clipped, -half, half), vectors.dtype.type(0))
        return np.concatenate([unit, indicators[:, None].astype(vectors.dtype)], axis=1)

    def split(
        self, total: NDArray[np.float64], clip_norm: float, expected: float
    ) -> tuple[NDArray[np.float64], float]:
        """Split a decoded sum (d + 1,) into the vectors' sum and the fraction within the clip norm.

        Both are estimates: the sum of the clipped vectors in their own scale, the fraction in [0, 1].

        `expected` is the public number of contributions that the plan expects. The true number is secret:
        where fewer came, the estimate is drawn towards 1/2.
        """
        _check_clip(clip_norm)
        positive(expected=expected)
        if total.ndim != 1 or len(total) < 2 or not np.isfinite(total).all():
            raise InvalidInput(f"total has shape {total.shape}: must be a finite (d + 1,) vector")
        fraction = 0.5 + float(total[-1]) / (self.weight * expected)
        return total[:-1] * clip_norm, min(1.0, max(0.0, fraction))


@dataclass(frozen=True)
class AdaptiveClip:
    """The clip norm's path: `start`, then steps towards the `quantile` of the vectors' norms.

    A step multiplies by exp(-rate·(fraction - quantile)): at most by e^rate, so that a start 30 times too
    small or too large is mended within log(30)/(rate/2) rounds or so, 34 with the rate of 0.2.

    Example:

        >>> clip = AdaptiveClip(start=1.0)
        >>> round(clip.next(1.0, fraction=1.0), 4), round(clip.next(1.0, fraction=0.0), 4)
        (0.9048, 1.1052)
    """

    start: float = 1.0
    quantile: float = 0.5
    rate: float = 0.2

    def __post_init__(self) -> None:
        _check_clip(self.start, name="start")
        probability(quantile=self.quantile)
        positive(rate=self.rate)

    def next(self, clip_norm: float, fraction: float) -> float:
        """The next round's clip norm, from the last one and the `fraction` of vectors that were within it.

        It stays within 2^-50..2^50.
        """
        _check_clip(clip_norm)
        if not 0 <= fraction <= 1:
            raise InvalidInput(f"fraction = {fraction}: must be in [0, 1]; clamp the estimate")
        following = clip_norm * math.exp(-self.rate * (fraction - self.quantile))
        return min(LARGEST_CLIP, max(SMALLEST_CLIP, following))


def _check_clip(value: float, name: str = "clip_norm") -> None:
    positive(**{name: value})
    if not SMALLEST_CLIP <= value <= LARGEST_CLIP:
        raise InvalidInput(f"{name} = {value}: must be within 2^-50..2^50; rescale the loss")
