"""The three clips of the mixtures: each bounds a participant's vector on the integer grid before rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skelmix.encoding.clipping import (
    MAX_BOUND,
    MIN_BOUND,
    clip_l2,
    clip_linf,
    clip_mixture,
    sum_of_squares,
)
from skelmix.errors import InvalidInput
from skelmix.validation import positive, whole


@dataclass(frozen=True)
class Clipped:
    """What a clip changed: rows, coordinates (by the L-infinity clamp), and Σ‖x‖² of the rows before it."""

    rows: int
    coordinates: int
    squared_norms: float


def _total(squares: ArrayLike) -> float:
    with np.errstate(over="ignore"):
        return float(np.sum(squares))


@dataclass(frozen=True)
class L2Clip:
    """‖x‖₂ <= γΔ and nothing else: all that the certified bound of the mixtures needs.

    Example:

        >>> import numpy as np
        >>> x = np.array([[3.0, 4.0]])
        >>> L2Clip().apply(x, 1.0).rows, bool(np.linalg.norm(x) <= 1.0)
        (1, True)
    """

    kind = "l2"

    def apply(self, x: NDArray[Any], radius: float) -> Clipped:
        """Clip the rows of x (n, d) in place."""
        changed, squares = clip_l2(x, radius)
        return Clipped(int(changed.sum()), 0, _total(squares))

    def bounds(self, radius: float, dimension: int) -> tuple[float, float, float]:
        """(L1, L2, L-infinity) bounds of a clipped vector with radius γΔ."""
        return math.sqrt(dimension) * radius, radius, radius


@dataclass(frozen=True)
class FlatClip:
    """‖x‖₂ <= γΔ, then |x_j| <= linf on the integer grid: after rotation few coordinates are touched.

    linf > 0 is a real number; it makes the mixture a Gaussian mechanism for every accountant.

    Example:

        >>> import numpy as np
        >>> x = np.array([[0.9, 0.1]])
        >>> FlatClip(0.5).apply(x, 1.0).coordinates, x.tolist()
        (1, [[0.5, 0.1]])
    """

    linf: float
    kind = "flat"

    def __post_init__(self) -> None:
        positive(linf=self.linf)
        if not MIN_BOUND <= self.linf <= MAX_BOUND:
            raise InvalidInput(f"linf = {self.linf}: must be within 2^-400..2^52; change the scale")

    def apply(self, x: NDArray[Any], radius: float) -> Clipped:
        """Clip the rows of x (n, d) in place."""
        changed, squares = clip_l2(x, radius)
        return Clipped(int(changed.sum()), clip_linf(x, self.linf), _total(squares))

    def bounds(self, radius: float, dimension: int) -> tuple[float, float, float]:
        """(L1, L2, L-infinity) bounds of a clipped vector with radius γΔ."""
        root = math.sqrt(dimension)
        largest = min(self.linf, radius)
        return min(root * radius, dimension * largest), min(radius, root * largest), largest


@dataclass(frozen=True)
class MixtureClip:
    """The paper's Algorithm 5: Σ(x² + p - p²) <= c and ⌈|x_j|⌉ <= linf, an integer >= 1.

    By default c = γ²Δ².

    Example:

        >>> MixtureClip(linf=2).threshold(64.0)
        4096.0
    """

    linf: int
    c: float | None = None
    kind = "mixture"

    def __post_init__(self) -> None:
        whole(1, int(MAX_BOUND), linf=self.linf)
        if self.c is not None:
            positive(c=self.c)

    def threshold(self, radius: float) -> float:
        """c: as given, else γ²Δ²."""
        return radius * radius if self.c is None else float(self.c)

    def apply(self, x: NDArray[Any], radius: float) -> Clipped:
        """Clip the rows of x (n, d) in place."""
        squares = _total([sum_of_squares(row) for row in x])
        changed, touched = clip_mixture(x, self.threshold(radius), self.linf)
        return Clipped(int(changed.sum()), touched, squares)

    def bounds(self, radius: float, dimension: int) -> tuple[float, float, float]:
        """(L1, L2, L-infinity) bounds of a clipped vector with radius γΔ."""
        c = self.threshold(radius)  # x² <= v and |x| <= v coordinate by coordinate
        return min(c, math.sqrt(dimension * c)), math.sqrt(c), float(self.linf)


Clip = L2Clip | FlatClip | MixtureClip


def clip_to_dict(clip: Clip) -> dict[str, Any]:
    return {"kind": clip.kind, **vars(clip)}


def clip_from_dict(data: Any) -> Clip:
    """The clip that `clip_to_dict` wrote; unknown kinds and fields raise `InvalidInput`."""
    kinds: dict[str, type[Clip]] = {"l2": L2Clip, "flat": FlatClip, "mixture": MixtureClip}
    fields = dict(data) if isinstance(data, dict) else {}
    kind = kinds.get(str(fields.pop("kind", None)))
    if kind is None:
        raise InvalidInput(f"clip = {data!r}: must be an object whose kind is one of {', '.join(kinds)}")
    try:
        return kind(**fields)
    except TypeError as error:
        raise InvalidInput(f"clip = {data!r}: {error}") from error
