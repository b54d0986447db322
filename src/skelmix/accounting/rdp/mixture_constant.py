"""The constant κ: a certified bound on what a randomly rounded coordinate costs per unit of its square.

κ_α = sup over 0 < |x| <= reach of max{D_α(P_x‖P0), D_α(P0‖P_x)}/x², with P0 the law of the summed noise and
P_x that of x rounded at random plus the noise. A vector with ‖x‖₂ <= radius then costs at most κ_α·radius² at
order α, whatever its other norms. Proofs: docs/explanation/tight-bound.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from numba import njit
from scipy.special import gammaln

from skelmix.accounting.rdp.curve import DEFAULT_ORDERS, RdpCurve, checked_orders
from skelmix.accounting.rdp.moments import (
    bound_on_interval,
    cell_bound,
    closed_reverse,
    log_moment,
    moment_window,
    reverse_cells,
)
from skelmix.accounting.rdp.profile import Kind, integer_bounds, kind_of, log_masses
from skelmix.arrays import FloatArray, IntArray
from skelmix.errors import PrivacyUnattainable
from skelmix.noise.laws import Law
from skelmix.validation import positive

TIGHTNESS = 1e-4
"""How far, relatively, the returned bound may lie above the supremum."""

_FAR = 1e6  # with more variance, closed forms replace sums over the masses
_LONGEST = 1 << 22  # masses in one sum


def kappa(law: Law, reach: float, orders: Iterable[int] = DEFAULT_ORDERS) -> FloatArray:
    """A certified upper bound on κ at each order, for 0 < |x| <= reach; float64, one value per order.

    law: the *summed* noise, `Skellam`, `DiscreteGaussian` or `DiscreteGaussianSum`. At most 1e-4 (relative)
    above the supremum for variances up to 1e6, or reach <= 1. Infinity where no bound is known (sums of
    discrete Gaussians with σ < 1/2 and a long reach).
    """
    return kappa_bounds(law, reach, orders)[0]


def mixture_curve(law: Law, radius: float, orders: Iterable[int] = DEFAULT_ORDERS) -> RdpCurve:
    """RDP of one round for vectors with ‖x‖₂ <= radius on the integer grid: κ(law, radius)·radius².

    Replaces the paper's condition (4), its Δ∞ and its constant 1.2 by the L2 norm alone.
    """
    asked = checked_orders(orders)
    values = kappa(law, radius, asked) * radius**2
    return RdpCurve.where_finite(asked, values.tolist())


def kappa_bounds(law: Law, reach: float, orders: Iterable[int]) -> tuple[FloatArray, FloatArray]:
    """`kappa`, and the largest D_α(x)/x² that the search for it met: the supremum lies between the two."""
    positive(reach=reach)
    asked = checked_orders(orders)
    if not asked:
        return np.zeros(0), np.zeros(0)
    if asked[-1] > 1024 or not 1e-3 <= kind_of(law).v <= 1e12 or reach > 1e7:
        raise PrivacyUnattainable(
            f"order {asked[-1]}, variance {kind_of(law).v:.6g}, reach {reach:.6g}: the bound is meant for "
            "orders up to 1024, variances in 1e-3..1e12 and a reach up to 1e7; rescale"
        )
    upper, lower = _cached(kind_of(law), float(reach), asked)
    return upper.copy(), lower.copy()


@functools.lru_cache(maxsize=256)
def _cached(kind: Kind, reach: float, orders: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    unit = _unit_moments(kind, orders[-1])
    upper, lower = _first_cell(unit, min(reach, 1.0), orders)
    if reach <= 1:
        return upper, lower
    near, far, until = _unit_rate(kind, unit, orders[-1] * math.ceil(reach))
    upper, lower = _forward(kind, near, far, until, reach, np.asarray(orders), upper, lower)
    for i, order in enumerate(orders):
        rate = near if order * math.ceil(reach) <= until else far
        rest = closed_reverse(1, order, rate)
        if kind.v > _FAR or rest <= max(upper[i], lower[i] * (1 + TIGHTNESS)):
            upper[i] = max(upper[i], rest)
        else:
            upper[i], lower[i] = _reverse(kind, order, reach, upper[i], lower[i], rate)
    return upper, lower


def _reverse(
    kind: Kind, order: int, reach: float, upper: float, lower: float, rate: float
) -> tuple[float, float]:
    length = _length(kind, order)
    while True:
        masses, concavity_gap = log_masses(kind, length)
        high, low = reverse_cells(order, reach, upper, lower, rate, masses, concavity_gap, TIGHTNESS)
        if high < np.inf or length >= _LONGEST:
            return high, low
        length *= 2


def _length(kind: Kind, order: int) -> int:
    """A first guess at how many masses the sums need, a power of two so that laws share their tables."""
    return 1 << int(np.ceil(np.log2(16 * np.sqrt(kind.v) + 2 * order + 200)))


def _first_cell(unit: FloatArray, last: float, orders: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Bounds on sup over (0, last] of D_α(P_x‖P0)/x², last <= 1.

    The reverse direction is never the larger one here.

    Ξ(p) - 1 = Σ_{l>=2} C(α,l) p^l (1-p)^(α-l) (M_l - 1) with M_l = E_P0[r_1^l]: the moments of the shift by
    one serve every p. Intervals are split until each order's bounds agree to `TIGHTNESS`.
    """
    order = np.asarray(orders)
    log_excess = np.where(unit > 30, unit, np.log(np.expm1(np.minimum(unit, 30.0)))) + 1e-13
    table = np.full((len(order), orders[-1] + 1), -np.inf)
    table[:, 2:] = _log_binomial(order, orders[-1])[:, 2:] + log_excess[None, :]
    points = [last * 2.0**-i for i in range(4, -1, -1)]

    def divergence(p: float) -> FloatArray:
        return _log1p_exp(_log_sum(p, order, table)) / (order - 1)

    values = {x: divergence(x) for x in points}
    lower = np.max([values[x] / x**2 for x in points], axis=0)
    upper = np.zeros(len(order))
    waiting = [(0.0, points[0]), *pairwise(points)]
    while waiting:
        a, b = waiting.pop()
        bounds = _first_bound(a, b, values, order)
        goal = np.maximum(lower * (1 + TIGHTNESS), upper)
        if (bounds <= goal).all() or b - a < 1e-9 * b or len(values) > 3000:
            upper = np.maximum(upper, bounds)
            continue
        x = 0.5 * (a + b)
        values[x] = divergence(x)
        lower = np.maximum(lower, values[x] / x**2)
        waiting += [(a, x), (x, b)]
    return upper, lower


