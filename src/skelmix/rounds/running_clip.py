"""The clip norm of a run, round after round: the plan's own, or one that each round's sum moves.

With an adaptive clip each vector becomes a joint one (`skelmix.encoding.indicator`): the vector in units of
the round's clip norm, and whether it was within it. The noisy sum of those gives an estimate of the fraction
within, and from it the next round's clip norm: a public function of what was released.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skelmix.encoding.indicator import AdaptiveClip, check_clip_norm
from skelmix.mechanisms.base import EncodeStats

if TYPE_CHECKING:
    from skelmix.planning import Plan


_LONGEST_BESIDE_THE_MEDIAN = 5
"""The search ends after this many rounds in a row with a fraction between 1/2 and the quantile.

Where many contribute nothing, no clip norm brings the fraction to the quantile (see `AdaptiveClip.split`),
but it still passes 1/2. Four doublings lead from the median to any useful quantile.
"""


class JointVectors:
    """The joint vectors of one round at its clip norm, with statistics for simulations.

    stats and broken are secrets of the vectors: never release them.

    Example:

        >>> joint = JointVectors(AdaptiveClip(), 1.0)
        >>> [block.shape for block in joint.of([np.ones((3, 2)), np.full((1, 2), np.nan)])]
        [(3, 3), (1, 3)]
        >>> joint.stats.clipped_rows, joint.broken
        (3, 1)
    """

    def __init__(self, adaptive: AdaptiveClip, clip_norm: float) -> None:
        self._adaptive, self._norm = adaptive, clip_norm
        self.stats, self.broken = EncodeStats(), 0

    @property
    def rows(self) -> int:
        """How many vectors were made joint ones, broken ones included."""
        return self.stats.participants

    def of(self, blocks: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
        """The blocks (k, d) as (k, d + 1), in one buffer that the next one overwrites.

        Zero and broken rows give zeros.
        """
        buffer = np.empty((0, 0))
        for block in blocks:
            if len(block) > len(buffer) or block.dtype != buffer.dtype:
                buffer = np.empty((len(block), block.shape[1] + 1), block.dtype)
            out = buffer[: len(block)]
            counts = self._adaptive.join(block, self._norm, out=out)
            self.stats.add(EncodeStats(len(block), counts.clipped, squared_norms=counts.squared_norms))
            self.broken += counts.broken
            yield out

    def of_one(self, vector: NDArray[Any]) -> NDArray[Any]:
        """The joint vector (d + 1,) of one vector (d,)."""
        (joint,) = self.of([vector[None]])
        return np.asarray(joint[0])


class RunningClip:
    """The clip norm of the next round, `norm`.

    Example:

        >>> import skelmix as sk
        >>> plan = sk.plan(
        ...     sk.PrivacyTarget(1.0, 1e-5), dimension=2, bits=12, bound="gdp", rounds=2, clip="adaptive",
        ...     cohort=sk.Cohort.everyone(10),
        ... )
        >>> clip = RunningClip(plan)
        >>> clip.norm, clip.take(np.array([0.1, 0.2, -0.25])), clip.norm
        (1.0, (array([0.1, 0.2]), 0.25), 2.0)
    """

    def __init__(self, plan: Plan) -> None:
        self.adaptive, self._expected = plan.adaptive_clip, plan.cohort.divisor
        self.norm = plan.first_clip_norm
        self._searching, self._side, self._beyond, self._beside = True, 0.0, 0, 0

    @property
    def stated(self) -> float | None:
        """The next round's clip norm where the server must state it; None where the plan has it."""
        return None if self.adaptive is None else self.norm

    def joint(self) -> JointVectors | None:
        """What makes this round's joint vectors; None where the clip is fixed."""
        return None if self.adaptive is None else JointVectors(self.adaptive, self.norm)

    def take(
        self, total: NDArray[np.float64], norm: float | None = None
    ) -> tuple[NDArray[np.float64], float | None]:
        """The sum of the vectors in a round's decoded sum, and the released fraction within the clip norm.

        `norm` moves on by one step. norm: the clip norm of that round, where it is not the present one. While
        the search comes down from too large a clip norm the sum may be mostly noise, and is returned as
        zeros. With a fixed clip the sum is returned as it is, and there is no fraction.
        """
        if self.adaptive is None:
            return total, None
        vector, within = self.adaptive.split(total, norm or self.norm, self._expected)
        self._move(self.adaptive, within)
        if self._searching and self._side > 0:
            vector[:] = 0  # the clip norm, and so the noise, may still be far too large
        return vector, within

    def replay(self, norm: float | None, within: float | None) -> None:
        """Repeat a recorded step, from a round's clip norm and released fraction (None: it failed)."""
        if self.adaptive is None or norm is None:
            return
        check_clip_norm(norm)
        self.norm = norm
        if within is not None:
            self._move(self.adaptive, within)

    def continue_from(self, norm: float) -> None:
        """Continue with a clip norm that an earlier run has found, without a search."""
        check_clip_norm(norm)
        self.norm, self._searching = norm, False

    def _move(self, adaptive: AdaptiveClip, within: float) -> None:
        """One step. Two rounds in a row that overshoot end the search, since a single one may be noise.

        So do five rounds between the median and the quantile: so few contribute that it cannot be reached.
        """
        side = math.copysign(1.0, within - adaptive.quantile)
        self._side = self._side or side
        self._beyond = self._beyond + 1 if side != self._side else 0
        self._beside = self._beside + 1 if (within - 0.5) * (within - adaptive.quantile) < 0 else 0
        arrived = self._beyond == 2 or self._beside == _LONGEST_BESIDE_THE_MEDIAN
        self._searching = self._searching and not arrived
        self.norm = adaptive.next(self.norm, within, searching=self._searching and self._beyond == 0)
