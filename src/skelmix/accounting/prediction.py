"""How accurate a decoded sum will be, before anyone sends anything.

Per coordinate, in units of the user's vectors squared: noise + rounding + wrapping (less what it takes of
the first two), and for the paper's clip the bias of its shrinkage. A rotated, scaled coordinate of a vector
of norm a is close to N(0, (γa)²/d), the only approximation made here. Nothing in this file is part of a
privacy claim.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr


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
    """What wrapping adds. Negative where it takes away more noise than sum: a residue is never longer than
    the number. The sum is lost then all the same; `wrap_loss` says how much."""
    bias: float = 0.0
    kept_length: float = 1.0
    """Fraction of the true sum's length that survives clipping (below 1 only for the paper's clip)."""
    touched: float = 0.0
    """Fraction of coordinates that the L-infinity clip moves."""
    wrap_probability: float = 0.0
    """Probability that a coordinate of the sum wraps around the modulus."""
    wrap_loss: float = 0.0
    """Mean square of what the modulus takes from a coordinate, sum and noise together; never negative."""

    @property
    def mse(self) -> float:
        """The parts together, never negative: they cancel where wrapping rules, and floats with them."""
        return max(0.0, self.noise + self.rounding + self.wrap + self.bias)

    @property
    def effective_mse(self) -> float:
        """The error when all that wraps counts as lost, noise included: what scales and mechanisms are
        compared by.

        The mean squared error itself would praise a modulus that wraps everything: it bounds the noise,
        and nothing of the sum is left.
        """
        return self.noise + self.rounding + self.wrap_loss + self.bias

    def to_dict(self) -> dict[str, float]:
        """Every field, with `mse` and `effective_mse`."""
        return {"mse": self.mse, "effective_mse": self.effective_mse, **asdict(self)}


def wrap_moments(deviation: float, modulus: int) -> tuple[float, float, float]:
    """(E[W²], E[S·W], P[W ≠ 0]) for S ~ N(0, deviation²), W = S - wrap(S) and the centred window of
    `modulus` values."""
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
) -> PredictedError:
    """The error of a sum over `participants` vectors of norm `norm`, coded with scale γ into `bits` bits.

    noise_variance: variance of one coordinate of the summed integer noise. dimension: the padded one.
    roundings: how many uploads are rounded, if not one per vector: in a silo many vectors share one, a
    participant without a vector rounds nothing.
    shrink_to: the c of the paper's clip (Algorithm 5), when that clip is used. linf: the L-infinity clip on
    the integer grid.
    """
    deviation = scale * norm / math.sqrt(dimension)
    x, weight = _normal_grid()
    x = deviation * x
    y, kept, spread = x, 1.0, 0.0
    if shrink_to is not None or linf < x[0]:
        if shrink_to is not None:
            y = _shrunk(x, float(weight @ _helper(x)), shrink_to / dimension)
        y = np.minimum(y, linf)
        kept = float((weight * x) @ y) / float(weight @ x**2)
        spread = participants * max(0.0, float(weight @ y**2) - kept**2 * deviation**2)
    p = y - np.floor(y)
    # a wide coordinate has a uniform fraction, which the grid is too coarse to see
    if roundings is not None and roundings < participants:  # each upload rounds a sum of several vectors
        per_upload = participants / roundings
        rounding = roundings * _mean_rounding(sum_norm(per_upload, deviation, alignment))
    else:
        rounding = participants * (1 / 6 if deviation > 10 else float(weight @ (p * (1 - p))))
    signal = scale**2 * sum_norm(participants, norm, alignment) ** 2 / dimension
    # Before wrapping, a coordinate of the decoded sum is S = signal + error. Both are about Gaussian, so the
    # error is c·S plus a part independent of S, with c = Cov(error, S)/Var(S). Decoding gives S - W, so
    # E[(error - W)²] = E[error²] + E[W²] - 2c·E[S·W].
    variance = noise_variance + rounding + spread + kept**2 * signal
    lost, shared, probability = wrap_moments(math.sqrt(variance), 2**bits)
    covariance = noise_variance + rounding + spread - kept * (1 - kept) * signal
    unit = scale**2
    return PredictedError(
        noise=noise_variance / unit,
        rounding=rounding / unit,
        wrap=(lost - 2 * (covariance / variance if variance else 0.0) * shared) / unit,
        bias=((1 - kept) ** 2 * signal + spread) / unit,
        kept_length=kept,
        touched=float(weight @ (x > linf)),
        wrap_probability=probability,
        wrap_loss=lost / unit,
    )


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