def _first_bound(a: float, b: float, values: dict[float, FloatArray], order: IntArray) -> FloatArray:
    """Bound on D(x)/x² over [a, b]; from 0 on, G(p) = (Ξ-1)/p² does not fall, so G(b)/(α-1)."""
    if a == 0.0:
        with np.errstate(over="ignore"):
            return np.asarray(np.expm1((order - 1) * values[b]) / ((order - 1) * b**2))
    return _intervals(values[a], values[b], a, b, order)


@njit(cache=True, nogil=True)
def _intervals(at_a: FloatArray, at_b: FloatArray, a: float, b: float, order: IntArray) -> FloatArray:
    out = np.empty(len(order))
    for i in range(len(order)):
        out[i] = bound_on_interval(at_a[i], at_b[i], a, b, order[i], False)
    return out


def _log_binomial(order: IntArray, most: int) -> FloatArray:
    """ln C(α, l) at [α, l], l = 0..most; -infinity for l > α."""
    power = np.arange(most + 1)[None, :]
    rest = np.maximum(order[:, None] - power, 0)
    logs = gammaln(order[:, None] + 1.0) - gammaln(power + 1.0) - gammaln(rest + 1.0)
    return np.where(power <= order[:, None], logs, -np.inf)


def _log_sum(p: float, order: IntArray, table: FloatArray) -> FloatArray:
    """ln Σ_l exp(table[α, l])·p^l·(1-p)^(α-l), 0 < p <= 1, rounded up."""
    if p == 1:
        return table[np.arange(len(order)), order]
    return _log_sum_kernel(math.log(p), math.log1p(-p), order, table)


