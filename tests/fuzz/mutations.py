"""Byte strings near a valid one: what a damaged disk, a buggy peer or an enemy might send."""

from __future__ import annotations

import random
import re

NUMBERS = [b"0", b"-1", b"1e308", b"1e-308", b"NaN", b"Infinity", b"18446744073709551616", b"null", b"true"]
NUMBERS += [b'""', b"[]", b"{}", b"1e999", b"-0.0", b"0.5", b"4300"]
WORDS = [0, 1, 2, 0x7F, 0x80, 0xFF, 0xC0, 0xDC, 0xDD, 0xDE, 0xDF, 0xC6, 0xC9, 0x0A, 0x0D, 0x2C, 0x09]


def mutate(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """One to four changes: bits, bytes, runs, cuts, numbers, pieces of other examples."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        data = _change(data, chance, others)
    return data[: 1 << 16]


def _change(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    place = chance.randrange(len(data) + 1)
    kind = chance.randrange(8)
    if kind == 0 and data:
        place = min(place, len(data) - 1)
        return data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :]
    if kind == 1:
        return data[:place] + bytes([chance.choice(WORDS)]) + data[place + 1 :]
    if kind == 2:
        return data[:place] + chance.randbytes(chance.randrange(1, 9)) + data[place:]
    if kind == 3:
        return data[:place]
    if kind == 4:
        return data[:place] + data[place + chance.randrange(1, 16) :]
    if kind == 5:
        other = chance.choice(others)
        start = chance.randrange(len(other) + 1)
        return data[:place] + other[start : start + chance.randrange(64)] + data[place:]
    if kind == 6:
        width = chance.choice((1, 2, 4, 8))
        return data[:place] + chance.choice((b"\0", b"\xff")) * width + data[place + width :]
    found = list(re.finditer(rb"-?\d+(\.\d+)?(e-?\d+)?", data))
    if not found:
        return data
    one = chance.choice(found)
    return data[: one.start()] + chance.choice(NUMBERS) + data[one.end() :]
