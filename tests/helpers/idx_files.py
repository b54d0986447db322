"""Make idx files for tests."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array: NDArray[Any]) -> bytes:
    """The idx payload of an array."""
    code = CODES[array.dtype.str[1:]]
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, code, array.ndim]) + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


def two_kinds_of_images(directory: Path) -> Path:
    """A data set of idx files: eighty and twenty pictures of four by four pixels, dark or bright."""
    rng = np.random.default_rng(0)
    for stem, count in (("train", 80), ("t10k", 20)):
        labels = rng.integers(0, 2, count).astype(np.uint8)
        pictures = (labels[:, None, None] * 150 + rng.integers(0, 100, (count, 4, 4))).astype(np.uint8)
        (directory / f"{stem}-images-idx3-ubyte").write_bytes(idx_bytes(pictures))
        (directory / f"{stem}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return directory


def stripes(count: int, seed: int = 2) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images of horizontal (0) or vertical (1) stripes of random phase, 16 by 16, in noise; and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    waves = 127 + 90 * np.sin(np.arange(16) * 1.2 + rng.uniform(0, 6.28, (count, 1)))
    images = np.where(labels[:, None, None] == 0, waves[:, :, None], waves[:, None, :])
    return (images + rng.normal(0, 12, images.shape)).clip(0, 255).astype(np.uint8), labels


def striped_images(directory: Path) -> Path:
    """A data set of idx files: eighty and twenty pictures of stripes."""
    for seed, (stem, count) in enumerate((("train", 80), ("t10k", 20))):
        images, labels = stripes(count, seed)
        (directory / f"{stem}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (directory / f"{stem}-labels-idx1-ubyte").write_bytes(idx_bytes(labels.astype(np.uint8)))
    return directory