@njit(cache=True, nogil=True)
def _log_sum_kernel(log_p: float, log_q: float, order: IntArray, table: FloatArray) -> FloatArray:
    out = np.empty(len(order))
    for i in range(len(order)):
        top = -np.inf
        for j in range(order[i] + 1):
            top = max(top, table[i, j] + j * log_p + (order[i] - j) * log_q)
        total = 0.0
        for j in range(order[i] + 1):
            term = table[i, j] + j * log_p + (order[i] - j) * log_q - top
            if term > -45.0:
                total += math.exp(term)
        out[i] = top + math.log(total + 1e-18 * order[i]) + 1e-12
    return out


def _log1p_exp(x: FloatArray) -> FloatArray:
    return np.logaddexp(0.0, x)


def _unit_moments(kind: Kind, most: int) -> FloatArray:
    """ln E_P0[(P0(k-1)/P0(k))^l] for l = 2..most, rounded up."""
    if kind.v > _FAR:
        return np.array([(l - 1) * integer_bounds(kind, l).sum(axis=1).min() for l in range(2, most + 1)])
    return _unit_moments_at(kind, np.arange(2, most + 1))


def _unit_moments_at(kind: Kind, powers: IntArray) -> FloatArray:
    length = _length(kind, int(powers[-1]))
    while True:
        masses, concavity_gap = log_masses(kind, length)
        logs = np.array([log_moment(int(l), 1, 0.0, False, masses, concavity_gap) for l in powers])
        if np.isfinite(logs).all() or length >= _LONGEST:
            return logs
        length *= 2


def _unit_rate(kind: Kind, unit: FloatArray, most: int) -> tuple[float, float, int]:
    """(near, far, until): D_t(P_1‖P0) <= near·t at integers t = 2..until, and <= far·t at all t up to `most`.

    Beyond the moments at hand, a grid of orders with ratio 1.01 and chords between them, (t-1)D_t being
    convex in t, until a theorem's bound is as good.
    """
    t = np.arange(2, len(unit) + 2)
    near = float((unit / (t * (t - 1.0))).max())
    until = len(unit) + 1
    # Skellam's theorem is good from 3/t on; that for discrete Gaussians with few levels hardly ever
    enough = min(most, 20_000 if kind.copies else math.ceil(3 / (0.7 * TIGHTNESS + 0.1 / kind.v)))
    if until < enough and _theorem_rate(kind, until + 1) > near * (1 + 0.7 * TIGHTNESS):
        count = math.ceil(math.log(enough / until) / 0.01) + 1
        grid = np.unique(
            np.rint(until * np.exp(np.linspace(0, math.log(enough / until), count))).astype(np.int64)
        )
        logs = _unit_moments_at(kind, grid)
        left, right = grid[:-1].astype(float), grid[1:].astype(float)
        # a chord of φ is at most the larger rate of its ends times the chord of t(t-1), larger by this
        loss = 1 + (right - left) ** 2 / (4 * left * (left - 1))
        ends = logs / (grid * (grid - 1.0))
        near = max(near, float((np.maximum(ends[:-1], ends[1:]) * loss).max()))
        until = int(grid[-1])
    far = near if most <= until else max(near, _theorem_rate(kind, until + 1))
    return near, far, until


def _theorem_rate(kind: Kind, order: int) -> float:
    """A bound on D_t(P_1‖P0)/t for all integers t >= order: the theorems' bounds over t do not rise."""
    return float((integer_bounds(kind, order).sum(axis=1) / order).min())


