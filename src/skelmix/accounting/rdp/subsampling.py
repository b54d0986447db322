"""What sampling the participants of a round does to its Rényi curve, in both directions.

Neighbours differ in one participant whose vector is replaced by zero; `curve` bounds D_α(P‖Q) and D_α(Q‖P)
for the round in which that participant is present (law P) or zeroed (law Q). Proofs:
docs/explanation/tight-bound.md.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, logsumexp

from skelmix.accounting.rdp.curve import RdpCurve
from skelmix.arrays import FloatArray, IntArray
from skelmix.errors import InvalidInput
from skelmix.validation import cohort_within


def poisson(curve: RdpCurve, q: float) -> RdpCurve:
    """Each participant takes part independently with probability q in [0, 1].

    Order α of the result needs every order 2..α of the curve; an α for which one is absent is left out. The
    value is the larger of the two directions: E_Q[(1-q+qr)^α], r = P/Q, expanded by the binomial theorem (Bao
    et al. 2022, Lemma 2), and `poisson_reverse`. q = 0 costs nothing, q = 1 returns the curve as it is.
    """
    _probability(q)
    if q == 1 or not curve.orders:
        return curve
    usable = _leading(curve)
    if q == 0:
        return RdpCurve(usable.orders, (0.0,) * len(usable.orders))
    values = np.maximum(poisson_forward(usable, q), poisson_reverse(usable, q))
    return RdpCurve.where_finite(usable.orders, values.tolist())


def poisson_forward(curve: RdpCurve, q: float) -> FloatArray:
    """D_α((1-q)Q + qP ‖ Q) at each order of a curve on 2..A: ln(Σ_l C(α,l)(1-q)^(α-l) q^l M_l)/(α-1).

    With M_l = e^((l-1)τ(l)) and M_0 = M_1 = 1 the sum is 1 + Σ_{l>=2} C(α,l)(1-q)^(α-l) q^l (M_l - 1): only
    non-negative terms, so small privacy losses keep their digits.
    """
    orders = np.asarray(curve.orders)
    log_excess = _log_expm1((orders - 1) * np.asarray(curve.values))
    power = orders[None, :]
    order = orders[:, None]
    rest = np.maximum(order - power, 0)
    terms = _log_choose(order, power) + rest * np.log1p(-q) + power * np.log(q) + log_excess[None, :]
    terms = np.where(power <= order, terms, -np.inf)
    return np.asarray(np.logaddexp(0.0, logsumexp(terms, axis=1)) / (orders - 1))


def poisson_reverse(curve: RdpCurve, q: float) -> FloatArray:
    """D_α(Q ‖ (1-q)Q + qP), bounded for any mechanism by the smaller of two.

    A Taylor polynomial in u = r - 1 with its remainder, 1 + C(α,2)q²(M_2-1) + C(α+1,3)q³(1-q)^(-α-2) min(1,
    M_2-1); and q·τ(α), since D_α is convex in its second argument.
    """
    orders = np.asarray(curve.orders)
    values = np.asarray(curve.values)
    log_chi = _log_expm1(values[:1])
    quadratic = _log_choose(orders, 2) + 2 * np.log(q) + log_chi
    cubic = (
        _log_choose(orders + 1, 3) + 3 * np.log(q) - (orders + 2) * np.log1p(-q) + np.minimum(0.0, log_chi)
    )
    taylor = np.logaddexp(0.0, np.logaddexp(quadratic, cubic)) / (orders - 1)
    return np.minimum(taylor, q * values)


def substitution(curve: RdpCurve) -> RdpCurve:
    """The curve for replacing one vector by any other, from the curve for replacing it by zero.

    The weak triangle inequality through the zeroed law (Mironov 2017, Proposition 11, p = q = 2):
    τ_sub(α) = (α-1/2)/(α-1)·τ(2α) + τ(2α-1). Orders without both are left out.
    """
    table = curve.dense()
    orders = list(range(2, (len(table) - 1) // 2 + 1))
    values = [(a - 0.5) / (a - 1) * table[2 * a] + table[2 * a - 1] for a in orders]
    return RdpCurve.where_finite(orders, values)


def fixed_size(curve: RdpCurve, cohort: int, population: int) -> RdpCurve:
    """The curve of a round with a uniform cohort of exactly `cohort` participants, without replacement.

    Neighbours are the same as everywhere here.

    The ternary argument of Wang, Balle, Kasiviswanathan 2019, Theorem 9, carried out for zeroed participants.
    When the participant is not drawn, *another one* stands in the cohort, so their bound needs the curve for
    substituting any vector, not the one for zeroing: `substitution(curve)` supplies it, which needs orders up
    to 2α to give order α. The result holds in both directions and never exceeds `curve`; the whole population
    returns `curve` itself.
    """
    cohort_within(cohort, population)
    if cohort == population:
        return curve
    base, swapped = _leading(curve), _leading(substitution(curve))
    if not swapped.orders:
        return RdpCurve((), ())
    g = cohort / population
    orders = np.asarray(swapped.orders)
    values = np.asarray(base.values)[: len(orders)]
    away, near = np.asarray(swapped.values), values
    moments = np.logaddexp(
        np.log1p(-g) + np.logaddexp((orders - 1) * away, (orders - 1) * near),
        np.log(g) + np.logaddexp((orders - 1) * near, 0.0),
    )
    chi_away, chi_near = 0.5 * _log_expm1(away[:1]), 0.5 * _log_expm1(near[:1])
    spread = np.logaddexp(np.log1p(-g) + 2 * np.logaddexp(chi_away, chi_near), np.log(g) + 2 * chi_near)
    moments[0] = min(moments[0], spread[0])
    power, order = orders[None, :], orders[:, None]
    terms = np.where(
        power <= order, _log_choose(order, power) + power * np.log(g) + moments[None, :], -np.inf
    )
    amplified = np.logaddexp(0.0, logsumexp(terms, axis=1)) / (orders - 1)
    return RdpCurve.where_finite(swapped.orders, np.minimum(amplified, values).tolist())


def _probability(q: float) -> None:
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        raise InvalidInput(f"q = {q!r}: must be a sampling probability in [0, 1]")


def _leading(curve: RdpCurve) -> RdpCurve:
    """The curve on 2, 3, ... up to the first missing order."""
    count = sum(1 for a, expected in enumerate(curve.orders, start=2) if a == expected)
    return RdpCurve(curve.orders[:count], curve.values[:count])


def _log_choose(n: FloatArray | IntArray, k: FloatArray | IntArray | int) -> FloatArray:
    inside = np.maximum(np.asarray(n) - k, 0)
    return np.asarray(gammaln(np.asarray(n) + 1.0) - gammaln(np.asarray(k) + 1.0) - gammaln(inside + 1.0))


def _log_expm1(x: FloatArray) -> FloatArray:
    """ln(e^x - 1) without overflow; -infinity at 0."""
    with np.errstate(divide="ignore"):
        return np.where(
            x > 30.0, x + np.log1p(-np.exp(-np.maximum(x, 30.0))), np.log(np.expm1(np.minimum(x, 30.0)))
        )
