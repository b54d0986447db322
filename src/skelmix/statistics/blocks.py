"""The parts of a record's vector: what one record adds to each, and by how much at most.

Each block is scaled so that one record changes it by at most 1 in L2 norm (its entries are then multiplied by
`sensitivity` to give the answer's own units).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from skelmix.statistics.domains import Axis, Bins, Bounds
from skelmix.statistics.queries import (
    Count,
    CrossTable,
    Histogram,
    Mean,
    Quantiles,
    Query,
    Sum,
    Top,
    Variance,
)


class _Numbers:
    """A block of `size` numbers; one record changes the answer by at most `sensitivity` in L2 norm."""

    @property
    def size(self) -> int:
        return 1

    @property
    def sensitivity(self) -> float:
        return 1.0


@dataclass(frozen=True)
class Records(_Numbers):
    """1 for each record."""


@dataclass(frozen=True)
class Present(_Numbers):
    """Counts the records whose value of the column is not missing: 1 for each."""

    column: str


@dataclass(frozen=True)
class Missing(_Numbers):
    """Counts the records whose value of the column is missing: 1 for each.

    Such a record has nothing in the column's other numbers, so this block makes no record longer.
    """

    column: str


@dataclass(frozen=True)
class Total(_Numbers):
    """The clamped value x itself, divided by the largest absolute value that the bounds allow."""

    column: str
    bounds: Bounds

    @property
    def sensitivity(self) -> float:
        return self.bounds.largest


@dataclass(frozen=True)
class Centred(_Numbers):
    """The centred value t = (x - middle) / half range, in [-1, 1]."""

    column: str
    bounds: Bounds


@dataclass(frozen=True)
class Squared(_Numbers):
    """The squared value 2t² - 1, in [-1, 1], with t as in `Centred`."""

    column: str
    bounds: Bounds


@dataclass(frozen=True)
class Cells(_Numbers):
    """1 in the cell that the record falls into; the cells of all axes together, the last axis fastest.

    Every record falls into exactly one cell, because unknown categories and missing numbers have cells too.
    """

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        return math.prod(axis.domain.size for axis in self.axes)

    def check(self) -> None:
        """Raise `InvalidInput` where bins are too narrow for floating-point numbers."""
        for axis in self.axes:
            _ = axis.domain.edges if isinstance(axis.domain, Bins) else None


Block = Records | Present | Missing | Total | Centred | Squared | Cells
#: the blocks in which a record with a missing value of the column has nothing
MOMENTS = (Total, Centred, Squared)


def columns_beside_count(queries: Iterable[Query]) -> frozenset[str]:
    """The columns whose values are counted as all records less those that miss a value.

    Those with a mean or variance, where `count` is asked or there are four of them or more; for fewer, a
    count of each column's own values is more accurate. Never a column of which only sums are asked: a party
    that allows no more shows neither how many records it has nor how many miss a value.
    """
    asked = list(queries)
    columns = frozenset(query.column for query in asked if isinstance(query, Mean | Variance))
    return columns if Count() in asked or len(columns) >= 4 else frozenset()


def _better_centred(bounds: Bounds) -> bool:
    """Whether a sum is more accurate as half range x (sum of centred values) + middle x (their number).

    The number is a difference of two counts, each as noisy as the sum. No roots: every party must agree.
    """
    return bounds.half_range**2 + 2 * bounds.middle**2 < bounds.largest**2


def blocks_of(query: Query, beside_count: frozenset[str]) -> tuple[Block, ...]:
    """The blocks that answer a query. beside_count: as `columns_beside_count` says.

    Sums of centred values come with the blocks that count the values before them.
    """
    if isinstance(query, Mean | Variance | Sum):
        shared = query.column in beside_count
        if isinstance(query, Sum) and not (shared and _better_centred(query.bounds)):
            return (Total(query.column, query.bounds),)
        counters: tuple[Block, ...] = (Present(query.column),)
        if shared:
            counters = (Records(), Missing(query.column))
        centred = Centred(query.column, query.bounds)
        if isinstance(query, Variance):
            return (*counters, centred, Squared(query.column, query.bounds))
        return (*counters, centred)
    match query:
        case Count():
            return (Records(),)
        case Histogram() | Top() | Quantiles():
            return (Cells((query.axis,)),)
        case CrossTable():
            return (Cells((query.first, query.second)),)


def proper_bins(cells: Cells) -> int | None:
    """How many of a one-column block's cells are bins of values that are not missing; None for others."""
    if len(cells.axes) == 1 and isinstance(cells.axes[0].domain, Bins):
        return cells.axes[0].domain.count
    return None
