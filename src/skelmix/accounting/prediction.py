"""How accurate a decoded sum will be, before anyone sends anything.

Per coordinate, in units of the user's vectors squared: noise + rounding + wrapping (less the noise and
rounding that it removes), the bias of a clip that shrinks vectors, and, if only some coordinates are sent,
the variance of choosing them. A rotated vector of norm a is taken for one in a random direction: its
coordinates, scaled, are close to N(0, (γa)²/d), and a subset of k of them has the share Beta(k/2, (d-k)/2) of
its squared length. Nothing in this file is part of a privacy claim.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, betaln, ndtr


@dataclass(frozen=True)
class PredictedError:
    """Mean squared error of one coordinate of the sum, and what it is made of.

    Example:

        >>> PredictedError(noise=4.0, rounding=0.5, wrap=0.0).mse
        4.5
    """

    noise: float
    rounding: float
    wrap: float
    """What wrapping adds to the mean squared error; it may be negative.

    That happens where it takes away more noise than sum: a residue is never longer than the number. The sum
    is lost all the same; `wrap_loss` says how much.
    """
    bias: float = 0.0
    kept_length: float = 1.0
    """Fraction of the true sum's length that survives clipping.

    It is below 1 for the paper's clip, and where the kept coordinates of a vector are clipped.
    """
    touched: float = 0.0
    """Fraction of coordinates that the L-infinity clip moves."""
    wrap_probability: float = 0.0
    """Probability that a coordinate of the sum wraps around the modulus."""
    wrap_loss: float = 0.0
    """Mean square of what the modulus takes from a coordinate, sum and noise together; never negative."""
    sketch: float = 0.0
    """Variance of sending a random subset of the coordinates: it grows with the length of the sum."""

    @property
    def mse(self) -> float:
        """The sum of the parts, never negative: where wrapping dominates they cancel up to rounding error."""
        return max(0.0, self.noise + self.rounding + self.wrap + self.bias + self.sketch)

    @property
    def deviation(self) -> float:
        """The error in the units of the vectors: the root of `mse`, a standard deviation."""
        return math.sqrt(self.mse)

    @property
    def effective_mse(self) -> float:
        """The error when everything that wraps counts as lost, noise included: use it to compare plans.

        The mean squared error itself would favour a modulus that wraps everything: that bounds the noise, but
        leaves nothing of the sum.
        """
        return self.noise + self.rounding + self.wrap_loss + self.bias + self.sketch

    def to_dict(self) -> dict[str, float]:
        """Every field, with `mse`, `deviation` and `effective_mse`."""
        return {
            "mse": self.mse,
            "deviation": self.deviation,
            "effective_mse": self.effective_mse,
            **asdict(self),
        }


def wrap_moments(deviation: float, modulus: int) -> tuple[float, float, float]:
    """The moments (E[W²], E[S·W], P[W ≠ 0]) of what wrapping takes away, W = S - wrap(S).

    S ~ N(0, deviation²), and the window of `modulus` values is centred.
    """
    if deviation == 0:
        return 0.0, 0.0, 0.0
    if deviation > 4 * modulus:  # wrap(S) is uniform and independent of S, but for exp(-300)
        return deviation**2 + modulus**2 / 12, deviation**2, 2 * float(ndtr(-modulus / deviation / 2))
    j = np.arange(1, 2 + math.ceil(40 * deviation / modulus))
    edge = (j - 0.5) * modulus / deviation  # W = ±m·(how many edges S is beyond)
    tail = ndtr(-edge)
    density = np.exp(-(edge**2) / 2) / math.sqrt(2 * math.pi)
    return (
        float(2 * modulus**2 * ((2 * j - 1) @ tail)),
        float(2 * modulus * deviation * density.sum()),
        float(2 * tail[0]),
    )


def sum_norm(participants: float, norm: float, alignment: float) -> float:
    """Length of a sum of vectors of equal norm whose mean pairwise cosine is `alignment`."""
    return norm * math.sqrt(participants * (1 + max(0.0, participants - 1) * alignment))


def subset_moments(keep: int, dimension: int, reach: float) -> tuple[float, float]:
    """What a clip at `reach` times a vector's norm leaves of `keep` of its coordinates.

    The result is the fractions of their length and of their squared norm, each 1 without a clip. The vector
    has a random direction.

    With B ~ Beta(k/2, (d-k)/2), the subset's share of the squared norm, they are (d/k)·E[min(B, reach·√B)]
    and (d/k)·E[min(B, reach²)].
    """
    cut = reach * reach
    if cut >= 1:
        return 1.0, 1.0
    if keep == dimension:
        return reach, cut
    a, b = keep / 2, (dimension - keep) / 2
    inside = float(betainc(a + 1, b, cut))  # d/k·E[B; B < cut]
    root = math.exp(betaln(a + 0.5, b) - betaln(a, b)) * float(betaincc(a + 0.5, b, cut))  # E[√B; B > cut]
    outside = float(betaincc(a, b, cut))
    return inside + dimension / keep * reach * root, inside + dimension / keep * cut * outside


def predict(
    *,
    noise_variance: float,
    participants: float,
    norm: float,
    scale: float,
    dimension: int,
    bits: int,
    alignment: float,
    roundings: float | None = None,
    shrink_to: float | None = None,
    linf: float = math.inf,
    keep: int | None = None,
    radius: float = math.inf,
) -> PredictedError:
    """The error of a sum over `participants` vectors of norm `norm`, coded with scale γ into `bits` bits.

    noise_variance: variance of one coordinate of the summed integer noise. dimension: after padding.
    roundings: how many uploads are rounded, by default one per vector. In a silo many vectors share one
    rounding; a participant without a vector rounds nothing. shrink_to: the c of the paper's clip (Algorithm
    5), when that clip is used. linf: the L-infinity clip on the integer grid. keep: how many coordinates are
    sent, None for all. radius: the L2 clip of those, on the integer grid.
    """
    deviation = scale * norm / math.sqrt(dimension)
    sent = dimension if keep is None else keep
    left = subset_moments(sent, dimension, radius / (scale * norm)) if keep else (1.0, 1.0)
    kept, second, rounding, touched = _after_clips(deviation, *left, shrink_to, dimension, linf)
    # What a clip leaves of a vector is kept·x plus a part uncorrelated with x. The covariance of two such
    # parts, of vectors with cosine ρ, has ρ³ and higher odd powers: a clip is odd, the first is in `kept`.
    together = participants * (1 + max(0.0, participants - 1) * alignment**3)
    spread = together * max(0.0, second - kept**2) * deviation**2
    if roundings is not None and roundings < participants:  # each upload rounds a sum of several vectors
        rounding = roundings * _mean_rounding(sum_norm(participants / roundings, deviation, alignment))
    else:
        rounding *= participants
    signal = scale**2 * sum_norm(participants, norm, alignment) ** 2 / dimension
    # Before wrapping, a coordinate of the decoded sum is S = signal + error. Both are about Gaussian, so the
    # error is c·S plus a part independent of S, with c = Cov(error, S)/Var(S). Decoding gives S - W, so
    # E[(error - W)²] = E[error²] + E[W²] - 2c·E[S·W].
    variance = noise_variance + rounding + spread + kept**2 * signal
    wrapped_squares, shared, probability = wrap_moments(math.sqrt(variance), 2**bits)
    # What is decoded of a sent coordinate counts d/k times, and its square spreads over d/k coordinates.
    times = dimension / sent
    covariance = times * variance - kept * signal
    unit = scale**2
    return PredictedError(
        noise=times * noise_variance / unit,
        rounding=times * rounding / unit,
        wrap=(times * wrapped_squares - 2 * (covariance / variance if variance else 0.0) * shared) / unit,
        bias=((1 - kept) ** 2 * signal + times * spread) / unit,
        kept_length=kept,
        touched=touched,
        wrap_probability=probability,
        wrap_loss=times * wrapped_squares / unit,
        sketch=(times - 1) * kept**2 * signal / unit,
    )


def _after_clips(
    deviation: float, kept: float, second: float, shrink_to: float | None, dimension: int, linf: float
) -> tuple[float, float, float, float]:
    """What is left after the clip of the coordinates, given what the subset's clip left: (kept, second).

    The fractions of a vector's length and squared norm, E[p(1-p)] of its coordinates, and how many it moves.
    """
    x, weight = _normal_grid()
    x = deviation * math.sqrt(second) * x
    y = x if shrink_to is None else _shrunk(x, float(weight @ _helper(x)), shrink_to / dimension)
    if y is not x or linf < x[0]:
        y = np.minimum(y, linf)
        kept *= float((weight * x) @ y) / float(weight @ x**2)
        second *= float(weight @ y**2) / float(weight @ x**2)
    p = y - np.floor(y)
    # a wide coordinate has a uniform fraction, which the grid is too coarse to see
    rounding = 1 / 6 if deviation > 10 else float(weight @ (p * (1 - p)))
    return kept, second, rounding, float(weight @ (x > linf))


def _mean_rounding(deviation: float) -> float:
    """E[p(1-p)] for the fraction p of a coordinate ~ N(0, deviation²)."""
    if deviation > 10:
        return 1 / 6
    x, weight = _normal_grid()
    p = deviation * x - np.floor(deviation * x)
    return float(weight @ (p * (1 - p)))


def _helper(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """v of Algorithm 5, line 3 (corrected): the straight line between k² and (k+1)²."""
    k = np.floor(x)
    return k * k + (2 * k + 1) * (x - k)


def _shrunk(x: NDArray[np.float64], mean_v: float, allowed: float) -> NDArray[np.float64]:
    """Algorithm 5, lines 4 to 8, for a long vector: ‖v‖₁ is its mean times d."""
    v = _helper(x) * min(1.0, allowed / mean_v)
    k = np.floor(np.sqrt(v))
    return k + (v - k * k) / (2 * k + 1)


@lru_cache(maxsize=1)
def _normal_grid() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Midpoints and weights of |N(0, 1)| on a fine grid up to 9, outermost first."""
    edges = np.linspace(9, 0, 6_001)
    weight = np.diff(ndtr(edges)) * -2
    return (edges[1:] + edges[:-1]) / 2, weight / weight.sum()
