"""Sums over the noise's levels under tilted laws, and the series that `TiltedExpansion` makes of them.

All of it is about the quotient E[r_x^t]/exp(x²·A(t)) for x = x0 + θd, |θ| <= 1, on a line t = u + iω; its
A(t) is (t² - t)χ'²/2, W = d·(r_{s+1} - r_s)/r_{x0} and y = ω·x0·χ'. middle is x0, half d, chi2 χ'².
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from skelmix.arrays import FloatArray

POWERS = 4  # J: powers of θ
_INVALID = 0.9  # the quotient must be within this of 1 for its logarithm
_BLOCK = 128  # levels at a time: what is made of them stays in the nearest cache


@njit(cache=True, nogil=True)
def _divide_by_factorials(sums: FloatArray, highest: FloatArray) -> None:
    """sums[j, n] /= n! for n < count, and highest[j] /= count!, in place."""
    powers, count = sums.shape
    factorial = 1.0
    for n in range(1, count):
        factorial *= n
        for j in range(powers):
            sums[j, n] /= factorial
    for j in range(powers):
        highest[j] /= factorial * count


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def tilted_sums(
    mass: FloatArray,
    logs: FloatArray,
    slope: FloatArray,
    lines: FloatArray,
    squares: FloatArray,
    middle: float,
    count: int,
    end: float,
) -> tuple[FloatArray, tuple[FloatArray, FloatArray, FloatArray], FloatArray]:
    """The moments under the tilted law for each u in lines, and bounds on what the series leave out.

    Under mass·r^u/exp(x0²A(u)) with Z = (L - x0²χ²(u - 1/2))/(x0·χ): E[W^j Z^n]/n! for j < J, n < N; (E|W|^j
    for j <= J, the last with max(1, (1 ± W)^(u-J)); E[|W|^j Z^N]/N!; E[|W|^j e^(y|Z|)]), j < J; and the
    outermost summands over their sums.
    """
    powers, tilts, levels = POWERS, len(lines), len(mass)
    sums = np.zeros((tilts, powers, count))
    weights, highest = np.zeros((tilts, powers + 1)), np.zeros((tilts, powers))
    wide, outer = np.zeros((tilts, powers)), np.zeros(tilts)
    z, weight, term, slopes = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    for i in range(tilts):
        u, scale = lines[i], middle * math.sqrt(squares[i])
        mean, level, y = scale**2 * (u - 0.5), scale**2 * (u * u - u) / 2, end * scale
        edge = np.zeros(3)
        for first in range(0, levels, _BLOCK):
            size = min(_BLOCK, levels - first)
            for k in range(size):
                log = logs[first + k]
                z[k] = (log - mean) / scale
                weight[k] = mass[first + k] * math.exp(u * log - level)
                slopes[k] = slope[first + k]
            for j in range(powers):
                for k in range(size):
                    term[k] = weight[k]
                for n in range(count):
                    total = 0.0
                    for k in range(size):
                        total += term[k]
                        term[k] *= z[k]
                    sums[i, j, n] += total
                total, other, third = 0.0, 0.0, 0.0
                for k in range(size):
                    total += abs(weight[k])
                    other += abs(term[k])
                    third += abs(weight[k]) * math.exp(y * abs(z[k]))
                weights[i, j] += total
                highest[i, j] += other
                wide[i, j] += third
                for k in range(size):
                    if (first + k == 0 or first + k == levels - 1) and j == powers - 1:
                        edge[0] = max(edge[0], abs(term[k]))
                        edge[1] = max(edge[1], abs(weight[k]) * math.exp(y * abs(z[k])))
                    weight[k] *= slopes[k]
            total = 0.0
            for k in range(size):
                power = max((1 + abs(slopes[k])) ** (u - powers), (1 - abs(slopes[k])) ** (u - powers))
                last = abs(weight[k]) * max(1.0, power)
                total += last
                if first + k == 0 or first + k == levels - 1:
                    edge[2] = max(edge[2], last)
            weights[i, powers] += total
        outer[i] = max(edge[0] / highest[i, -1], edge[1] / wide[i, -1], edge[2] / weights[i, -1])
        _divide_by_factorials(sums[i], highest[i])
    return sums, (weights, highest, wide), outer


@njit(cache=True, nogil=True)
def coefficients(sums: FloatArray, u: float, chi2: float, middle: float, half: float) -> FloatArray:
    """Coefficients in y of a bound on |quotient - 1| as far as the series go.

    They are absolute, over all powers of θ. In ξ = iω·x0·χ everything is real.
    """
    powers, count = sums.shape
    scale = middle * math.sqrt(chi2)
    size = 2 * count + 3 * powers
    gauss = np.zeros(count)  # e^(-ξ²/2)
    gauss[0] = 1.0
    for n in range(2, count, 2):
        gauss[n] = -gauss[n - 2] / n
    exponent = np.array([(u * u - u) * chi2 / 2, (2 * u - 1) * chi2 / (2 * scale), chi2 / (2 * scale**2)])
    factors = np.zeros((powers, 2 * powers))  # p_i(ξ) of exp(-(2x0·δ+δ²)A(t)), in powers of θ
    factors[0, 0] = 1.0
    for i in range(1, powers):
        for n in range(2 * powers - 2):
            inner = middle * half * factors[i - 1, n] + (half * half * factors[i - 2, n] if i > 1 else 0.0)
            for m in range(3):
                if n + m < 2 * powers:
                    factors[i, n + m] -= 2 * exponent[m] * inner / i
    total = np.zeros((powers, size))
    choose = np.zeros(powers + 1)  # C(u + ξ/scale, j)
    choose[0] = 1.0
    for j in range(powers):
        series = np.zeros(size)
        for n in range(count):
            for m in range(0, count, 2):
                series[n + m] += sums[j, n] * gauss[m]
        times = np.zeros(size)
        for n in range(2 * count):
            for m in range(j + 1):
                times[n + m] += series[n] * choose[m]
        for i in range(powers - j):
            for n in range(2 * count + j):
                for m in range(2 * i + 1):
                    total[i + j, n + m] += times[n] * factors[i, m]
        following = np.zeros(powers + 1)
        for m in range(j + 1):
            following[m] += choose[m] * (u - j) / (j + 1)
            following[m + 1] += choose[m] / (scale * (j + 1))
        choose = following
    total[0, 0] -= 1.0
    bound = np.zeros(size)
    for i in range(powers):
        bound += np.abs(total[i])
    return bound


@njit(cache=True, nogil=True)
def spread(u: float, omega: float, chi2: float, middle: float, half: float) -> FloatArray:
    """|C(t,j)|·exp((2x0·d+d²)|A(t)|) for j < J."""
    t = complex(u, omega)
    grown = math.exp((2 * middle * half + half * half) * abs(t * t - t) * chi2 / 2)
    powers = np.empty(POWERS)
    choose = 1.0
    for j in range(POWERS):
        powers[j] = choose * grown
        choose *= abs(t - j) / (j + 1)
    return powers


@njit(cache=True, nogil=True)
def raise_to(
    worst: FloatArray,
    omega: FloatArray,
    u: float,
    chi2: float,
    low: float,
    middle: float,
    half: float,
    terms: FloatArray,
    weights: FloatArray,
    highest: FloatArray,
    count: int,
    rounding: float,
) -> None:
    """worst[k] = max(worst[k], e(u + i·omega[k]) on one piece)."""
    scale = middle * math.sqrt(chi2)
    heads = np.empty(POWERS + 1)  # Σ_{i<l} of the powers of θ in exp((2x0·d+d²)|A|)
    for k in range(len(omega)):
        if not worst[k] < np.inf:
            continue
        t, y = complex(u, omega[k]), omega[k] * scale
        main = 0.0
        for n in range(len(terms) - 1, -1, -1):
            main = main * y + terms[n]
        size = abs(t * t - t) * chi2 / 2
        before, last, heads[0] = 0.0, 1.0, 0.0
        for i in range(POWERS):
            heads[i + 1] = heads[i] + last
            before, last = last, 2 * size * (middle * half * last + half * half * before) / (i + 1)
        full = math.exp((2 * middle * half + half * half) * size)
        power_term = 1.0  # (y²/2)^(N/2)/(N/2)!
        for n in range(1, count // 2 + 1):
            power_term *= y * y / 2 / n
        top = y**count
        rest, choose = 0.0, 1.0
        for j in range(POWERS):
            head = heads[POWERS - j]
            tail = max(full - head, 0.0) + 1e-14 * full
            rest += choose * (head * (power_term * weights[j] + top * highest[j]) + tail * weights[j])
            choose *= abs(t - j) / (j + 1)
        rest += full * choose * weights[POWERS]
        distance = main + rest * math.exp(y * y / 2) + rounding
        worst[k] = max(worst[k], -math.log1p(-distance) / low**2) if distance < _INVALID else np.inf
