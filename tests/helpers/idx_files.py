"""Make idx files for tests."""

import numpy as np

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array):
    """The idx payload of an array."""
    code = CODES[array.dtype.str[1:]]
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, code, array.ndim]) + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


def two_kinds_of_images(directory):
    """A data set of idx files: eighty and twenty pictures of four by four pixels, dark or bright."""
    rng = np.random.default_rng(0)
    for stem, count in (("train", 80), ("t10k", 20)):
        labels = rng.integers(0, 2, count).astype(np.uint8)
        pictures = (labels[:, None, None] * 150 + rng.integers(0, 100, (count, 4, 4))).astype(np.uint8)
        (directory / f"{stem}-images-idx3-ubyte").write_bytes(idx_bytes(pictures))
        (directory / f"{stem}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return directory
