"""Rényi moments of one coordinate, summed over the integers with every error on the safe side.

P0 is an even, log-concave integer law with pmf exp(L), P_x the law of x rounded at random plus that noise:
weight 1-p at the shift s and p at s+1. The kernels return upper bounds on ln E_P0[(P_x/P0)^α] and ln
E_P0[(P_x/P0)^(1-α)], and run the branch and bound that needs them. Proofs: docs/explanation/tight-bound.md.

Error budget. L is good to 1e-14·(1 + |L|), tested against ball arithmetic. Terms are exp(L + c·lnW) with
exponents below 1e4, so their relative error is below 1e-10, and so is that of the sums of W^c - 1 - c(W-1)
(`_excess`), which replace ln Ξ where it is small; terms are non-negative and fewer than 1e7. `INFLATION`,
1e-9, covers it, with 1e-12 added where Ξ - 1 is not summed by itself. Tails that are not summed are below a
geometric series, because the ratio of neighbouring terms falls monotonically up to `concavity_gap`, see
`log_masses`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from skelmix.arrays import FloatArray

INFLATION = 1e-9
_SMALL = 0.05  # below this, ln Ξ is taken from the sum of Ξ - 1
_CUT = 1e-20  # a sum ends at terms below this share of it
_BLOCK = 512  # masses at a time, 4 KiB per array


@njit(cache=True, nogil=True)
def _log_ratio(k: int, s: int, p: float, L: FloatArray) -> float:
    """ln(P_x(k)/P0(k)). p is in [0, 1]; p = 1 is the shift s+1."""
    near = L[abs(k - s)]
    if p == 0.0:
        return near - L[abs(k)]
    step = L[abs(k - s - 1)] - near
    if step > 0.0:  # keep the larger of the two outside the logarithm
        return (
            near + step + math.log1p((1.0 - p) * math.expm1(-step)) - L[abs(k)]
            if p < 1.0
            else near + step - L[abs(k)]
        )
    return near + math.log1p(p * math.expm1(step)) - L[abs(k)] if p < 1.0 else near + step - L[abs(k)]


@njit(cache=True, nogil=True)
def _g(j: int, L: FloatArray) -> float:
    return L[abs(j - 1)] - L[abs(j)]


@njit(cache=True, nogil=True)
def _up(k: int, c: float, s: int, L: FloatArray, concavity_gap: FloatArray) -> float:
    """A bound on the logarithm of term(k+1)/term(k), outwards.

    It falls with k from k = s+1 (c > 0) or 0 (c < 0) on.

    For c < 0 the index k stands for the outcome -k.
    """
    if c > 0:
        return -_g(k + 1, L) + c * (_g(k + 1, L) - _g(k - s, L)) + (2 * c + 1) * concavity_gap[max(k - s, 0)]
    return -_g(k + 1, L) - c * (_g(k + s + 2, L) - _g(k + 1, L)) + (1 - 2 * c) * concavity_gap[k]


@njit(cache=True, nogil=True)
def _down(k: int, c: float, s: int, L: FloatArray, concavity_gap: FloatArray) -> float:
    """A bound on the logarithm of term(k-1)/term(k), inwards; falls with k."""
    if c > 0:
        return _g(k, L) - c * (_g(k, L) - _g(k - s, L)) + (2 * c + 1) * concavity_gap[0]
    return _g(k, L) + c * (_g(k + s, L) - _g(k, L)) + (1 - 2 * c) * concavity_gap[0]


@njit(cache=True, nogil=True)
def log_moment(
    order: int, s: int, p: float, reverse: bool, L: FloatArray, concavity_gap: FloatArray
) -> float:
    """Upper bound on ln E_P0[(P_x/P0)^c], c = order or 1 - order (reverse); infinity if L is too short."""
    return moment_window(order, s, p, reverse, L, concavity_gap)[0]


@njit(cache=True, nogil=True)
def _peak(c: float, s: int, p: float, sign: int, L: FloatArray, low: int, high: int) -> int:
    """Where the terms peak between low and high; only the speed of the sum depends on it."""
    while high - low > 1:
        middle = (low + high) // 2
        rise = L[middle + 1] - L[middle]
        rise += c * (_log_ratio(sign * (middle + 1), s, p, L) - _log_ratio(sign * middle, s, p, L))
        low, high = (middle, high) if rise > 0 else (low, middle)
    return low


@njit(cache=True, nogil=True)
def moment_window(
    order: int, s: int, p: float, reverse: bool, L: FloatArray, concavity_gap: FloatArray
) -> tuple[float, int, int]:
    """(`log_moment`, low, high): the terms outside low..high add up to less than 1e-15 of the sum.

    In reverse low..high are negated outcomes.
    """
    c = float(1 - order) if reverse else float(order)
    sign = -1 if reverse else 1
    end = len(L) - s - 4
    first = 1 if reverse else s + 2  # from here on the ratios of terms are monotone
    low = _peak(c, s, p, sign, L, first, end)
    top = L[low] + c * _log_ratio(sign * low, s, p, L)
    total = 0.0
    k = low
    while True:  # outwards
        exponent = L[k] + c * _log_ratio(sign * k, s, p, L)
        if exponent > top:  # laws that are not log-concave may have several peaks
            total, top = total * math.exp(top - exponent), exponent
        term = math.exp(exponent - top)
        total += term
        if term < _CUT * total:
            ratio = _up(k, c, s, L, concavity_gap)
            if ratio < -1e-9 and term / -math.expm1(ratio) < 3e-16 * total:
                total += term / -math.expm1(ratio)
                break
        k += 1
        if k >= end:
            return np.inf, 0, 0
    high = k
    k = low - 1
    edge = c * _log_ratio(sign * (first - 1), s, p, L)  # bounds every ratio further in
    while True:  # inwards, past 0 and out again on the other side if need be
        size = abs(k)
        if size >= end:
            return np.inf, 0, 0
        exponent = L[size] + c * _log_ratio(sign * k, s, p, L)
        if exponent > top:
            total, top = total * math.exp(top - exponent), exponent
        term = math.exp(exponent - top)
        total += term
        if term < _CUT * total:
            if k > first:
                ratio = _down(k, c, s, L, concavity_gap)
                small = ratio < -1e-9 and term / -math.expm1(ratio) < 3e-16 * total
                if small and edge - top < math.log(3e-16 * total):
                    total += term / -math.expm1(ratio) + math.exp(edge - top)
                    break
            elif k < 0:
                ratio = -_g(size + 1, L)  # log-concave: falls by itself
                if ratio < -1e-9 and term / -math.expm1(ratio) < 3e-16 * total:
                    total += term / -math.expm1(ratio)
                    break
        k -= 1
    result = math.log(total) + top
    if result < _SMALL:
        return math.log1p(_excess(c, s, p, sign, L, concavity_gap, end) * (1 + INFLATION)), k, high
    return result * (1 + INFLATION), k, high


@njit(cache=True, nogil=True)
def _excess(
    c: float, s: int, p: float, sign: int, L: FloatArray, concavity_gap: FloatArray, end: int
) -> float:
    """E_P0[W^c - 1 - c(W - 1)] = E_P0[W^c] - 1, a sum of non-negative terms, where it is small."""
    total = 0.0
    for direction in (1, -1):
        k = 0 if direction == 1 else 1
        while True:
            if k >= end:
                return np.inf
            log_w = _log_ratio(sign * direction * k, s, p, L)
            mass = math.exp(L[k])
            total += mass * max(0.0, math.expm1(c * log_w) - c * math.expm1(log_w))
            if L[k] < -75.0 and k > s + 2:
                if direction == 1:  # terms below P0·W^c; and for c < 0, log_w < 0 here
                    ratio, weight = _up(k, c, s, L, concavity_gap), math.exp(L[k] + c * log_w)
                elif c > 0:  # W <= 1: below P0·(c - 1)
                    ratio, weight = -_g(k + 1, L), mass * c
                else:  # W >= 1: below -c·P0·W = -c·P_x
                    ratio, weight = -_g(k - s, L), -c * math.exp(L[k - s - 1])
                if ratio < -1e-9:
                    total += weight / -math.expm1(ratio)
                    break
            k += 1
    return total


@njit(cache=True, nogil=True)
def _line_over_square(at_a: float, at_b: float, a: float, b: float) -> float:
    """max of l(x)/x² on [a, b] for the line l through (a, at_a), (b, at_b)."""
    slope = (at_b - at_a) / (b - a)
    constant = at_a - slope * a
    best = max(at_a / a**2, at_b / b**2)
    if constant < 0 < slope:
        x = -2 * constant / slope
        if a < x < b:
            best = max(best, (constant + slope * x) / x**2)
    return best


@njit(cache=True, nogil=True)
def bound_on_interval(at_a: float, at_b: float, a: float, b: float, order: int, reverse: bool) -> float:
    """An upper bound on D(x)/x² over [a, b] in one cell from D at its ends.

    Reverse: D is convex in x, so below its chord. Forward: Ξ^(1/α) is convex, an L^α norm of something
    affine, so D is below α/(α-1)·ln of a line; that is concave in x, so below its tangent in the middle.
    """
    if not (at_a < np.inf and at_b < np.inf):
        return np.inf
    if reverse:
        return _line_over_square(at_a, at_b, a, b)
    share = (order - 1) / order
    half = 0.5 * share * (at_b - at_a)
    middle = 0.5 * (at_a + at_b) + math.log(math.cosh(half)) / share
    tilt = math.tanh(half) / share
    return _line_over_square(middle - tilt, middle + tilt, a, b)


@njit(cache=True, nogil=True)
def _cell_tables(
    order: int, s: int, reverse: bool, low: int, high: int, top: float, L: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The moment on a window as a polynomial's parts: (base, slope) on low..high.

    The moment at x = s + p is e^top·Σ base·(1 + p·slope)^c, c = order or 1 - order.

    Forward the terms are P0·r_s^α·(1 + p(r_1(k-s) - 1))^α. In reverse, after reflecting k to s - k, they are
    P0·r_s^α·(1 + p(P0(k+1)/P0(k) - 1))^(1-α). They are convex in p, so what lies outside the windows of both
    ends is as small there as it is at the ends.
    """
    base, slope = np.empty(high - low + 1), np.empty(high - low + 1)
    for k in range(low, high + 1):
        near = L[abs(k - s)]
        base[k - low] = math.exp(L[abs(k)] + order * (near - L[abs(k)]) - top)
        slope[k - low] = math.expm1(L[abs(k + 1)] - L[abs(k)] if reverse else L[abs(k - s - 1)] - near)
    return base, slope


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _table_moment(p: float, power: int, reverse: bool, base: FloatArray, slope: FloatArray) -> float:
    """The sum Σ base·(1 + p·slope)^±power by repeated squaring, a block at a time in the nearest cache.

    The terms are not negative, so they may be added in any order.
    """
    total = 0.0
    product, square = np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, len(base), _BLOCK):
        size = min(_BLOCK, len(base) - start)
        for i in range(size):
            square[i] = 1.0 + p * slope[start + i]
            product[i] = base[start + i]
        if reverse:
            for i in range(size):
                square[i] = 1.0 / square[i]
        left = power
        while True:
            if left & 1:
                for i in range(size):
                    product[i] *= square[i]
            left >>= 1
            if left == 0:
                break
            for i in range(size):
                square[i] *= square[i]
        for i in range(size):
            total += product[i]
    return total


