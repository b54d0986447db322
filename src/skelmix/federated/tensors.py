"""Users' records as tensors: NumPy arrays, float64 and data sets are taken, the rest is refused."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from skelmix.errors import InvalidInput
from skelmix.federated.record_draws import fixed_draws

_log = logging.getLogger("skelmix")


def as_tensors(inputs: Any, targets: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The records and their targets as CPU tensors that torch's models and losses take.

    inputs: a tensor or NumPy array (records, ...), or a map-style data set without targets, whose items are
    what `pair` takes. It is read once; what it draws from the common random generators is the same for all
    records. float64 becomes float32, integer targets int64; the log says so.
    """
    if isinstance(inputs, DataLoader):
        raise InvalidInput(
            "a DataLoader chooses its own batches, but a plan draws participants one by one: pass its data "
            "set, Clients(loader.dataset)"
        )
    if targets is None:
        inputs, targets = _read(inputs)
    return _tensor(inputs, "inputs"), _tensor(targets, "targets")


def pair(record: Any) -> Any:
    """A data set's item as (input, target): of a mapping, as Hugging Face's data sets have, the two values.

    Example:

        >>> pair({"img": [0.5, 0.1], "label": 3}), pair(([0.5, 0.1], 3))
        (([0.5, 0.1], 3), ([0.5, 0.1], 3))
    """
    return tuple(record.values()) if isinstance(record, Mapping) else record


def _read(dataset: Any) -> tuple[Any, Any]:
    """All pairs of a data set."""
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors
    readable = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if not readable or isinstance(dataset, IterableDataset | np.ndarray | torch.Tensor):
        raise InvalidInput(
            f"{type(dataset).__name__} without targets: pass inputs and targets, or a data set with a length "
            "whose items are (input, target)"
        )
    pairs = []
    with fixed_draws() as start_again:  # or a record would change with the number of records before it
        for place in range(len(dataset)):
            start_again()
            pairs.append(pair(dataset[place]))
    if not pairs or any(not isinstance(item, tuple | list) or len(item) != 2 for item in pairs):
        raise InvalidInput(
            "the data set must hold (input, target) pairs, or mappings of these two, and at least one"
        )
    try:
        return (
            torch.stack([torch.as_tensor(first) for first, _ in pairs]),
            torch.stack([torch.as_tensor(second) for _, second in pairs]),
        )
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInput(
            f"the data set's items are no tensors of one shape ({error}): convert them, with ToTensor() for "
            "images"
        ) from error


def _tensor(values: Any, name: str) -> torch.Tensor:
    if not isinstance(values, torch.Tensor):
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise InvalidInput(
                f"{name} holds {array.dtype}, not numbers: pass a tensor or an array of numbers, such as "
                "np.asarray(values, dtype=np.float32)"
            )
        values = torch.from_numpy(np.require(array, requirements=("C", "W")))  # torch wants to write
    tensor: torch.Tensor = values
    if tensor.device.type != "cpu":
        raise InvalidInput(f"{name} is on {tensor.device}: pass {name}.cpu()")
    if tensor.dtype == torch.float64:
        _log.warning("%s: float64 is converted to float32, which models and uploads use", name)
        return tensor.float()
    whole = not tensor.is_floating_point() and tensor.dtype not in (torch.bool, torch.int64)
    return tensor.long() if name == "targets" and whole else tensor
