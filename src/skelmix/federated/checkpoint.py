"""Model, optimiser and position of a run, replaced atomically.

Loading runs no code from the file.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from skelmix.errors import CorruptState
from skelmix.rounds.files import write_atomically

_HEAD = b"skelmix checkpoint 1\n"  # then the SHA-256 of the rest, then what torch wrote


@dataclass(frozen=True)
class Checkpoint:
    """The state after `round` rounds.

    `ledger_head` is the digest of the ledger's line of the last one (or its header). private: False after
    reproducible randomness.
    """

    round: int
    ledger_head: str
    private: bool
    model: dict[str, Any]
    optimizer: dict[str, Any]
    scheduler: dict[str, Any] | None = None
    history: list[dict[str, Any]] = field(default_factory=list)


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint; a crash at any moment leaves the one before it whole."""
    data = io.BytesIO()
    shallow = {name: getattr(checkpoint, name) for name in Checkpoint.__dataclass_fields__}
    torch.save(shallow, data)
    content = data.getvalue()
    write_atomically(path, _HEAD + hashlib.sha256(content).digest() + content)


def load(path: Path) -> Checkpoint | None:
    """The last checkpoint, None when there is none yet. Damaged or foreign content raises `CorruptState`."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        head, digest, content = file.read(len(_HEAD)), file.read(32), file.read()
    if head != _HEAD or hashlib.sha256(content).digest() != digest:
        raise CorruptState(f"{path} is damaged or not a checkpoint of skelmix: its digest does not match")
    try:
        checkpoint = Checkpoint(**torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
    except Exception as error:  # a forged file may fail anywhere in the reader, in any way
        raise CorruptState(f"{path} is damaged or not a checkpoint of skelmix: {error}") from error
    kinds = (int, str, bool, dict, dict, dict | None, list)
    values = (getattr(checkpoint, name) for name in Checkpoint.__dataclass_fields__)
    if (
        not all(isinstance(value, kind) for value, kind in zip(values, kinds, strict=True))
        or checkpoint.round < 0
    ):
        raise CorruptState(f"{path} is not a checkpoint of skelmix: a field has another type")
    return checkpoint
