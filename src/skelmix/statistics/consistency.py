"""Make released counts agree: cross tables add up to their margins, everything to the count, nothing below 0.

Several blocks count the same records. The differences between their sums are known to be zero, so least
squares, weighted by the known noise, moves each count to the nearest ones that agree, which also makes it
more accurate. All of it uses released numbers only (post-processing); how accurate the result is depends on
the question alone, and is known before any data is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

from skelmix.arrays import FloatArray, IntArray
from skelmix.statistics.blocks import Block, Cells, Missing, Present, Records, proper_bins
from skelmix.statistics.domains import Axis
from skelmix.statistics.intervals import CumulativeNoise
from skelmix.statistics.layout import Layout

_MOST_MARGIN = 4096  # larger margins are left as they are
_STEPS = 100  # of Newton's method, at most
_HALVINGS = 40  # of one step, at most
_CLOSE = 1e-9  # standard deviations
_LARGE, _MOBILITY = 6.0, 0.1  # standard deviations that no empty cell reaches; how far larger counts move
_ROUNDING = 1e-12  # of a sum of squares: near the end it is larger than what a step gains
_MOST_COVARIANCES = 1 << 22  # most numbers kept: constraints times entries, 32 MiB
Pair = tuple[IntArray, IntArray]


class Consistency:
    """Projects counts onto the nearest consistent ones, in the norm of their noise.

    deviations: the standard deviation of the noise of each entry, in the answers' units.
    """

    def __init__(self, layout: Layout, deviations: FloatArray) -> None:
        self._deviations = deviations
        self._rows = list(constraints(layout))
        self._differences: dict[tuple[int, ...], float] = {}
        self._cumulative: dict[tuple[int, int], CumulativeNoise] = {}
        self.counting = np.zeros(layout.dimension, np.bool_)
        for block in layout.blocks:
            if isinstance(block, Records | Present | Missing | Cells):
                self.counting[layout.place(block)] = True

    def reconciled(self, values: FloatArray) -> FloatArray:
        """The weighted least-squares estimate of all entries under the constraints."""
        return self._onto_constraints(values / self._deviations) * self._deviations

    @cached_property
    def deviations(self) -> FloatArray:
        """The standard deviation of each entry after `reconciled`."""
        if not self._rows:
            return self._deviations
        from scipy.linalg import cho_solve

        inverse = cho_solve((self._cholesky, True), np.eye(len(self._rows)))
        matrix = self._matrix.tocsc()
        lengths = np.diff(matrix.indptr)
        remaining = np.ones(len(self._deviations))
        for length in np.unique(lengths[lengths > 0]):  # an entry is in a few constraints only
            entries = np.flatnonzero(lengths == length)
            where = matrix.indptr[entries][:, None] + np.arange(length)
            rows, factors = matrix.indices[where], matrix.data[where]
            for p, q in product(range(length), repeat=2):
                remaining[entries] -= factors[:, p] * factors[:, q] * inverse[rows[:, p], rows[:, q]]
        reconciled: FloatArray = self._deviations * np.sqrt(np.maximum(remaining, 0.0))
        return reconciled

    def deviation_of(self, entries: list[int]) -> float:
        """The standard deviation, after `reconciled`, of the first entry less those that follow it."""
        places = tuple(entries)
        if places not in self._differences:
            signs = np.array([1.0, *[-1.0] * (len(entries) - 1)])
            before, removed = self._deviations[entries] * signs, self._removed(entries) @ signs
            self._differences[places] = math.sqrt(max(float(before @ before - removed @ removed), 0.0))
        return self._differences[places]

    def cumulative(self, start: int, stop: int) -> CumulativeNoise | None:
        """The noise, after `reconciled`, of the sums of the first entries; None where it takes too long."""
        if len(self._rows) * (stop - start) > _MOST_COVARIANCES:
            return None
        if (start, stop) not in self._cumulative:
            self._cumulative[start, stop] = self._cumulative_noise(np.arange(start, stop))
        return self._cumulative[start, stop]

    def _cumulative_noise(self, places: IntArray) -> CumulativeNoise:
        before = np.cumsum(np.append(0.0, self._deviations[places] ** 2))
        removed = np.cumsum(np.pad(self._removed(places), ((0, 0), (1, 0))), axis=1)
        return CumulativeNoise(
            np.maximum(before - (removed**2).sum(axis=0), 0.0), before - removed.T @ removed[:, -1]
        )

    def _removed(self, entries: Any) -> FloatArray:
        """What the constraints take away of each entry's noise, (constraints, entries): independent parts."""
        if not self._rows:
            return np.zeros((0, len(entries)))
        from scipy.linalg import solve_triangular

        noise = self._matrix.tocsc()[:, entries].toarray() * self._deviations[entries]
        removed: FloatArray = solve_triangular(self._cholesky, noise, lower=True)
        return removed

    def non_negative(self, reconciled: FloatArray) -> FloatArray:
        """The nearest counts that agree and are not below zero, where large counts hardly move.

        Counts that are nothing but noise cannot all be at their least-squares values: those below zero are
        raised, so others must fall. Were all to fall alike, a total over many empty cells would be off by
        several standard deviations.

        They are max(x + Aᵀλ, 0) for the λ that makes them agree, which minimises a convex function that is
        quadratic in pieces: Newton's method finds it in a few steps.
        """
        unit = self._deviations * self.mobility(reconciled)
        x = reconciled / unit
        if not self._rows or (x[self.counting] >= 0).all():
            return np.where(self.counting, np.maximum(x, 0.0), x) * unit
        matrix = self._matrix.multiply(self.mobility(reconciled)).tocsr()
        transposed = matrix.T
        multipliers, value = np.zeros(len(self._rows)), math.inf
        for _ in range(_STEPS):
            fitted = self._clamped(x + transposed @ multipliers)
            slope, value = matrix @ fitted, float(fitted @ fitted)
            if np.abs(slope).max() <= _CLOSE:
                break
            step = np.linalg.solve(_gram(matrix[:, fitted != 0]), -slope)
            for _ in range(_HALVINGS):
                trial = self._clamped(x + transposed @ (multipliers + step))
                if float(trial @ trial) <= value * (1 + _ROUNDING) + 1e-4 * float(slope @ step):
                    break
                step /= 2
            multipliers = multipliers + step
        return self._clamped(x + transposed @ multipliers) * unit

    def mobility(self, reconciled: FloatArray) -> FloatArray:
        """How many times its standard deviation each count moves beside others: large ones a tenth."""
        large = reconciled > _LARGE * self._deviations
        return np.where(self.counting & large, _MOBILITY, 1.0)

    def _clamped(self, x: FloatArray) -> FloatArray:
        return np.where(self.counting, np.maximum(x, 0.0), x)

    def _onto_constraints(self, x: FloatArray) -> FloatArray:
        if not self._rows:
            return x
        from scipy.linalg import cho_solve

        steps = cho_solve((self._cholesky, True), self._matrix @ x)
        projected: FloatArray = x - self._matrix.T @ steps
        return projected

    @cached_property
    def _matrix(self):  # type: ignore[no-untyped-def]  # a scipy.sparse matrix
        """One row per constraint, columns scaled by the deviations."""
        from scipy.sparse import csr_matrix

        places, columns, signs = [], [], []
        for place, (plus, minus) in enumerate(self._rows):
            for sign, index in ((1.0, plus), (-1.0, minus)):
                places.append(np.full(len(index), place))
                columns.append(index)
                signs.append(sign * self._deviations[index])
        shape = (len(self._rows), len(self._deviations))
        entries = (np.concatenate(signs), (np.concatenate(places), np.concatenate(columns)))
        return csr_matrix(entries, shape=shape)

    @cached_property
    def _cholesky(self) -> FloatArray:
        gram = _gram(self._matrix)
        lower: FloatArray = np.asarray(np.linalg.cholesky(gram), np.float64)
        return lower


