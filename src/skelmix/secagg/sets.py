"""Sets of participants: bitmaps on the wire, integers in memory."""

from __future__ import annotations

from collections.abc import Iterable

from skelmix.secagg.failures import MalformedMessage


def as_integer(indices: Iterable[int]) -> int:
    """A set of indices as an integer, bit i for index i."""
    value = 0
    for index in indices:
        value |= 1 << index
    return value


def bitmap(indices: Iterable[int], participants: int) -> bytes:
    """A set of indices as ⌈participants/8⌉ bytes, lowest bit first."""
    return as_integer(indices).to_bytes((participants + 7) // 8, "little")


def members(data: bytes, participants: int) -> int:
    """The set in a bitmap as an integer, bit i for index i; `MalformedMessage` if it does not fit."""
    value = int.from_bytes(data, "little")
    if len(data) != (participants + 7) // 8 or value >> participants:
        raise MalformedMessage(f"a set of participants does not fit the {participants} of this round")
    return value


def contains(value: int, index: int) -> bool:
    """Whether `index` is in the set that `members` gave."""
    return bool(value >> index & 1)


def rank(value: int, index: int) -> int:
    """How many members of the set come before `index`."""
    return (value & ((1 << index) - 1)).bit_count()
