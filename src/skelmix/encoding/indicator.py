"""Find the clip norm privately: one more coordinate says whether the vector was within it.

In place of g a participant sends (g/C clipped to norm 1, β·(1{‖g‖ <= C} - 1/2)), of norm at most √(1 + β²/4):
with β = 0.1 the noise for the whole grows by 0.125 %. The last coordinate of the decoded sum estimates the
fraction of the vectors that was within C, and the next round's C moves towards the wanted quantile (Andrew et
al. 2021, arXiv:1905.03871, there as a second release). That is post-processing: the guarantee is that of the
joint vector, for any C, and the plan does not change with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.validation import positive, probability

if TYPE_CHECKING:
    from skelmix.encoding.record_sum import Counts

SMALLEST_CLIP = 2.0**-50
LARGEST_CLIP = 2.0**50
_LEAP = math.log(2.0)  # change of log C per round of the search


@dataclass(frozen=True)
class AdaptiveClip:
    """A clip norm that adapts by itself: it begins at `start` and moves towards a quantile of the norms.

    start: the first round's clip norm C. It doubles or halves per round until the estimated fraction of
    vectors within C has crossed the quantile; from then on it moves by exp(-rate·(fraction - quantile)). See
    `skelmix.rounds.running_clip` for the search. quantile: the fraction of vectors that shall be within C.
    Records that a model has learned have short gradients: at the median, C would shrink with them, and so
    would the effective learning rate. rate: η. weight: β, the height of the indicator; a heavier one sees the
    fraction better and costs more noise, √(1 + β²/4) times as much in all.

    Example:

        >>> clip = AdaptiveClip(start=1.0)
        >>> joint = np.empty((2, 3))
        >>> clip.join(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0, out=joint).clipped
        1
        >>> joint.round(2).tolist(), round(clip.norm, 5)
        ([[0.6, 0.8, -0.05], [0.3, 0.4, 0.05]], 1.00125)
        >>> vector, fraction = clip.split(joint.sum(0), clip_norm=1.0, expected=2)
        >>> vector.round(2).tolist(), fraction
        ([0.9, 1.2], 0.5)
        >>> round(clip.next(1.0, fraction=1.0), 4), clip.next(1.0, fraction=1.0, searching=True)
        (0.9608, 0.5)
    """

    start: float = 1.0
    quantile: float = 0.8
    rate: float = 0.2
    weight: float = 0.1

    def __post_init__(self) -> None:
        check_clip_norm(self.start, name="start")
        probability(quantile=self.quantile)
        positive(rate=self.rate, weight=self.weight)
        if self.rate > 5:
            raise InvalidInput(f"rate = {self.rate}: must be at most 5, or the clip norm jumps too far")
        if not 2.0**-20 <= self.weight <= 2.0:
            raise InvalidInput(
                f"weight = {self.weight}: must be within 2^-20..2; 0.1 costs 0.125 % more noise"
            )

    @property
    def norm(self) -> float:
        """L2 bound of every joint vector, rounded up: the norm that the noise is for, whatever C is."""
        return math.nextafter(math.sqrt(1 + self.weight**2 / 4) * (1 + 2.0**-51), math.inf)

    def join(self, vectors: NDArray[Any], clip_norm: float, *, out: NDArray[Any]) -> Counts:
        """out = the joint vectors (n, d + 1) of (n, d) ones, of exact norm at most `norm` each.

        Both are float32 or both float64; `out` is C-contiguous.

        A row of zeros, from somebody who contributes nothing, stays zeros: an indicator for g = 0 would show
        that the participant was there. A row with NaN or infinity, or with squares that overflow, counts as
        zeros too. A norm within rounding of the clip counts as beyond it. What becomes of a row depends on
        that row and on C alone. The counts are secrets of the vectors.
        """
        check_clip_norm(clip_norm)
        if vectors.ndim != 2 or vectors.dtype not in (np.float32, np.float64):
            raise InvalidInput(
                f"vectors is {vectors.dtype} of shape {vectors.shape}: must be (participants, d) of float32 "
                "or float64"
            )
        wanted = (vectors.shape[0], vectors.shape[1] + 1)
        if out.shape != wanted or out.dtype != vectors.dtype or not out.flags.c_contiguous:
            raise InvalidInput(f"out: must be a C-contiguous array of {vectors.dtype} and shape {wanted}")
        from skelmix.encoding.joint_vectors import (
            join_rows,
        )  # loads numba, which nodes that only check a plan need not

        return join_rows(np.ascontiguousarray(vectors), float(clip_norm), self.weight / 2, out)

    def split(
        self, total: NDArray[np.float64], clip_norm: float, expected: float
    ) -> tuple[NDArray[np.float64], float]:
        """Split a decoded sum (d + 1,) into the vectors' sum and the fraction within the clip norm.

        Both are estimates: the sum of the clipped vectors in their own scale, the fraction in [0, 1].

        `expected` is the public number of contributions that the plan expects. The true number is secret:
        where fewer came, the estimate is drawn towards 1/2.
        """
        check_clip_norm(clip_norm)
        positive(expected=expected)
        if total.ndim != 1 or len(total) < 2 or not np.isfinite(total).all():
            raise InvalidInput(f"total has shape {total.shape}: must be a finite (d + 1,) vector")
        fraction = 0.5 + float(total[-1]) / (self.weight * expected)
        return total[:-1] * clip_norm, min(1.0, max(0.0, fraction))

    def next(self, clip_norm: float, fraction: float, *, searching: bool = False) -> float:
        """The next round's clip norm, from the last one and the `fraction` of vectors that were within it.

        searching: double or halve it. The result stays within 2^-50..2^50.
        """
        check_clip_norm(clip_norm)
        if not 0 <= fraction <= 1:
            raise InvalidInput(f"fraction = {fraction}: must be in [0, 1]; clamp the estimate")
        step = self.rate * (fraction - self.quantile)
        if searching:
            step = math.copysign(_LEAP, step)
        return min(LARGEST_CLIP, max(SMALLEST_CLIP, clip_norm * math.exp(-step)))

    def reachable(self, clip_norm: float, steps: int) -> bool:
        """Whether the clip norm can be `clip_norm` after at most this many steps, whatever was released."""
        if not SMALLEST_CLIP <= clip_norm <= LARGEST_CLIP:
            return False
        farthest = steps * max(_LEAP, self.rate) + 1e-6  # largest change of log C, and its rounding error
        return abs(math.log(clip_norm / self.start)) <= farthest


def check_clip_norm(value: float, name: str = "clip_norm") -> None:
    """Raise `InvalidInput` unless this can be a clip norm."""
    positive(**{name: value})
    if not SMALLEST_CLIP <= value <= LARGEST_CLIP:
        raise InvalidInput(f"{name} = {value}: must be within 2^-50..2^50; rescale the loss")
