"""A short name for plain data: equal data has the same digest on every machine, different data another."""

from __future__ import annotations

import hashlib
import json
from typing import Any

VERSION = 1
"""The version of the canonical form: a change gives every plan another digest, so update both sides."""


def json_digest(purpose: str, data: Any) -> str:
    """SHA-256 of plain data (dicts, lists, strings, numbers, booleans, None), 64 hexadecimal digits.

    The purpose and `VERSION` are part of what is hashed: a digest made for one purpose is not valid for
    another.

    Example:

        >>> json_digest("plan", {"rounds": 3}) == json_digest("plan", {"rounds": 3.0})
        True
        >>> json_digest("plan", {"rounds": 3}) == json_digest("round", {"rounds": 3})
        False
    """
    text = json.dumps(_canonical(data), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"skelmix {purpose} v{VERSION}\n{text}".encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """The value with 3.0 written as 3: the same number is the same text, however the caller typed it."""
    if isinstance(value, dict):
        return {name: _canonical(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
