"""From batches of records to the exact sum of their fixed-point vectors.

A record has one entry per block, so its vector never stands in memory: cells are counted and multiplied by
their amplitude at the end, rounded values are added as integers. The result is bit for bit the sum of the
records' vectors, each a function of that record alone. It wraps modulo 2^64, which a later reduction modulo
a power of two does not notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.arrays import FloatArray, IntArray
from skelmix.statistics import arrow
from skelmix.statistics.blocks import MOMENTS, Cells, Missing, Present, Records
from skelmix.statistics.domains import Axis, Bins
from skelmix.statistics.kernels import (
    add_cells,
    add_moments,
    add_pairs,
    bin_cells,
    count_present,
    moment_entries,
)
from skelmix.statistics.layout import Layout


class Columns:
    """The columns of one batch, converted once each, when first needed."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._numbers: dict[str, FloatArray] = {}
        self._cells: dict[Axis, NDArray[np.int32]] = {}

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def numbers(self, name: str) -> FloatArray:
        if name not in self._numbers:
            self._numbers[name] = arrow.numbers(self._batch.column(name))
        return self._numbers[name]

    def cells(self, axis: Axis) -> NDArray[np.int32]:
        if axis not in self._cells:
            domain = axis.domain
            if isinstance(domain, Bins):
                places = bin_cells(self.numbers(axis.column), domain.edges, domain.width)
            else:
                places = arrow.cells(self._batch.column(axis.column), domain)
            self._cells[axis] = places
        return self._cells[axis]


class Accumulator:
    """Adds up records batch by batch; `total()` is the exact sum in fixed-point units."""

    def __init__(self, layout: Layout, radius: int, rows: int = 1) -> None:
        self._layout = layout
        self._amplitudes = layout.amplitudes(radius, rows)
        self._counts = np.zeros(layout.dimension, np.int64)  # records per entry, for blocks that count
        self._sums = np.zeros(layout.dimension, np.int64)  # sums of rounded values
        self._moments = self._moment_jobs()

    def _moment_jobs(self) -> dict[tuple[str, Any], dict[type, int]]:
        """For each column and bounds, the blocks of moments asked."""
        jobs: dict[tuple[str, Any], dict[type, int]] = {}
        for place, block in enumerate(self._layout.blocks):
            if isinstance(block, MOMENTS):
                jobs.setdefault((block.column, block.bounds), {})[type(block)] = place
        return jobs

    def add(self, batch: Any) -> None:
        """Add the records of an Arrow record batch, columns by name."""
        columns = Columns(batch)
        for place, block in zip(self._layout.offsets, self._layout.blocks, strict=True):
            if isinstance(block, Records):
                self._counts[place] += len(columns)
            elif isinstance(block, Present):
                self._counts[place] += count_present(columns.numbers(block.column))
            elif isinstance(block, Missing):
                self._counts[place] += len(columns) - count_present(columns.numbers(block.column))
            elif isinstance(block, Cells):
                counts = self._counts[place : place + block.size]
                codes = [columns.cells(axis) for axis in block.axes]
                if len(codes) == 1:
                    add_cells(codes[0], counts)
                else:
                    add_pairs(codes[0], codes[1], block.axes[1].domain.size, counts)
        for (column, bounds), asked in self._moments.items():
            amplitudes = [float(self._amplitudes[asked[kind]]) if kind in asked else 0.0 for kind in MOMENTS]
            moments = add_moments(
                columns.numbers(column), bounds.low, bounds.high, bounds.middle, bounds.half_range,
                bounds.largest, np.array(amplitudes),
            )  # fmt: skip
            for kind, value in zip(MOMENTS, moments, strict=True):
                if kind in asked:
                    self._sums[self._layout.offsets[asked[kind]]] += np.int64(value)

    def add_vector(self, vector: IntArray) -> None:
        """Add a vector in fixed-point units as it is, such as that of an owner with many records."""
        self._sums += vector

    def total(self) -> IntArray:
        """The sum of all that was added, int64, modulo 2^64."""
        sizes = [block.size for block in self._layout.blocks]
        amplitudes = np.repeat(np.array(self._amplitudes, np.int64), sizes)
        return self._counts * amplitudes + self._sums


def entries(batch: Any, layout: Layout, radius: int, rows: int = 1) -> Iterator[tuple[IntArray, IntArray]]:
    """For each block, where in its vector each record has its entry, and the entry, in fixed-point units."""
    columns = Columns(batch)
    blocks = zip(layout.offsets, layout.blocks, layout.amplitudes(radius, rows), strict=True)
    for place, block, amplitude in blocks:
        where = np.full(len(columns), place, np.int64)
        values = np.full(len(columns), amplitude, np.int64)
        if isinstance(block, Present):
            values = np.where(np.isnan(columns.numbers(block.column)), 0, values)
        elif isinstance(block, Missing):
            values = np.where(np.isnan(columns.numbers(block.column)), values, 0)
        elif isinstance(block, Cells):
            for axis in block.axes[:-1]:
                where += columns.cells(axis).astype(np.int64) * block.axes[-1].domain.size
            where += columns.cells(block.axes[-1])
        elif not isinstance(block, Records):
            ratio = moment_entries(columns.numbers(block.column), block.bounds)[type(block).__name__]
            values = np.where(np.isnan(ratio), 0, np.rint(np.nan_to_num(ratio) * amplitude)).astype(np.int64)
        yield where, values
