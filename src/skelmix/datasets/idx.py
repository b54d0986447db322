"""The idx format of the MNIST family.

Two zero bytes, a type byte, a dimension count, big-endian sizes, then the data.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import CorruptState

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_DIMENSIONS = 8

#: what an image set of the family is made of
PARTS = ("train-images", "train-labels", "test-images", "test-labels")

#: bytes that a file may hold once decompressed: several times the largest data set of the family
LARGEST_PAYLOAD = 1 << 28


def read_payload(path: Path) -> bytes:
    """The bytes of an idx file, decompressed when it is gzip.

    The first two bytes tell gzip, not the name. More than `LARGEST_PAYLOAD` bytes are refused.
    """
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else path.open("rb") as source:
            payload = source.read(LARGEST_PAYLOAD + 1)
        if len(payload) > LARGEST_PAYLOAD:
            raise CorruptState(
                f"{path} is larger than {LARGEST_PAYLOAD} bytes: it is not of the MNIST family"
            )
        return payload
    except (OSError, EOFError, zlib.error) as error:
        raise CorruptState(
            f"{path} is a damaged gzip file ({error}): delete it and fetch it again"
        ) from error


def parse_idx(payload: bytes, *, source: str = "idx data") -> NDArray[Any]:
    """The array of an idx payload, native byte order, read-only.

    Any length that does not match the header is refused, and so are empty arrays and more than eight axes.
    """
    known = len(payload) >= 4 and payload[:2] == b"\0\0" and payload[2] in _DTYPES
    if not known or not 1 <= payload[3] <= _MOST_DIMENSIONS:
        raise CorruptState(f"{source} does not start with an idx header: it is another file, or damaged")
    dtype, dimensions = np.dtype(_DTYPES[payload[2]]), payload[3]
    start = 4 + 4 * dimensions
    shape = [int.from_bytes(payload[at : at + 4], "big") for at in range(4, min(start, len(payload)), 4)]
    if len(payload) < start or 0 in shape or len(payload) - start != prod(shape) * dtype.itemsize:
        raise CorruptState(
            f"{source} holds {len(payload)} bytes, its header promises shape {shape}: fetch it again"
        )
    array = np.frombuffer(payload, dtype, offset=start).reshape(shape)
    return array if dtype.itemsize == 1 else array.astype(dtype.newbyteorder("="))


def read_idx(path: Path, *, sha256: str | None = None) -> NDArray[Any]:
    """The array in an idx file, raw or gzip.

    With `sha256`, the *decompressed* payload must have that digest.
    """
    payload = read_payload(path)
    if sha256 is not None and (seen := hashlib.sha256(payload).hexdigest()) != sha256:
        raise CorruptState(
            f"{path} has SHA-256 {seen}, expected {sha256}: it is not the published file; delete it"
        )
    return parse_idx(payload, source=str(path))


def read_parts(paths: dict[str, Path], digests: dict[str, str]) -> dict[str, NDArray[Any]]:
    """The four arrays of an image set; a file without a digest is read unverified."""
    return {part: read_idx(paths[part], sha256=digests.get(part)) for part in PARTS}