@njit(cache=True, nogil=True)
def cell_bound(
    order: int,
    s: int,
    last: float,
    here: tuple[float, int, int],
    following: tuple[float, int, int],
    goal: float,
    reverse: bool,
    L: FloatArray,
    concavity_gap: FloatArray,
) -> tuple[float, float]:
    """(upper, lower) bounds on sup D(x)/x² over [s, last], 1 <= s < last <= s+1.

    `here` and `following` are the `moment_window` of the shifts s and s+1. Splits intervals while their bound
    is above max(goal, lower·(1 + 1e-4)), the goal being what other cells have reached.
    """
    at_s = here[0] / (order - 1)
    at_last = following[0] / (order - 1)
    if last < s + 1:
        at_last = log_moment(order, s, last - s, reverse, L, concavity_gap) / (order - 1)
    lower = max(at_s / s**2, at_last / last**2)
    bound = bound_on_interval(at_s, at_last, s, last, order, reverse)
    if bound <= goal or not bound < np.inf:
        return bound, lower
    shift = 1 if reverse else 0  # the reflected shift by s+1 sits one further left
    low, high = min(here[1], following[1] - shift), max(here[2], following[2] - shift)
    base, slope = _cell_tables(order, s, reverse, low, high, here[0], L)
    power = order - 1 if reverse else order
    upper, used = 0.0, 0
    stack = [(float(s), last, at_s, at_last)]
    while len(stack) > 0:
        a, b, at_a, at_b = stack.pop()
        bound = bound_on_interval(at_a, at_b, a, b, order, reverse)
        if bound <= max(goal, lower * (1 + 1e-4)) or b - a < 1e-7 or used > 2000 or not bound < np.inf:
            upper = max(upper, bound)
            continue
        x = 0.5 * (a + b)
        moment = math.log(_table_moment(x - s, power, reverse, base, slope)) + here[0]
        if moment < np.inf:
            at_x = (moment * (1 + INFLATION) + 1e-12) / (order - 1)
        else:  # the powers overflowed
            at_x = log_moment(order, s, x - s, reverse, L, concavity_gap) / (order - 1)
        used += 1
        lower = max(lower, at_x / x**2)
        stack.append((a, x, at_a, at_x))
        stack.append((x, b, at_x, at_b))
    return upper, lower