def _gram(matrix: Any) -> FloatArray:
    """A·Aᵀ, made regular.

    Constraints that follow from others make it singular, in directions that the transpose removes.
    """
    gram: FloatArray = (matrix @ matrix.T).toarray()
    gram[np.diag_indices_from(gram)] += 1e-12 * max(float(np.trace(gram)), 1e-30) / len(gram)
    return gram


def constraints(layout: Layout) -> Iterator[Pair]:
    """Pairs of sets of entries whose sums are equal in every data set."""
    tables = [block for block in layout.blocks if isinstance(block, Cells)]
    counters: list[Block] = [*tables, *(block for block in layout.blocks if isinstance(block, Records))]
    links = _Links(counters)
    margins = {frozenset(kept) for table in tables for k in (2, 1) for kept in combinations(table.axes, k)}
    ordered = sorted(margins, key=lambda kept: (-len(kept), sorted(map(str, kept))))
    for axes in [*ordered, frozenset[Axis]()]:
        members = [block for block in counters if axes <= _axes(block)]
        for first, second in pairwise(members):
            if links.add(axes, first, second):
                yield from _equal_margins(layout, first, second, axes)
    for block in layout.blocks:
        if isinstance(block, Present | Missing):
            yield from _equal_presence(layout, block, tables)


