"""Scattering features computed once and kept on disk, next to the data sets."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skelmix.datasets.entries import cache_directory
from skelmix.errors import CorruptState, StorageFailed
from skelmix.federated import scattering_network as scattering
from skelmix.replacement import replacing

_CHUNK = 256  # images between two reports of progress
_ABANDONED = 24 * 3600  # seconds without a change after which nobody is writing a file any more


def cached_features(
    images: NDArray[np.uint8],
    groups: int,
    *,
    directory: Path | None = None,
    report: Callable[[int], None] | None = None,
) -> NDArray[np.int16]:
    """`scattering.features` of the images, read from disk if computed before; mapped into memory.

    The file is named by a digest of the pixels, the version of the transform and the number of groups, so
    that other pixels or another transform never find it; it appears whole or not at all. Those of the first
    and the last image are compared with the file's. It says as much as the images: only its owner may read
    it. What is written to the array stays in memory. `directory` is `features` in the cache by default;
    `report` hears how many images were just done.
    """
    sample = scattering.features(images[:: max(1, len(images) - 1)][:2], groups)
    directory = cache_directory() / "features" if directory is None else directory
    path = directory / f"{_digest(images)}-v{scattering.VERSION}-g{groups}.npy"
    if not path.exists():
        _compute(images, groups, sample.shape[1], path, report)
    try:
        values = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CorruptState(f"{path} is damaged ({error}): delete it, it will be computed again") from error
    expected = (len(images), sample.shape[1])
    if values.dtype != np.int16 or values.shape != expected or not _belongs(values, sample):
        raise CorruptState(
            f"{path} does not hold the features of these images, {expected} int16: delete it, it will be "
            "computed again"
        )
    mapped: NDArray[np.int16] = values
    return mapped


def _belongs(values: NDArray[np.int16], sample: NDArray[np.int16]) -> bool:
    """Whether first and last row are those of the sample; another machine may round differently."""
    rows = values[:: max(1, len(values) - 1)][:2].astype(np.int32)
    return bool((np.abs(rows - sample) <= 1).all())


def _digest(images: NDArray[np.uint8]) -> str:
    shape = f"{images.dtype} {images.shape} ".encode()
    return hashlib.sha256(shape + np.ascontiguousarray(images).tobytes()).hexdigest()[:32]


def _remove_abandoned(directory: Path) -> None:
    """Remove what killed processes left behind, hundreds of megabytes each."""
    for path in directory.glob("*.npy.*.tmp"):
        if path.stat().st_mtime < time.time() - _ABANDONED:
            path.unlink(missing_ok=True)


def _compute(
    images: NDArray[np.uint8], groups: int, width: int, path: Path, report: Callable[[int], None] | None
) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent)
        with replacing(path, shared=True) as temporary:
            temporary.touch(0o600)  # images may be somebody's own
            out = np.lib.format.open_memmap(temporary, "w+", np.int16, (len(images), width))
            starts = range(0, len(images), _CHUNK)
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                chunks = threads.map(lambda at: scattering.features(images[at : at + _CHUNK], groups), starts)
                for at, chunk in zip(starts, chunks, strict=True):
                    out[at : at + len(chunk)] = chunk
                    if report is not None:
                        report(len(chunk))
            out.flush()
            del out
    except OSError as error:
        raise StorageFailed(f"{path} cannot be written ({error}): free space or set SKELMIX_CACHE") from error