def _forward(
    kind: Kind,
    near: float,
    far: float,
    until: int,
    reach: float,
    order: IntArray,
    upper: FloatArray,
    lower: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """(upper, lower) over (0, reach], forward direction, given those of the first cell.

    With D_t(P_1‖P0) <= ρt at integers t, Hölder's inequality gives every mixed moment at most the value it
    has under Gaussian noise of variance 1/(2ρ): E_P0[r_s^(α-l) r_{s+1}^l] <= exp(ρ((αs+l)² - (α-l)s² -
    l(s+1)²)). So cells are sums over l again; where that is not enough (few levels, high orders) the cell's
    own moments are summed.
    """
    upper, lower = upper.copy(), lower.copy()
    worst = np.where(order * math.ceil(reach) <= until, near, far)
    s = 1
    while s < reach:
        last = min(reach, s + 1.0)
        rho = np.where(order * (s + 1) <= until, near, far)
        goal = np.maximum(upper, lower * (1 + TIGHTNESS))
        rest = _closed(s, order, worst)
        upper = np.where(rest <= goal, np.maximum(upper, rest), upper)
        left = np.flatnonzero(rest > goal)
        if len(left) == 0:
            break
        bounds = np.full(len(left), np.inf)
        known = rho[left] < np.inf
        if known.any():
            pick = left[known]
            bounds[known] = _forward_cell(s, last, order[pick], rho[pick], goal[pick])
        for i, high in zip(left.tolist(), bounds.tolist(), strict=True):
            if high > goal[i] and kind.v <= _FAR:
                exact, low = _summed(kind, int(order[i]), s, last, goal[i])
                high, lower[i] = min(high, exact), max(lower[i], low)
            upper[i] = max(upper[i], high)
        s += 1
    return upper, lower


def _closed(s: int, order: IntArray, rho: FloatArray) -> FloatArray:
    """A bound on D(x)/x², forward, for all x >= s, from D <= ρα·s² at integers; falls with s.

    The chord of Ξ^(1/α): αρ(x² + p(1-p)), and (α-1)/(8α)·(D(s+1) - D(s))² for the logarithm of a line; or
    D(s+1)/s².
    """
    a = rho * order
    chord = a * (1 + 0.25 / (s * (s + 1))) + (order - 1) / (8 * order) * (a * (2 * s + 1) / s) ** 2
    return np.minimum(chord, a * ((s + 1) / s) ** 2)


def _forward_cell(s: int, last: float, order: IntArray, rho: FloatArray, goal: FloatArray) -> FloatArray:
    """Upper bounds over the cell [s, last]: splits until below the goal, where that is possible."""
    most = int(order[-1])
    power = np.arange(most + 1)[None, :]
    table = _log_binomial(order, most) + rho[:, None] * (
        2 * (order[:, None] - 1) * s * power + power * (power - 1)
    )
    start = rho * order * float(s) ** 2

    def divergence(x: float) -> FloatArray:
        return start + _log_sum(x - s, order, table) / (order - 1)

    values = {float(s): start, last: divergence(last)}
    upper = np.zeros(len(order))
    reached = np.maximum(goal, np.maximum(start / s**2, values[last] / last**2))
    waiting = [(float(s), last)]
    while waiting:
        a, b = waiting.pop()
        bounds = _intervals(values[a], values[b], a, b, order)
        hopeless = (values[a] > goal * a**2) | (values[b] > goal * b**2)
        if ((bounds <= reached) | hopeless).all() or b - a < 1e-3:
            upper = np.maximum(upper, bounds)
            continue
        x = 0.5 * (a + b)
        values[x] = divergence(x)
        waiting += [(a, x), (x, b)]
    return upper


def _summed(kind: Kind, order: int, s: int, last: float, goal: float) -> tuple[float, float]:
    """`cell_bound`, forward, with as many masses as it takes."""
    length = _length(kind, order)
    while True:
        masses, concavity_gap = log_masses(kind, length)
        here = moment_window(order, s, 0.0, False, masses, concavity_gap)
        following = moment_window(order, s + 1, 0.0, False, masses, concavity_gap)
        high, low = cell_bound(order, s, last, here, following, goal, False, masses, concavity_gap)
        if high < np.inf or length >= _LONGEST:
            return high, low
        length *= 2
