"""The owner of each record, as a number: owners may be given as anything that has a name."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.datasets.missing import MISSING_TEXTS
from skelmix.errors import InvalidInput

NOBODY = -1
"""The number of an owner that is missing."""


def owner_numbers(owners: Iterable[Any]) -> NDArray[np.int64]:
    """A number for each record, equal for records of one owner; `NOBODY` where there is no owner.

    Owners are compared as text, so 1, 1.0 and "1" are one; so are names that differ in the spaces around them
    or in how Unicode composes their letters. None, NaN, a text such as "", "nan" or "NA" (an array of text
    turns a missing name into one), and whatever has no name of its own count as no owner: nothing in the
    column raises, and no name is too long.

    Example:

        >>> owner_numbers(["bob", "ann", None, "bob"]).tolist()
        [1, 0, -1, 1]
    """
    names = [_name(owner) for owner in owners]
    numbers = {name: number for number, name in enumerate(sorted(set(names) - {""}))}
    return np.array([numbers.get(name, NOBODY) for name in names], np.int64)


def every_owner(owners: Collection[Any]) -> NDArray[np.int64]:
    """The number of each record's owner; `InvalidInput` where a record has none."""
    numbers = owner_numbers(owners)
    if missing := int((numbers == NOBODY).sum()):
        raise InvalidInput(
            f"owners: {missing} of {len(owners)} records have none (None, NaN, '' or 'NA'), and could all "
            "be one person's; leave those records out"
        )
    return numbers


def _name(owner: Any) -> str:
    """The owner as text; empty where there is none."""
    try:
        owner = owner.item() if hasattr(owner, "item") else owner  # a scalar of NumPy or torch
        if owner is None or bool(owner != owner):
            return ""
        text = str(int(owner) if isinstance(owner, float) and owner.is_integer() else owner)
        name = unicodedata.normalize("NFC", text.strip())
        return "" if name.lower() in MISSING_TEXTS else name
    except Exception:  # pandas' NA, an array, a signalling NaN: one record must not stop its silo
        return ""
