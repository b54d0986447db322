"""The theorems of the paper and of the baselines, one function per theorem.

"Bao et al. 2022" is the Skellam mixture paper. Each function returns the Rényi curve on those of the given
orders at which the theorem's conditions hold; the other orders are left out. `total_noise` is Λ, the
parameter of the *summed* Skellam noise (variance 2Λ); for discrete Gaussians `variance` is σ² of one
participant and `copies` the number summed. All sensitivities are on the integer grid, after scaling. A
sensitivity of 0 costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from skelmix.accounting.rdp.curve import DEFAULT_ORDERS, RdpCurve, checked_orders
from skelmix.errors import InvalidInput
from skelmix.validation import non_negative, positive, whole

Orders = Iterable[int]


def _curve(
    orders: Orders, value: Callable[[int], float], holds: Callable[[int], bool] | None = None
) -> RdpCurve:
    kept = [a for a in checked_orders(orders) if holds is None or holds(a)]
    return RdpCurve.where_finite(kept, [value(a) for a in kept])


def gaussian(variance: float, l2: float, orders: Orders = DEFAULT_ORDERS) -> RdpCurve:
    """Gaussian noise on a vector of L2 norm at most l2: αl2²/(2σ²) (Mironov 2017, Corollary 3)."""
    positive(variance=variance)
    non_negative(l2=l2)
    return _curve(orders, lambda a: a * l2**2 / (2 * variance))


def theorem_3(total_noise: float, shift: int, orders: Orders = DEFAULT_ORDERS) -> RdpCurve:
    """Skellam noise against its shift by an integer: (1.09α + 0.91)/2·s²/(2Λ), for α < 2Λ/|s| + 1.

    Bao et al. 2022, Theorem 3, Eq. (1).
    """
    whole(0, shift=abs(shift))
    return theorem_4(total_noise, float(shift) ** 2, max(1, abs(shift)), orders)


def theorem_4(total_noise: float, c: float, linf: int, orders: Orders = DEFAULT_ORDERS) -> RdpCurve:
    """Integer vectors with ‖s‖₂² <= c, ‖s‖∞ <= linf: (1.09α + 0.91)/2·c/(2Λ), for α < 2Λ/linf + 1.

    Bao et al. 2022, Theorem 4, Eq. (2).
    """
    positive(total_noise=total_noise)
    non_negative(c=c)
    whole(1, linf=linf)
    return _curve(
        orders,
        lambda a: (1.09 * a + 0.91) / 2 * c / (2 * total_noise),
        lambda a: a < 2 * total_noise / linf + 1,
    )


def theorem_5(total_noise: float, c: float, linf: int, orders: Orders = DEFAULT_ORDERS) -> RdpCurve:
    """One coordinate of the Skellam mixture: x² + p - p² <= c and ⌈|x|⌉ <= linf give (1.2α + 1)/2·c/(2Λ).

    Bao et al. 2022, Theorem 5; Eq. (3) must hold at the order.
    """
    return corollary_1(total_noise, c, linf, orders)


def corollary_1(total_noise: float, c: float, linf: int, orders: Orders = DEFAULT_ORDERS) -> RdpCurve:
    """The Skellam mixture on vectors with Σ(x² + p - p²) <= c and ‖⌈|x|⌉‖∞ <= linf: (1.2α + 1)/2·c/(2Λ).

    Bao et al. 2022, Corollary 1. Orders at which Eq. (3) fails are left out.
    """
    positive(total_noise=total_noise)
    non_negative(c=c)
    whole(1, linf=linf)
    return _curve(
        orders,
        lambda a: (1.2 * a + 1) / 2 * c / (2 * total_noise),
        lambda a: _equation_3(total_noise, linf, a),
    )


def _equation_3(total_noise: float, linf: int, order: int) -> bool:
    quadratic = 10.9 * order**2 - 1.8 * order - 9.1
    return order < 2 * total_noise / linf + 1 and quadratic < 4 * total_noise / linf**2


def largest_linf(total_noise: float, order: int) -> int:
    """The largest integer Δ∞ that Eq. (3) of Bao et al. 2022 allows at the order, 0 if none.

    Both conditions get easier as the order falls, so it is allowed at every lower order too.
    """
    positive(total_noise=total_noise)
    whole(2, order=order)
    linear = 2 * total_noise / (order - 1)
    quadratic = math.sqrt(4 * total_noise / (10.9 * order**2 - 1.8 * order - 9.1))
    candidate = math.floor(min(linear, quadratic)) + 1  # the two lines above are rounded
    while candidate > 0 and not _equation_3(total_noise, candidate, order):
        candidate -= 1
    return candidate


def skellam(total_noise: float, l2: float, l1: float, orders: Orders = DEFAULT_ORDERS) -> RdpCurve:
    """Skellam noise on integer vectors: αΔ2²/(2V) + min{((2α-1)Δ2² + 6Δ1)/(4V²), 3Δ1/(2V)}, V = 2Λ.

    Agarwal, Kairouz, Liu 2021, Theorem 3.5, for integer orders.
    """
    positive(total_noise=total_noise)
    non_negative(l2=l2, l1=l1)
    v = 2 * total_noise
    return _curve(
        orders,
        lambda a: a * l2**2 / (2 * v) + min(((2 * a - 1) * l2**2 + 6 * l1) / (4 * v**2), 3 * l1 / (2 * v)),
    )


def convolution_gap(variance: float, copies: int) -> float:
    """How far a sum of n discrete Gaussians is from a discrete Gaussian.

    τ_n = 10 Σ_{k=1}^{n-1} exp(-2π²σ²k/(k+1)).

    Bao et al. 2022, Eq. (7), after Kairouz, Liu, Steinke 2021, who need σ >= 1/2; infinity below that (n >
    1).
    """
    positive(variance=variance)
    whole(1, copies=copies)
    if copies > 1 and variance < 0.25:
        return math.inf
    k = np.arange(1, copies, dtype=np.float64)
    return 10 * float(np.exp(-2 * np.pi**2 * variance * (k / (k + 1))).sum())


def theorem_7(variance: float, copies: int, shift: int, orders: Orders = DEFAULT_ORDERS) -> RdpCurve:
    """A sum of discrete Gaussians against its shift by s: min{αs²/(2nσ²) + τ_n, (α/2)(|s|/(√n σ) + τ_n)²}.

    Bao et al. 2022, Theorem 7, after Kairouz, Liu, Steinke 2021.
    """
    return discrete_gaussian(variance, copies, abs(shift), abs(shift), 1, orders)


def theorem_8(variance: float, copies: int, c: float, linf: int, orders: Orders = DEFAULT_ORDERS) -> RdpCurve:
    """One coordinate of the discrete Gaussian mixture: Bao et al. 2022, Theorem 8, last term corrected.

    1.1·min{αc/(2nσ²) + τ_n, αc/(2nσ²) + αΔ∞τ_n/(√n σ) + (α/2)τ_n²}: the printed τ_n² is (α/2)τ_n² once the
    square of Theorem 7 is expanded. Eq. (8) must hold at the order.
    """
    return corollary_3(variance, copies, c, float(linf), linf, 1, orders)


def corollary_3(
    variance: float,
    copies: int,
    c: float,
    l1: float,
    linf: int,
    dimension: int,
    orders: Orders = DEFAULT_ORDERS,
) -> RdpCurve:
    """The discrete Gaussian mixture on vectors with Σ(x² + p - p²) <= c, ‖x‖₁ <= l1, ‖⌈|x|⌉‖∞ <= linf.

    Bao et al. 2022, Corollary 3, with the last term corrected as in `theorem_8`:
    1.1·min{αc/(2nσ²) + dτ_n, αc/(2nσ²) + αΔ1τ_n/(√n σ) + (α/2)dτ_n²}. Orders at which Eq. (8) fails are left
    out.
    """
    tau = convolution_gap(variance, copies)
    non_negative(c=c, l1=l1)
    whole(1, linf=linf, dimension=dimension)
    total = variance * copies

    def holds(a: int) -> bool:
        first = a * linf**2 / (2 * total) + tau < 0.1 / (a - 1)
        return first and (linf / math.sqrt(total) + tau) ** 2 < 0.2 / (a**2 - a)

    def value(a: int) -> float:
        cross = a * l1 * tau / math.sqrt(total) + a / 2 * dimension * tau**2
        return 1.1 * (a * c / (2 * total) + min(dimension * tau, cross))

    return _curve(orders, value, holds)


def discrete_gaussian(
    variance: float, copies: int, l2: float, l1: float, dimension: int, orders: Orders = DEFAULT_ORDERS
) -> RdpCurve:
    """A sum of discrete Gaussians on integer vectors (DDG; Kairouz, Liu, Steinke 2021, Theorem 1).

    The least of αΔ2²/(2nσ²) + τd, (α/2)(Δ2²/(nσ²) + 2Δ1τ/(√n σ) + τ²d) and (α/2)(Δ2/(√n σ) + τ√d)². No order
    at all when σ < 1/2 and n > 1.
    """
    tau = convolution_gap(variance, copies)
    non_negative(l2=l2, l1=l1)
    whole(1, dimension=dimension)
    if tau == math.inf:
        return RdpCurve((), ())
    total = variance * copies

    def value(a: int) -> float:
        apart = a * l2**2 / (2 * total) + tau * dimension
        mixed = a / 2 * (l2**2 / total + 2 * l1 * tau / math.sqrt(total) + tau**2 * dimension)
        norm = a / 2 * (l2 / math.sqrt(total) + tau * math.sqrt(dimension)) ** 2
        return min(apart, mixed, norm)

    return _curve(orders, value)


def binomial(trials: float, l2: float, l1: float, linf: float, dimension: int, delta: float) -> float:
    """ε of one round of cpSGD at δ: noise Bin(N, 1/2) - N/2 on each coordinate of an integer vector.

    Agarwal, Suresh, Yu, Kumar, McMahan 2018, Theorem 1, at p = 1/2 with quantisation step 1 (the grid's).
    Infinity unless N/4 >= max(23 ln(10d/δ), 2Δ∞). As published it leaves out the mean Δ₂²/(2·N/4) of the
    privacy loss and falls below the truth for ε of about 8 and more, so `binomial_tail` is its floor. There
    is no Rényi bound.
    """
    positive(trials=trials)
    non_negative(l2=l2, l1=l1, linf=linf)
    whole(1, dimension=dimension)
    if not 0 < delta < 1:
        raise InvalidInput(f"delta = {delta!r}: must lie strictly between 0 and 1")
    variance = trials / 4
    if variance < max(23 * math.log(10 * dimension / delta), 2 * linf):
        return math.inf
    b_p, c_p, d_p = 1 / 3, 1.75 * math.sqrt(2), 2 / 3  # at p = 1/2
    log_delta = math.log(1.25 / delta)
    leading = l2 * math.sqrt(2 * log_delta / variance)
    second = (l2 * c_p * math.sqrt(math.log(10 / delta)) + l1 * b_p) / (variance * (1 - delta / 10))
    third = 2 / 3 * linf * log_delta + linf * d_p * math.log(20 * dimension / delta) * math.log(10 / delta)
    published = leading + second + third / variance
    return max(published, binomial_tail(trials, l2, l1, linf, dimension, delta))


def binomial_tail(trials: float, l2: float, l1: float, linf: float, dimension: int, delta: float) -> float:
    """ε at δ of Bin(N, 1/2) - N/2 on each coordinate of an integer vector, from the tail of the privacy loss.

    With M = (N+1)/2 the loss of a shift s at noise x is Σ 2 artanh(y/M) over y = x_i + 1/2, ..., x_i + s_i -
    1/2 and all i: (2/M)(<s, x> + ‖s‖²/2) and at most ‖s‖₁·(2/3)z³/(1-z²) more while no s_i·x_i > 0 has |x_i|
    beyond r, z = (r + Δ∞)/M. By Hoeffding's lemma <s, x> is below ‖s‖√(2(N/4)ln(1.25/δ)) but for 0.8δ, and
    r = √(2(N/4)ln(5d/δ)) is passed with probability 0.2δ at most. Infinity where z >= 1.
    """
    variance, middle = trials / 4, (trials + 1) / 2
    linear = l2 * math.sqrt(2 * variance * math.log(1.25 / delta)) + l2 * l2 / 2
    z = (math.sqrt(2 * variance * math.log(5 * dimension / delta)) + linf) / middle
    if z >= 1:
        return math.inf
    return (linear * 2 / middle + l1 * 2 / 3 * z**3 / (1 - z * z)) * (1 + 1e-12)


def amplify_poisson(epsilon: float, q: float) -> float:
    """ε of an (ε, δ)-DP round under Poisson sampling, ln(1 + q(e^ε - 1)); its δ becomes qδ.

    For neighbours that differ in one participant, added, removed or zeroed (Li, Qardaji, Su 2012; Balle et
    al. 2018).
    """
    if epsilon > 700:
        return epsilon + math.log(q) if q > 0 else 0.0
    return math.log1p(q * math.expm1(epsilon))


def compose_linear(epsilon: float, rounds: int) -> float:
    """ε of `rounds` (ε, δ)-DP rounds; their δ add up."""
    return rounds * epsilon


def compose_advanced(epsilon: float, rounds: int, slack: float) -> float:
    """ε of `rounds` (ε, δ)-DP rounds by advanced composition; the total δ is rounds·δ + slack.

    Kairouz, Oh, Viswanath 2015, Theorem 3.4: Tε(e^ε - 1)/(e^ε + 1) + ε√(2T ln(1/slack)).
    """
    return rounds * epsilon * math.tanh(epsilon / 2) + epsilon * math.sqrt(2 * rounds * math.log(1 / slack))


def composed_epsilon(one_round: Callable[[float], float], q: float, rounds: int, delta: float) -> float:
    """The total ε at δ of Poisson-sampled rounds of a mechanism that only has `one_round(δ₀)` -> ε₀.

    There are `rounds` of them, sampled with probability q.

    The better of linear composition (δ₀ = δ/(Tq)) and advanced composition over a few splits of δ between the
    rounds and the slack; every split is valid, so the least of them is. Infinity if the one round has no
    bound.
    """
    whole(1, rounds=rounds)
    if not 0 < q <= 1 or not 0 < delta < 1:
        raise InvalidInput(f"q = {q!r}, delta = {delta!r}: need q in (0, 1] and delta in (0, 1)")

    def sampled(share: float) -> float:
        delta_0 = share * delta / (rounds * q)
        epsilon_0 = one_round(min(delta_0, 0.5))  # a δ₀ below the budget's share is always allowed
        return amplify_poisson(epsilon_0, q) if epsilon_0 < math.inf else math.inf

    best = compose_linear(sampled(1.0), rounds)
    for share in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98):
        best = min(best, compose_advanced(sampled(share), rounds, (1 - share) * delta))
    return best
