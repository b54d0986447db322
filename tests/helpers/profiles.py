"""Exact privacy profiles of the mixture mechanism, by enumeration or convolution: what certificates are held
against.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from skelmix.noise.laws import Law

Floats = NDArray[np.float64]


def gaussian_profile(epsilon: Any, mu: float) -> Floats:
    """H_ε(N(mu,1)‖N(0,1)), the same both ways round."""
    epsilon = np.asarray(epsilon, dtype=float)
    near, far = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
    return np.asarray(np.exp(near) * -np.expm1(np.minimum(epsilon + far - near, 0)))


def pair(law: Law, x: float, reach: int) -> tuple[Floats, Floats]:
    """(P_0, P_x) on k = -reach..reach: x rounded at random, plus noise."""
    s, p = math.floor(x), x - math.floor(x)
    k = np.arange(-reach, reach + 1)
    return law.pmf(k), (1 - p) * law.pmf(k - s) + p * law.pmf(k - s - 1)


def silo_pair(law: Law, base: float, x: float, reach: int) -> tuple[Floats, Floats]:
    """(without, with) a record x on top of the rest of its silo: base and base + x, each rounded at random,
    plus noise."""
    k = np.arange(-reach, reach + 1)

    def rounded(value: float) -> Floats:
        s, p = math.floor(value), value - math.floor(value)
        return (1 - p) * law.pmf(k - s) + p * law.pmf(k - s - 1)

    return rounded(base), rounded(base + x)


def product_pair(law: Law, xs: Iterable[float], reach: int) -> tuple[Floats, Floats]:
    """The pair of a few coordinates, enumerated."""
    first, second = np.ones(1), np.ones(1)
    for x in xs:
        p, q = pair(law, x, reach)
        first, second = np.outer(first, p).ravel(), np.outer(second, q).ravel()
    return first, second


def hockey_stick(p: Floats, q: Floats, epsilons: Iterable[float]) -> Floats:
    """H_ε(p‖q) for each ε."""
    return np.array([np.maximum(p - math.exp(e) * q, 0).sum() for e in epsilons])


def convolved_profiles(
    law: Law, coordinates: Iterable[Any], epsilons: Any, reach: int, grid: float = 2e-4, cells: int = 2**18
) -> tuple[Floats, Floats]:
    """(H_ε(with‖without), H_ε(without‖with)) for coordinates [(x, how many)] or [(x, how many, base)], by
    convolution of the privacy loss under the law without x. The base is 0 unless given; -x reverses the pair.

    Each loss is split between its neighbours on the grid so that P_0 and P_x both keep their mass: a slightly
    more informative pair, too large by about n·grid²/8 in mu².
    """
    spectrum = np.ones(cells // 2 + 1, dtype=complex)
    for x, count, *base in coordinates:
        p, q = silo_pair(law, base[0], x, reach) if base else pair(law, x, reach)
        keep = p > 1e-40
        p, ratio = p[keep], (q / np.where(p > 0, p, 1))[keep]
        cell = np.floor(np.log(ratio) / grid).astype(int)
        low, high = np.exp(cell * grid), np.exp((cell + 1) * grid)
        up = (ratio - low) / (high - low)
        mass = np.zeros(cells)
        # tilted by r^(1/2), so that both tails keep their digits
        np.add.at(mass, cell % cells, p * (1 - up) * np.sqrt(low))
        np.add.at(mass, (cell + 1) % cells, p * up * np.sqrt(high))
        spectrum *= np.fft.rfft(mass) ** count
    tilted = np.maximum(np.fft.irfft(spectrum, cells), 0)
    loss = np.fft.fftfreq(cells, 1 / cells) * grid
    # far out there is only the transform's rounding noise; without it the profile is smaller by H_11 at most
    tilted[np.abs(loss) > 11] = 0
    forward = [(tilted * np.maximum(np.exp(loss / 2) - np.exp(e - loss / 2), 0)).sum() for e in epsilons]
    backward = [(tilted * np.maximum(np.exp(-loss / 2) - np.exp(e + loss / 2), 0)).sum() for e in epsilons]
    return np.array(forward), np.array(backward)


def needed_mu(profile: Floats, epsilons: Any) -> float:
    """The least mu whose Gaussian profile is nowhere below this one."""
    low, high = 1e-3, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if (gaussian_profile(epsilons, middle) >= profile).all() else (middle, high)
    return high
