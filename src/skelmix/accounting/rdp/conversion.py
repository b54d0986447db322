"""From a Rényi curve to (ε, δ)-differential privacy and back."""

from __future__ import annotations

import math

from skelmix.accounting.rdp.curve import RdpCurve
from skelmix.validation import non_negative, probability


def epsilon(curve: RdpCurve, delta: float) -> tuple[float, int]:
    """The least ε that the curve gives at δ, and the order that gives it.

    Bao et al. 2022, Lemma 3 (Canonne, Kamath, Steinke 2020, Proposition 12): at each order
    ε = τ + ln(1 - 1/α) - (ln δ + ln α)/(α - 1). Where 1 - exp(-τ) < δ², the Bretagnolle-Huber inequality
    bounds the total variation by δ already and ε = 0. Never below 0. An empty curve gives (infinity, 0).
    """
    probability(delta=delta)
    best, order = math.inf, 0
    for a, tau in zip(curve.orders, curve.values, strict=True):
        if -math.expm1(-tau) < delta**2:
            return 0.0, a
        candidate = max(0.0, tau + math.log1p(-1 / a) - math.log(delta * a) / (a - 1))
        if candidate < best:
            best, order = candidate, a
    return best, order


def delta(curve: RdpCurve, epsilon: float) -> tuple[float, int]:
    """The least δ that the curve gives at ε >= 0, and its order: the same lemma, solved for δ.

    At most 1; an empty curve gives (1, 0).
    """
    non_negative(epsilon=epsilon)
    best, order = 1.0, 0
    for a, tau in zip(curve.orders, curve.values, strict=True):
        exponent = (a - 1) * (tau - epsilon + math.log1p(-1 / a)) - math.log(a)
        candidate = min(math.exp(min(exponent, 0.0)), math.sqrt(-math.expm1(-tau)))
        if candidate < best:
            best, order = candidate, a
    return best, order
