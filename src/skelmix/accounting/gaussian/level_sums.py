"""The sums over the noise's levels that the flat certificate is made of, one pass each."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from skelmix.arrays import FloatArray

_BLOCK = 128  # levels at a time: what is made of them stays in the nearest cache


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def power_sums(
    mass: FloatArray, start: FloatArray, end: FloatArray, unit: float, orders: int
) -> tuple[FloatArray, FloatArray]:
    """The sums of powers and joint powers of a = start/unit and b = end/unit.

    E[a^i (b-a)^j] for i + j < orders, and rows E[a^l], E[b^l], E[((a+b)/2)^l], E[max(|a|,|b|)^l·|b-a|].
    """
    joint, rows = np.zeros((orders, orders)), np.zeros((4, orders))
    powers, slopes = np.empty((orders, _BLOCK)), np.empty((orders, _BLOCK))
    factors, terms = np.empty((4, _BLOCK)), np.empty((4, _BLOCK))
    for first in range(0, len(mass), _BLOCK):
        size = min(_BLOCK, len(mass) - first)
        for k in range(size):
            m, a, b = mass[first + k], start[first + k] / unit, end[first + k] / unit
            factors[0, k], factors[1, k], factors[2, k], factors[3, k] = (
                a,
                b,
                (a + b) / 2,
                max(abs(a), abs(b)),
            )
            terms[0, k], terms[1, k], terms[2, k], terms[3, k] = m, m, m, m * abs(b - a)
            powers[0, k], slopes[0, k] = m, 1.0
        for i in range(1, orders):
            for k in range(size):
                powers[i, k] = powers[i - 1, k] * factors[0, k]
                slopes[i, k] = slopes[i - 1, k] * (factors[1, k] - factors[0, k])
        for i in range(orders):
            for j in range(orders - i):
                total = 0.0
                for k in range(size):
                    total += powers[i, k] * slopes[j, k]
                joint[i, j] += total
        for row in range(4):
            for l in range(orders):
                total = 0.0
                for k in range(size):
                    total += terms[row, k]
                    terms[row, k] *= factors[row, k]
                rows[row, l] += total
    return joint, rows


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def tilted_modulus(
    mass: FloatArray, rows: FloatArray, offsets: FloatArray, first: float, step: float, count: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """The moduli |E r^(u+iω)| with the middle r of a piece of x, and what bounds their change.

    Columns: ω = first, first + step, … Rows: u = 1/2 + each offset, then 1/2 - each offset. rows: ln r in the
    middle, the smaller and the larger one of both ends of the piece, and |r_end - r_start|. offsets rise from
    0 on.

    Returns (moduli, E[r^u|ln r - mean|], E[max(r_start^(u-1), r_end^(u-1))·|r_end - r_start|], E[r^u]), the
    last three for each u. Left to the caller's margin: levels that weigh less than 1e-18, and rounding, with
    the additions in any order.
    """
    low, high = _heavy(mass, rows[0], offsets[-1])
    tilts, levels = 2 * len(offsets), high - low
    weights, steep = _tilted(mass[low:high], np.ascontiguousarray(rows[:, low:high]), offsets)
    logs = rows[0, low:high]
    cosines, sines = np.zeros((tilts, count)), np.zeros((tilts, count))
    c, s, turn_c, turn_s = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, levels, _BLOCK):
        size = min(_BLOCK, levels - start)
        for k in range(size):
            log = logs[start + k]
            c[k], s[k] = math.cos(first * log), math.sin(first * log)
            turn_c[k], turn_s[k] = math.cos(step * log), math.sin(step * log)
        for j in range(count):
            for i in range(tilts):
                x, y = 0.0, 0.0
                for k in range(size):
                    x += weights[i, start + k] * c[k]
                    y += weights[i, start + k] * s[k]
                cosines[i, j] += x
                sines[i, j] += y
            for k in range(size):
                turned = c[k] * turn_c[k] - s[k] * turn_s[k]
                s[k] = s[k] * turn_c[k] + c[k] * turn_s[k]
                c[k] = turned
    total, spread = np.empty(tilts), np.empty(tilts)
    for i in range(tilts):
        x, y = 0.0, 0.0
        for k in range(levels):
            x += weights[i, k]
            y += weights[i, k] * logs[k]
        mean, y = y / x, 0.0  # turns all phases alike: the modulus stays, the Lipschitz constant shrinks
        for k in range(levels):
            y += weights[i, k] * abs(logs[k] - mean)
        total[i], spread[i] = x, y
    return np.hypot(cosines, sines), spread, steep, total


@njit(cache=True, nogil=True)
def _heavy(mass: FloatArray, logs: FloatArray, offset: float) -> tuple[int, int]:
    """The range of levels that weigh at least 1e-18 at an outermost tilt; others weigh less at every tilt."""
    low, high = 0, len(mass)
    while low < high and mass[low] * math.exp(0.5 * logs[low] + offset * abs(logs[low])) < 1e-18:
        low += 1
    while (
        low < high and mass[high - 1] * math.exp(0.5 * logs[high - 1] + offset * abs(logs[high - 1])) < 1e-18
    ):
        high -= 1
    return low, high


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _tilted(mass: FloatArray, rows: FloatArray, offsets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The weights of `tilted_modulus`: (mass·r^u per level, `steep`).

    Powers come from those of the last offset where the gaps are equal, as they are.
    """
    count = len(offsets)
    weights, steep = np.empty((2 * count, len(mass))), np.zeros(2 * count)
    roots, powers, steps = np.empty((3, _BLOCK)), np.empty((3, _BLOCK)), np.empty((3, _BLOCK))
    for start in range(0, len(mass), _BLOCK):
        size = min(_BLOCK, len(mass) - start)
        for row in range(3):
            sign = 0.5 if row == 0 else -0.5
            for k in range(size):
                roots[row, k] = math.exp(sign * rows[row, start + k])
                powers[row, k] = math.exp(offsets[0] * rows[row, start + k])
        gap = -1.0
        for i in range(count):
            if i > 0:
                if abs(offsets[i] - offsets[i - 1] - gap) > 1e-13 * offsets[i]:
                    gap = offsets[i] - offsets[i - 1]
                    for row in range(3):
                        for k in range(size):
                            steps[row, k] = math.exp(gap * rows[row, start + k])
                for row in range(3):
                    for k in range(size):
                        powers[row, k] *= steps[row, k]
            end = 2 if offsets[i] > 0.5 else 1  # whose power u - 1 is the larger one, u = 1/2 + offset
            x, y = 0.0, 0.0
            for k in range(size):
                m, width = mass[start + k], mass[start + k] * rows[3, start + k]
                weights[i, start + k] = m * roots[0, k] * powers[0, k]
                weights[count + i, start + k] = m * roots[0, k] / powers[0, k]
                x += width * roots[end, k] * powers[end, k]
                y += width * roots[1, k] / powers[1, k]
            steep[i] += x
            steep[count + i] += y
    return weights, steep