@njit(cache=True, nogil=True)
def closed_reverse(s: int, order: int, rate: float) -> float:
    """A bound on D_α(P0‖P_x)/x² for all x >= s, from D_t(P_1‖P0) <= rate·t at integers t; falls with s.

    The smaller of the chord between integers, which costs p(1-p)/x² <= 1/(4s(s+1)) of α·rate, and of weighted
    means, (1-p)r_s + p·r_{s+1} >= r_s^(1-p) r_{s+1}^p, which cost p(1-p)/(αx²), and 1/(4α(α-1)x²) for orders
    that are not integers.
    """
    return order * rate * (1 + min(0.25 / (s * (s + 1.0)), 0.25 * (1 + 1 / (order - 1.0)) / (order * s**2)))


@njit(cache=True, nogil=True)
def reverse_cells(
    order: int,
    reach: float,
    upper: float,
    lower: float,
    rate: float,
    L: FloatArray,
    concavity_gap: FloatArray,
    tight: float,
) -> tuple[float, float]:
    """(upper, lower) over (0, reach], reverse direction, cell by cell until the closed form is enough."""
    s = 1
    here = moment_window(order, 1, 0.0, False, L, concavity_gap)
    while s < reach:
        goal = max(upper, lower * (1 + tight))
        rest = closed_reverse(s, order, rate)
        if rest <= goal:
            return max(upper, rest), lower
        following = moment_window(order, s + 1, 0.0, False, L, concavity_gap)
        high, low = cell_bound(order, s, min(reach, s + 1.0), here, following, goal, True, L, concavity_gap)
        upper, lower = max(upper, high), max(lower, low)
        if not upper < np.inf:
            return upper, lower
        s += 1
        here = following
    return upper, lower
