"""The parts of a record's vector: what one record adds to each, and by how much at most.

Each block is scaled so that one record changes it by at most 1 in L2 norm (its entries are then multiplied by
`sensitivity` to give the answer's own units).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

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
        return prod(axis.domain.size for axis in self.axes)


Block = Records | Present | Total | Centred | Squared | Cells


def blocks_of(query: Query) -> tuple[Block, ...]:
    """The blocks that answer a query."""
    match query:
        case Count():
            return (Records(),)
        case Sum():
            return (Total(query.column, query.bounds),)
        case Mean():
            return (Present(query.column), Centred(query.column, query.bounds))
        case Variance():
            return (
                Present(query.column),
                Centred(query.column, query.bounds),
                Squared(query.column, query.bounds),
            )
        case Histogram() | Top() | Quantiles():
            return (Cells((query.axis,)),)
        case CrossTable():
            return (Cells((query.first, query.second)),)


def proper_bins(cells: Cells) -> int | None:
    """How many of a one-column block's cells are bins of values that are not missing; None for others."""
    if len(cells.axes) == 1 and isinstance(cells.axes[0].domain, Bins):
        return cells.axes[0].domain.count
    return None