def _axes(block: Block) -> frozenset[Axis]:
    return frozenset(block.axes) if isinstance(block, Cells) else frozenset()


class _Links:
    """The blocks that already agree, with their axes, so that implied constraints are left out."""

    def __init__(self, blocks: list[Block]) -> None:
        self._blocks = blocks
        self._groups: dict[frozenset[Axis], dict[Block, int]] = {}

    def _of(self, axes: frozenset[Axis]) -> dict[Block, int]:
        return self._groups.setdefault(axes, {block: place for place, block in enumerate(self._blocks)})

    def add(self, axes: frozenset[Axis], first: Block, second: Block) -> bool:
        """Link two blocks on these axes, and so on every smaller set of them; False if they were linked."""
        if self._of(axes)[first] == self._of(axes)[second]:
            return False
        for k in range(len(axes) + 1):
            for kept in combinations(axes, k):
                groups = self._of(frozenset(kept))
                old, new = groups[second], groups[first]
                groups |= {block: new for block, group in groups.items() if group == old}
        return True


def _equal_margins(layout: Layout, first: Block, second: Block, axes: frozenset[Axis]) -> Iterator[Pair]:
    first_margin, second_margin = _margin(layout, first, axes), _margin(layout, second, axes)
    if len(first_margin) <= _MOST_MARGIN:
        yield from zip(first_margin, second_margin, strict=True)


def _margin(layout: Layout, block: Block, axes: frozenset[Axis]) -> list[IntArray]:
    """For each cell of the margin, the entries that add up to it."""
    place = layout.place(block)
    index = np.arange(place.start, place.stop)
    if not isinstance(block, Cells):
        return [index]
    index = index.reshape([axis.domain.size for axis in block.axes])
    order = sorted(range(len(block.axes)), key=lambda k: str(block.axes[k]))
    kept = [k for k in order if block.axes[k] in axes]
    rest = [k for k in order if block.axes[k] not in axes]
    cells = int(np.prod([index.shape[k] for k in kept], dtype=np.int64))
    return list(index.transpose(*kept, *rest).reshape(cells, -1))


def _equal_presence(layout: Layout, counter: Present | Missing, tables: list[Cells]) -> Iterator[Pair]:
    """Values that are not missing are those in a bin; those that are have a cell of their own."""
    for table in tables:
        bins = proper_bins(table)
        if bins is not None and table.axes[0].column == counter.column:
            start = layout.place(table).start
            cells = (
                slice(start, start + bins)
                if isinstance(counter, Present)
                else slice(start + bins, start + bins + 1)
            )
            place = layout.place(counter)
            yield np.arange(cells.start, cells.stop), np.arange(place.start, place.stop)
            return
