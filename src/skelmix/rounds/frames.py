"""Tables of other libraries (pandas, polars, pyarrow) as arrays of numbers, without importing any of them."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput


def without_frames(vectors: Any) -> Any:
    """A table with named columns as a (rows, columns) array of float64; anything else as it is.

    A column that holds something other than numbers, or a missing value that is not NaN, raises
    `InvalidInput` that names it.
    """
    names = getattr(vectors, "column_names", None)  # pyarrow
    if names is None and hasattr(vectors, "dtypes"):  # pandas, polars
        names = getattr(vectors, "columns", None)
    if names is None:
        return vectors
    return np.stack([_numbers(vectors[name], name) for name in names], axis=1)


def _numbers(values: Any, name: Any) -> NDArray[np.float64]:
    column = np.asarray(values)
    if column.dtype.kind not in "fiub":
        for row, value in enumerate(column.tolist()):
            if not isinstance(value, Real):
                raise InvalidInput(
                    f"column {name!r} holds {value!r} in row {row}, not a number: repair it, or pass the "
                    "columns of numbers only. Nothing was released"
                )
    return column.astype(np.float64)
