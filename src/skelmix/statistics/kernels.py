"""Loops over the records of a batch, exact: integers are added, nothing depends on the batch's shape.

Nothing raises, whatever a value is (hence NumPy's rules for division): a record that stopped the loop would
take all others of its party with it, which no noise hides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def count_present(values: NDArray[np.float64]) -> int:
    """How many values are not missing."""
    count = 0
    for x in values:
        count += x == x
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def add_moments(
    values: NDArray[np.float64],
    low: float,
    high: float,
    middle: float,
    half: float,
    largest: float,
    amplitudes: NDArray[np.float64],
) -> tuple[np.int64, np.int64, np.int64]:
    """Sums over the values that are not missing of the rounded entries of `Total`, `Centred`, `Squared`.

    amplitudes: of the three, 0 for one that is not asked.
    """
    total, centred, squared = np.int64(0), np.int64(0), np.int64(0)
    for x in values:
        if x == x:
            x = min(max(x, low), high)
            t = min(max((x - middle) / half, -1.0), 1.0)
            centred += np.int64(np.rint(t * amplitudes[1]))
            squared += np.int64(np.rint((2 * t * t - 1) * amplitudes[2]))
            total += np.int64(np.rint(min(max(x / largest, -1.0), 1.0) * amplitudes[0]))
    return total, centred, squared


@njit(cache=True, nogil=True, error_model="numpy")
def bin_cells(values: NDArray[np.float64], edges: NDArray[np.float64], width: float) -> NDArray[np.int32]:
    """The bin of each value, outside values in the first or last one; the cell after them when missing."""
    count = len(edges) - 1
    cells = np.empty(len(values), np.int32)
    low, high = edges[0], edges[count]
    for i in range(len(values)):
        x = values[i]
        if x != x:
            cells[i] = count
            continue
        x = min(max(x, low), high)
        k = int(min((x - low) / width, count - 1.0))
        while k > 0 and x < edges[k]:  # the division may be off by a rounding error
            k -= 1
        while k < count - 1 and x >= edges[k + 1]:
            k += 1
        cells[i] = k
    return cells


@njit(cache=True, nogil=True)
def add_cells(cells: NDArray[np.int32], counts: NDArray[np.int64]) -> None:
    """Count the records of each cell."""
    for cell in cells:
        counts[cell] += 1


@njit(cache=True, nogil=True)
def add_pairs(
    first: NDArray[np.int32], second: NDArray[np.int32], columns: int, counts: NDArray[np.int64]
) -> None:
    """Count the records of each pair of cells."""
    for i in range(len(first)):
        counts[first[i] * columns + second[i]] += 1


def moment_entries(values: NDArray[np.float64], bounds: Any) -> dict[str, NDArray[np.float64]]:
    """The entries of `Total`, `Centred` and `Squared` of each value by the same steps; NaN if missing."""
    x = np.minimum(np.maximum(values, bounds.low), bounds.high)
    t = np.minimum(np.maximum((x - bounds.middle) / bounds.half_range, -1.0), 1.0)
    ratio = np.minimum(np.maximum(x / bounds.largest, -1.0), 1.0)
    return {"Total": ratio, "Centred": t, "Squared": 2 * t * t - 1}
