"""Rényi curves against the aggregator, by enumeration and beside the sum over contributions."""

import math
from itertools import product

import numpy as np
import pytest

from skelmix.accounting.gaussian.certificate import gaussian_certificate
from skelmix.accounting.gaussian.participation import aggregator_epsilon
from skelmix.accounting.participations import Participations
from skelmix.accounting.rdp import closed_form, conversion
from skelmix.accounting.rdp.curve import RdpCurve
from skelmix.accounting.rdp.participation import aggregator_curve
from skelmix.accounting.rdp.subsampling import poisson
from skelmix.errors import InvalidInput

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.35, 0.3, 0.35])


def divergence(p, q, order):
    return math.log((p**order * q ** (1 - order)).sum()) / (order - 1)


def enumerated(run, order, coin=1.0):
    """D_order of all rounds together with their labels: which rounds the participant is in, up to its cap."""
    q, present = run.sampling_probability, (1 - coin) * Q + coin * P
    total = 0.0
    for labels in product((0, 1), repeat=run.rounds):
        weight = math.prod(q if label else 1 - q for label in labels)
        kept = min(sum(labels), run.most)
        first, second = np.ones(1), np.ones(1)
        for _ in range(kept):
            first, second = np.outer(first, present).ravel(), np.outer(second, Q).ravel()
        total += weight * (first**order * second ** (1 - order)).sum()
    return math.log(total) / (order - 1)


@pytest.mark.parametrize(
    "run",
    [Participations(4, 0.3), Participations(4, 0.3, cap=2), Participations(3), Participations(5, cap=2)],
)
def test_the_curve_is_that_of_the_enumerated_run(run):
    orders = (2, 3, 8, 20)
    curve = aggregator_curve(RdpCurve(orders, tuple(divergence(P, Q, a) for a in orders)), run)
    for order in orders:
        assert curve.at(order) == pytest.approx(enumerated(run, order), rel=1e-9)


def test_a_coin_costs_what_its_sampled_curve_says():
    run, orders = Participations(3, 0.4), tuple(range(2, 12))
    both = RdpCurve(orders, tuple(max(divergence(P, Q, a), divergence(Q, P, a)) for a in orders))
    found = aggregator_curve(both, run, coin=0.25)
    one = poisson(both, 0.25)
    for order in orders:
        assert enumerated(run, order, coin=0.25) <= found.at(order)
        expected = 3 * math.log1p(0.4 * math.expm1((order - 1) * one.at(order))) / (order - 1)
        assert found.at(order) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("coin", [1.0, 0.1])
@pytest.mark.parametrize("cap", [None, 6])
def test_rényi_bounds_are_above_the_exact_sum(coin, cap):
    run = Participations(1_000, 0.004 / coin, cap)
    curve = aggregator_curve(closed_form.gaussian(0.6344**2, 1.0), run, coin=coin)
    by_rényi = conversion.epsilon(curve, 1e-5)[0]
    exact = aggregator_epsilon(gaussian_certificate(0.6344), run, delta=1e-5, coin=coin)
    assert exact < by_rényi < 2 * exact


def test_very_large_values_do_not_overflow():
    curve = RdpCurve((2, 256), (5.0, 1e6))
    for run in (
        Participations(10, 0.1),
        Participations(10**6, 1e-4, cap=5_000),
        Participations(10, 0.1, cap=2),
    ):
        found = aggregator_curve(curve, run)
        assert all(
            math.isfinite(value) and value <= run.most * tau
            for value, tau in zip(found.values, curve.values, strict=True)
        )


def test_bad_coins_are_refused():
    for coin in (0.0, 1.01):
        with pytest.raises(InvalidInput, match="coin"):
            aggregator_curve(RdpCurve((2,), (1.0,)), Participations(3), coin=coin)
