"""Rényi differential privacy as a curve: a bound on the Rényi divergence at each of some integer orders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.validation import whole

DEFAULT_ORDERS: tuple[int, ...] = tuple(range(2, 257))


def checked_orders(orders: Iterable[int]) -> tuple[int, ...]:
    """Strictly increasing integers >= 2, as a tuple; anything else raises `InvalidInput`."""
    given = tuple(orders)
    for order in given:
        if type(order) is not int or order < 2:  # only then is the full check, with its message, needed
            whole(2, order=order)
    if any(a >= b for a, b in pairwise(given)):
        raise InvalidInput(f"orders = {given!r}: must increase strictly; sort them and drop repetitions")
    return tuple(int(order) for order in given)


@dataclass(frozen=True)
class RdpCurve:
    """(α, τ(α))-RDP for every order α listed: D_α ≤ τ(α) in both directions between neighbours.

    `orders` are strictly increasing integers >= 2, `values` the finite bounds τ >= 0 at them. An order at
    which no bound is known (its theorem's condition fails) is absent. A curve may be empty: it then promises
    nothing.
    """

    orders: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", checked_orders(self.orders))
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))
        if len(self.orders) != len(self.values):
            raise InvalidInput(f"{len(self.orders)} orders, {len(self.values)} values: give one per order")
        for order, value in zip(self.orders, self.values, strict=True):
            if not 0 <= value < np.inf:
                raise InvalidInput(
                    f"value = {value!r} at order {order}: must be finite and >= 0; omit the order"
                )

    @classmethod
    def where_finite(cls, orders: Iterable[int], values: Iterable[float]) -> RdpCurve:
        """The curve on those orders whose value is finite (infinity says "no bound"); NaN raises."""
        kept = [(a, v) for a, v in zip(orders, values, strict=True) if v != np.inf]
        return cls(tuple(a for a, _ in kept), tuple(v for _, v in kept))

    def at(self, order: int) -> float:
        """τ(order), or infinity if the curve has no bound there."""
        try:
            return self.values[self.orders.index(order)]
        except ValueError:
            return float("inf")

    def dense(self) -> NDArray[np.float64]:
        """The curve as an array t with t[α] = τ(α), infinity where the curve has no bound.

        Its length is the largest order + 1, and t[0] = t[1] = 0.

        τ(1) is not 0 but no caller needs it; the two leading entries only make the index the order.
        """
        table = np.full(max(self.orders, default=1) + 1, np.inf)
        table[:2] = 0.0
        table[list(self.orders)] = self.values
        return table

    def __add__(self, other: object) -> RdpCurve:
        """Adaptive composition (Bao et al. 2022, Lemma 1): values add up on the common orders."""
        if not isinstance(other, RdpCurve):
            return NotImplemented
        mine = dict(zip(self.orders, self.values, strict=True))
        common = [(a, mine[a] + v) for a, v in zip(other.orders, other.values, strict=True) if a in mine]
        return RdpCurve(tuple(a for a, _ in common), tuple(v for _, v in common))

    def __mul__(self, rounds: object) -> RdpCurve:
        """The curve of `rounds` such rounds; 0 rounds cost nothing."""
        if not isinstance(rounds, Integral):
            return NotImplemented
        whole(0, rounds=rounds)
        return RdpCurve(self.orders, tuple(int(rounds) * v for v in self.values))

    __rmul__ = __mul__
