"""κ: what a coordinate of a randomly rounded vector costs per unit of its square, certified.

κ_α = sup over 0 < |x| <= reach of max{D_α(P_x‖P0), D_α(P0‖P_x)}/x², with P0 the law of the summed noise and P_x that of x rounded at
random plus the noise. A vector with ‖x‖₂ <= radius then costs at most κ_α·radius² at order α, whatever its other norms. Proofs:
docs/explanation/tight-bound.md.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import gammaln

from skelmix.accounting.curve import DEFAULT_ORDERS, RdpCurve, checked_orders
from skelmix.accounting.moments import bound_on_interval, cell_bound, log_moment
from skelmix.accounting.profile import Kind, integer_bounds, kind_of, log_masses
from skelmix.errors import InvalidInput
from skelmix.noise.laws import Law
from skelmix.validation import positive

Floats = NDArray[np.float64]

TIGHTNESS = 1e-4
"""How far, relatively, the returned bound may lie above the supremum."""

_FAR = 1e6  # variance from which on sums over the masses give way to closed forms
_LONGEST = 1 << 22


def kappa(law: Law, reach: float, orders: Iterable[int] = DEFAULT_ORDERS) -> Floats:
    """A certified upper bound on κ at each order, for 0 < |x| <= reach; float64, one value an order.

    law: the *summed* noise, `Skellam`, `DiscreteGaussian` or `DiscreteGaussianSum`. At most 1e-4 (relative) above the
    supremum for variances up to 1e6, or reach <= 1. Infinity where no bound is known (sums of discrete Gaussians with
    σ < 1/2 and a long reach).
    """
    return _bounds(law, reach, orders)[0]


def kappa_lower(law: Law, reach: float, orders: Iterable[int] = DEFAULT_ORDERS) -> Floats:
    """The largest D_α(x)/x² that the search for `kappa` met: the supremum lies between the two."""
    return _bounds(law, reach, orders)[1]


def mixture_curve(law: Law, radius: float, orders: Iterable[int] = DEFAULT_ORDERS) -> RdpCurve:
    """RDP of one round for vectors with ‖x‖₂ <= radius on the integer grid: κ(law, radius)·radius².

    Replaces the paper's condition (4), its Δ∞ and its constant 1.2 by the L2 norm alone.
    """
    asked = checked_orders(orders)
    values = kappa(law, radius, asked) * radius**2
    return RdpCurve.where_finite(asked, values.tolist())


def _bounds(law: Law, reach: float, orders: Iterable[int]) -> tuple[Floats, Floats]:
    positive(reach=reach)
    asked = checked_orders(orders)
    if not asked:
        return np.zeros(0), np.zeros(0)
    if asked[-1] > 1024 or not 1e-3 <= kind_of(law).v <= 1e12 or reach > 1e7:
        raise InvalidInput(
            f"order {asked[-1]}, variance {kind_of(law).v:.6g}, reach {reach:.6g}: the bound is meant for orders up to 1024, "
            "variances in 1e-3..1e12 and a reach up to 1e7; rescale"
        )
    upper, lower = _cached(kind_of(law), float(reach), asked)
    return upper.copy(), lower.copy()


@functools.lru_cache(maxsize=256)
def _cached(kind: Kind, reach: float, orders: tuple[int, ...]) -> tuple[Floats, Floats]:
    upper, lower = _first_cell(kind, min(reach, 1.0), orders)
    if reach <= 1:
        return upper, lower
    for i, order in enumerate(orders):
        bounds = integer_bounds(kind, order)
        if kind.v > _FAR:
            upper[i] = max(upper[i], _closed(1, order, bounds))
            continue
        length = _length(kind, order)
        while True:
            masses, wiggle = log_masses(kind, length)
            high, low = _cells(order, reach, upper[i], lower[i], bounds, masses, wiggle, TIGHTNESS)
            if high < np.inf or length >= _LONGEST:
                break
            length *= 2
        upper[i], lower[i] = high, low
    return upper, lower


def _length(kind: Kind, order: int) -> int:
    """A first guess at how many masses the sums need, a power of two so that laws share their tables."""
    return 1 << int(np.ceil(np.log2(16 * np.sqrt(kind.v) + 2 * order + 200)))


def _first_cell(kind: Kind, last: float, orders: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Bounds on sup over (0, last] of D_α(P_x‖P0)/x², last <= 1; the reverse direction is never the larger one here.

    Ξ(p) - 1 = Σ_{l>=2} C(α,l) p^l (1-p)^(α-l) (M_l - 1) with M_l = E_P0[r_1^l]: the moments of the shift by one serve every p.
    Intervals are split until each order's bounds agree to `TIGHTNESS`.
    """
    log_excess = _log_unit_excess(kind, orders[-1])
    order = np.asarray(orders)
    table = _log_binomial(order, orders[-1]) + log_excess[None, :]
    points = [last * 2.0**-i for i in range(4, -1, -1)]
    values = {x: _divergence(x, order, table) for x in points}
    lower = np.max([values[x] / x**2 for x in points], axis=0)
    upper = np.zeros(len(order))
    waiting = [(0.0, points[0]), *zip(points[:-1], points[1:], strict=True)]
    while waiting:
        a, b = waiting.pop()
        found = _first_bound(a, b, values, order)
        goal = np.maximum(lower * (1 + TIGHTNESS), upper)
        if (found <= goal).all() or b - a < 1e-9 * b or len(values) > 3000:
            upper = np.maximum(upper, found)
            continue
        x = 0.5 * (a + b)
        values[x] = _divergence(x, order, table)
        lower = np.maximum(lower, values[x] / x**2)
        waiting += [(a, x), (x, b)]
    return upper, lower


