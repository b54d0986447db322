"""The sums over the noise's levels that the flat certificate is made of, one pass each."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@njit(cache=True, nogil=True)
def power_sums(  # pragma: no cover
    mass: FloatArray, start: FloatArray, end: FloatArray, unit: float, orders: int
) -> tuple[FloatArray, FloatArray]:
    """E[a^i (b-a)^j] for i + j < orders, and rows E[a^l], E[b^l], E[((a+b)/2)^l], E[max(|a|,|b|)^l·|b-a|]; a
    = start/unit, b = end/unit.
    """
    joint = np.zeros((orders, orders))
    rows = np.zeros((4, orders))
    slopes = np.empty(orders)
    for k in range(len(mass)):
        a, b = start[k] / unit, end[k] / unit
        slope = b - a
        power = 1.0
        for j in range(orders):
            slopes[j] = power
            power *= slope
        power = mass[k]
        for i in range(orders):
            for j in range(orders - i):
                joint[i, j] += power * slopes[j]
            power *= a
        middle, widest = (a + b) / 2, max(abs(a), abs(b))
        p, q, r, s = mass[k], mass[k], mass[k], mass[k] * abs(slope)
        for l in range(orders):
            rows[0, l] += p
            rows[1, l] += q
            rows[2, l] += r
            rows[3, l] += s
            p, q, r, s = p * a, q * b, r * middle, s * widest
    return joint, rows


@njit(cache=True, nogil=True)
def tilted_modulus(  # pragma: no cover
    mass: FloatArray, rows: FloatArray, u: float, first: float, step: float, count: int
) -> tuple[FloatArray, float, float, float]:
    """|E r^(u+iω)| at ω = first, first + step, …, for the middle r of a piece of x, and what bounds its
    change. rows: ln r in the middle, at the start and at the end of the piece, and |r_end - r_start|.

    Returns (moduli, E[r^u|ln r - mean|], E[max(r_start, r_end)^(u-1)·|r_end - r_start|] with the larger
    power, E[r^u]).
    """
    cosines, sines, weights = np.zeros(count), np.zeros(count), np.empty(len(mass))
    total, mean, steep = 0.0, 0.0, 0.0
    for k in range(len(mass)):
        weights[k] = mass[k] * math.exp(u * rows[0, k])
        total += weights[k]
        mean += weights[k] * rows[0, k]
        steep += mass[k] * math.exp(max((u - 1) * rows[1, k], (u - 1) * rows[2, k])) * rows[3, k]
    mean /= total
    spread = 0.0
    for k in range(len(mass)):
        weight = weights[k]
        log = rows[0, k] - mean  # a phase: the modulus stays, the Lipschitz constant shrinks
        spread += weight * abs(log)
        if weight < 1e-18 * total:  # counted in full by the caller's margin
            continue
        c, s = math.cos(first * log), math.sin(first * log)
        turn_c, turn_s = math.cos(step * log), math.sin(step * log)
        for j in range(count):
            cosines[j] += weight * c
            sines[j] += weight * s
            c, s = c * turn_c - s * turn_s, s * turn_c + c * turn_s
    return np.hypot(cosines, sines), spread, steep, total
