"""A model's arrays <-> one vector: the floating-point arrays of an `ArrayRecord`, by name, end to end.

Integer arrays (batch-norm counters, say) have no place in a differentially private sum: they stay as the
server sent them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

from skelmix.errors import InvalidInput

Arrays = dict[str, NDArray[Any]]


def dimension(arrays: ArrayRecord) -> int:
    """How many floating-point weights the record holds: the `dimension` that a plan for it needs.

    Example:

        >>> dimension(ArrayRecord([np.zeros((3, 4)), np.zeros(3)]))
        15
    """
    return sum(array.size for array in _read(arrays).values() if array.dtype.kind == "f")


def only_arrays(content: RecordDict, whose: str) -> tuple[str, ArrayRecord]:
    """The name and the value of the one `ArrayRecord` of a message; none or several raise `InvalidInput`."""
    records = list(content.array_records.items())
    if len(records) != 1:
        raise InvalidInput(f"{whose} holds {len(records)} ArrayRecords: exactly one model can be summed")
    return records[0]


def difference(after: ArrayRecord, before: ArrayRecord) -> NDArray[np.float64]:
    """after - before as one float64 vector, arrays in the order of their names; (dimension,).

    Names, shapes and kinds of number must be the same in both, else `InvalidInput` is raised. NaN and
    infinity pass through.
    """
    new, old = _read(after), _read(before)
    if new.keys() != old.keys():
        raise InvalidInput(
            f"the arrays {sorted(new.keys() ^ old.keys())} are only in the model or only in the update"
        )
    parts = []
    for name in sorted(old):
        if new[name].shape != old[name].shape or new[name].dtype.kind != old[name].dtype.kind:
            raise InvalidInput(
                f"array {name!r} came as {old[name].dtype}{old[name].shape} "
                f"and went as {new[name].dtype}{new[name].shape}"
            )
        if old[name].dtype.kind == "f":
            parts.append((new[name].astype(np.float64) - old[name].astype(np.float64)).reshape(-1))
    return np.concatenate(parts) if parts else np.empty(0)


def moved(before: ArrayRecord, step: NDArray[Any]) -> ArrayRecord:
    """before + step, each array in its own dtype and place; the inverse of `difference` but for rounding."""
    old = _read(before)
    size = sum(array.size for array in old.values() if array.dtype.kind == "f")
    if step.shape != (size,):
        raise InvalidInput(f"step has shape {step.shape}: the model has {size} floating-point weights")
    start, new = 0, {}
    for name in sorted(old):
        array = old[name]
        if array.dtype.kind == "f":
            part = step[start : start + array.size].reshape(array.shape)
            start += array.size
            array = (array.astype(np.float64) + part).astype(array.dtype)
        new[name] = array
    return ArrayRecord({name: Array(np.asarray(new[name])) for name in old})


def layout(arrays: ArrayRecord) -> tuple[Arrays, dict[str, int], int]:
    """All arrays by name; where each floating-point one begins in the vector of `difference`; its length.

    Example:

        >>> layout(ArrayRecord({"w": Array(np.zeros((3, 4))), "b": Array(np.zeros(3))}))[1:]
        ({'b': 0, 'w': 3}, 15)
    """
    read, starts, end = _read(arrays), {}, 0
    for name in sorted(read):
        if read[name].dtype.kind == "f":
            starts[name] = end
            end += read[name].size
    return read, starts, end


def dtypes(arrays: ArrayRecord) -> dict[str, str]:
    """The dtype of each array, by name."""
    return {name: array.dtype for name, array in arrays.items()}


def recast(arrays: ArrayRecord, wanted: dict[str, str]) -> ArrayRecord:
    """The record with each array in the dtype it is wanted in; the same object when all are.

    Averaging strategies multiply by weights, which turns integer arrays into floating-point ones after the
    first round; they would then count as weights of the model.
    """
    if dtypes(arrays) == wanted:
        return arrays
    return ArrayRecord(
        {
            name: Array(np.asarray(array.numpy().astype(wanted.get(name, array.dtype))))
            for name, array in arrays.items()
        }
    )


def _read(arrays: ArrayRecord) -> Arrays:
    try:
        read = {name: array.numpy() for name, array in arrays.items()}
    except Exception as error:  # NumPy's reader fails in many ways on damaged bytes
        raise InvalidInput(f"an array of the model cannot be read: {error}; send it whole") from error
    for name, array in read.items():
        if array.dtype.kind not in "fiub":
            raise InvalidInput(f"array {name!r} has dtype {array.dtype}: only real numbers can be summed")
    return read