def _first_bound(a: float, b: float, values: dict[float, Floats], order: NDArray[np.int64]) -> Floats:
    """Bound on D(x)/x² over [a, b]; from 0 on, G(p) = (Ξ-1)/p² does not fall, so G(b)/(α-1)."""
    if a == 0.0:
        with np.errstate(over="ignore"):
            return np.asarray(np.expm1((order - 1) * values[b]) / ((order - 1) * b**2))
    return _intervals(values[a], values[b], a, b, order)


@njit(cache=True, nogil=True)
def _intervals(at_a: Floats, at_b: Floats, a: float, b: float, order: NDArray[np.int64]) -> Floats:
    out = np.empty(len(order))
    for i in range(len(order)):
        out[i] = bound_on_interval(at_a[i], at_b[i], a, b, order[i], False)
    return out


def _log_binomial(order: NDArray[np.int64], most: int) -> Floats:
    """ln C(α, l) at [α, l-2], l = 2..most; -infinity for l > α."""
    power = np.arange(2, most + 1)[None, :]
    rest = np.maximum(order[:, None] - power, 0)
    logs = gammaln(order[:, None] + 1.0) - gammaln(power + 1.0) - gammaln(rest + 1.0)
    return np.where(power <= order[:, None], logs, -np.inf)


def _divergence(p: float, order: NDArray[np.int64], table: Floats) -> Floats:
    """D_α(P_p‖P0) at each order, 0 < p <= 1."""
    return _log_sum(np.log(p), np.log1p(-p) if p < 1 else -np.inf, order, table) / (order - 1)


@njit(cache=True, nogil=True)
def _log_sum(log_p: float, log_q: float, order: NDArray[np.int64], table: Floats) -> Floats:
    """ln(1 + Σ_l exp(table[α, l] + l·ln p + (α-l)·ln q)), rows of non-negative terms."""
    out = np.empty(len(order))
    for i in range(len(order)):
        count = order[i] - 1
        if log_q == -np.inf:
            top = table[i, count - 1] + order[i] * log_p
            out[i] = np.log1p(np.exp(top)) if top < 30 else top + np.log1p(np.exp(-top))
            continue
        top = -np.inf
        for j in range(count):
            top = max(top, table[i, j] + (j + 2) * log_p + (order[i] - j - 2) * log_q)
        total = 0.0
        for j in range(count):
            term = table[i, j] + (j + 2) * log_p + (order[i] - j - 2) * log_q - top
            if term > -45.0:
                total += np.exp(term)
        total = top + np.log(total + 1e-18 * count)
        out[i] = np.log1p(np.exp(total)) if total < 30 else total + np.log1p(np.exp(-total))
    return out


def _log_unit_excess(kind: Kind, most: int) -> Floats:
    """ln(M_l - 1) for l = 2..most, M_l = E_P0[(P0(k-1)/P0(k))^l], rounded up."""
    if kind.v > _FAR:
        logs = np.array([(l - 1) * (integer_bounds(kind, l) @ np.ones(3)).min() for l in range(2, most + 1)])
    else:
        logs = _unit_moments(kind, most)
    return np.where(logs > 30, logs, np.log(np.expm1(np.minimum(logs, 30.0)))) + 1e-13


def _unit_moments(kind: Kind, most: int) -> Floats:
    length = _length(kind, most)
    while True:
        masses, wiggle = log_masses(kind, length)
        logs = np.array([log_moment(l, 1, 0.0, False, masses, wiggle) for l in range(2, most + 1)])
        if np.isfinite(logs).all() or length >= _LONGEST:
            return logs
        length *= 2


@njit(cache=True, nogil=True)
def _closed(s: int, order: int, bounds: Floats) -> float:
    """A bound on D(x)/x² for all x >= s, both directions, from A·s² + B·s + C at integers; it falls with s.

    Either the larger end of the cell over the smaller square, or chords: A(x² + p(1-p)) + Bx + C in reverse, and forward another
    (α-1)/(8α)·(D(s+1) - D(s))² for the logarithm of the chord of Ξ^(1/α).
    """
    best = np.inf
    for i in range(len(bounds)):
        a, b, c = bounds[i]
        if not a < np.inf:
            continue
        step = (a * (2 * s + 1) + b) / s
        chord = a * (1 + 0.25 / (s * (s + 1.0))) + b / s + c / s**2 + (order - 1) / (8.0 * order) * step**2
        best = min(best, chord, (a * (s + 1) ** 2 + b * (s + 1) + c) / s**2)
    return best


@njit(cache=True, nogil=True)
def _cells(
    order: int,
    reach: float,
    upper: float,
    lower: float,
    bounds: Floats,
    L: Floats,
    wiggle: float,
    tight: float,
) -> tuple[float, float]:
    """(upper, lower) over (0, reach] given those of the first cell: cell by cell until the closed form is enough."""
    s = 1
    at_s = log_moment(order, 1, 0.0, False, L, wiggle) / (order - 1)
    while s < reach:
        rest = _closed(s, order, bounds)
        if rest <= max(upper, lower * (1 + tight)):
            return max(upper, rest), lower
        if s + 1 <= reach:
            at_next = log_moment(order, s + 1, 0.0, False, L, wiggle) / (order - 1)
        for reverse in (False, True):
            end = (
                at_next
                if s + 1 <= reach
                else log_moment(order, s, reach - s, reverse, L, wiggle) / (order - 1)
            )
            goal = max(upper, lower * (1 + tight))
            high, low, _ = cell_bound(order, s, reach, at_s, end, goal, reverse, L, wiggle)
            upper, lower = max(upper, high), max(lower, low)
        if not upper < np.inf:
            return upper, lower
        s += 1
        at_s = at_next
    return upper, lower
