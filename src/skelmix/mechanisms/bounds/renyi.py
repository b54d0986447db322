"""Rényi bounds: the divergence of one round at many orders, sampled, composed and converted to (ε, δ)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from skelmix.accounting.rdp import closed_form, conversion, subsampling
from skelmix.accounting.rdp.curve import DEFAULT_ORDERS, RdpCurve
from skelmix.accounting.rdp.participation import aggregator_curve
from skelmix.errors import PrivacyUnattainable
from skelmix.mechanisms.bounds.bound import Bound, ProvedEpsilon

if TYPE_CHECKING:
    from skelmix.accounting.participations import Participations
    from skelmix.accounting.schedule import Schedule
    from skelmix.mechanisms.base import Mechanism


class RenyiBound(Bound):
    """The certified κ of the summed noise (docs/explanation/tight-bound.md)."""

    name = "rdp"
    statement = "certified Rényi bound of the summed noise"
    renyi = True

    def epsilon(
        self, mechanism: Mechanism, schedule: Schedule, delta: float, slack: float | None = None
    ) -> ProvedEpsilon:
        epsilon, order = best_order(
            mechanism,
            lambda curve: rdp_epsilon(curve, schedule, delta),
            orders_per_order=1 if schedule.independent else 2,
        )
        return ProvedEpsilon(epsilon, self, order=order or None)

    def epsilon_aggregator(
        self,
        proved: ProvedEpsilon,
        mechanism: Mechanism,
        participations: Participations,
        contribute: float,
        delta: float,
    ) -> float:
        return known_participation_epsilon(mechanism, participations, contribute, delta)

    def hopeless(self, mechanism: Mechanism, schedule: Schedule, epsilon: float, delta: float) -> bool:
        """Compare with a Gaussian of equal variance, whose κ is never larger (Chapman and Robbins)."""
        return rdp_epsilon(gaussian_curve(mechanism), schedule, delta)[0] > epsilon


class PaperBound(RenyiBound):
    """The closed forms of the paper and of the baselines' own papers."""

    name = "paper"
    statement = "closed forms of the literature, Rényi accounting"
    certified = False
    needs_every_coordinate = True

    def hopeless(self, mechanism: Mechanism, schedule: Schedule, epsilon: float, delta: float) -> bool:
        return False


def rdp_epsilon(curve: RdpCurve, schedule: Schedule, delta: float) -> tuple[float, int]:
    """(ε, order) of all rounds, each with this Rényi curve before sampling; (inf, 0) if it has no order."""
    if schedule.amplified and schedule.independent:
        curve = subsampling.poisson(curve, schedule.rate)
    elif schedule.amplified:
        if schedule.contribute < 1:
            curve = subsampling.poisson(curve, schedule.contribute)
        curve = subsampling.fixed_size(curve, schedule.expected, schedule.population)
    return _converted(curve, schedule.rounds, delta)


def gaussian_curve(mechanism: Mechanism) -> RdpCurve:
    """The curve of a Gaussian of the same variance: a lower bound on the curve of integer noise."""
    return closed_form.gaussian(mechanism.noise_variance(mechanism.shares), mechanism.l2_sensitivity)


def known_participation_epsilon(
    mechanism: Mechanism, participations: Participations, contribute: float, delta: float
) -> float:
    """The ε of the mechanism's Rényi curve for an adversary who sees when the participant takes part."""

    def epsilon_of(curve: RdpCurve) -> tuple[float, int]:
        return _converted(aggregator_curve(curve, participations, coin=contribute), 1, delta)

    return best_order(mechanism, epsilon_of)[0]


def best_order(
    mechanism: Mechanism, epsilon_of: Callable[[RdpCurve], tuple[float, int]], *, orders_per_order: int = 1
) -> tuple[float, int]:
    """(ε, order) by the mechanism's Rényi curve.

    Any set of orders gives a bound, and more orders cost time: the ones tried are those relevant to an
    equal-variance Gaussian, plus a margin, unless the best one may lie beyond. To evaluate ε at an order, the
    curve is needed up to `orders_per_order` times that order.
    """
    likely = epsilon_of(gaussian_curve(mechanism))[1]
    orders = DEFAULT_ORDERS[: orders_per_order * math.ceil(1.1 * likely)]
    epsilon, order = epsilon_of(_curve(mechanism, orders))
    inside = orders and 0 < order < orders[-1] // orders_per_order
    return (epsilon, order) if inside else epsilon_of(_curve(mechanism, DEFAULT_ORDERS))


def _curve(mechanism: Mechanism, orders: tuple[int, ...]) -> RdpCurve:
    """The Rényi curve of one round, empty where the bound says nothing."""
    try:
        return mechanism.rdp(orders)
    except PrivacyUnattainable:
        return RdpCurve((), ())


def _converted(curve: RdpCurve, rounds: int, delta: float) -> tuple[float, int]:
    return conversion.epsilon(curve * rounds, delta) if curve.orders else (math.inf, 0)
