"""The owner of each record, as a number: owners may be given as anything that has a name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOBODY = -1
"""The number of an owner that is missing."""


def owner_numbers(owners: Iterable[Any]) -> NDArray[np.int64]:
    """A number for each record, equal for records of one owner; `NOBODY` where there is no owner.

    Owners are compared as text, so 1, 1.0 and "1" are one. None, NaN, empty text and whatever has no name of
    its own count as no owner: nothing in the column raises, and no name is too long.

    Example:

        >>> owner_numbers(["bob", "ann", None, "bob"]).tolist()
        [1, 0, -1, 1]
    """
    names = [_name(owner) for owner in owners]
    numbers = {name: number for number, name in enumerate(sorted(set(names) - {""}))}
    return np.array([numbers.get(name, NOBODY) for name in names], np.int64)


def _name(owner: Any) -> str:
    """The owner as text; empty where there is none."""
    try:
        owner = owner.item() if hasattr(owner, "item") else owner  # a scalar of NumPy or torch
        if owner is None or bool(owner != owner):
            return ""
        return str(int(owner) if isinstance(owner, float) and owner.is_integer() else owner)
    except Exception:  # pandas' NA, an array, a signalling NaN: one record must not stop its silo
        return ""
