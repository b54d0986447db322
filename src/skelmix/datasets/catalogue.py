"""Where known data sets lie on this machine, and how they are loaded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.datasets.entries import ENTRIES, Entry, cache_directory, entry_of, file_names, where_to_put
from skelmix.datasets.idx import PARTS, read_parts
from skelmix.errors import CorruptState, DataUnavailable


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images, all arrays read-only.

    `*_images` are uint8 (count, height, width), or (count, 3, height, width) in colour; `*_labels` int64
    (count,).

    Example: `load("fashion-mnist").test_labels[:10]`.
    """

    name: str
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]

    @property
    def classes(self) -> int:
        """The number of labels."""
        return int(max(self.train_labels.max(), self.test_labels.max())) + 1


def _places(entry: Entry) -> Iterator[Path]:
    yield cache_directory() / entry.name
    roots = [Path("data"), Path.home() / "data", Path.home() / ".cache" / "torchvision"]
    if directory := os.environ.get("SKELMIX_DATA"):
        roots.insert(0, Path(directory))
    for root in roots:
        yield root / entry.folder
    yield from map(Path, entry.system_directories)


def parts_in(directory: Path, parts: Iterable[str] = PARTS) -> dict[str, Path] | None:
    """The files of a data set in one directory, or None when one is missing."""
    paths = {}
    for part in parts:
        path = next((directory / name for name in file_names(part) if (directory / name).is_file()), None)
        if path is None:
            return None
        paths[part] = path
    return paths


def locate(name: str) -> dict[str, Path] | None:
    """The paths of a known data set's files on this machine; None when they are nowhere.

    Searched are the cache, the layout of torchvision or of the published archive (under `data`, `~/data` or
    `$SKELMIX_DATA`), and the system's package directory. Digests are checked on loading.
    """
    entry = entry_of(name)
    return next((paths for place in _places(entry) if (paths := parts_in(place, entry.sha256))), None)


def locate_or_fetch(name: str, *, fetch: bool = True, progress: bool = True) -> dict[str, Path]:
    """The paths of a known data set's files, fetched into the cache if need be.

    `DataUnavailable` says where to put them.
    """
    paths = locate(name)
    if paths is None and fetch:
        from skelmix.datasets.fetching import fetch as fetch_into_cache

        paths = fetch_into_cache(name, progress=progress)
    if paths is None:
        raise DataUnavailable(where_to_put(entry_of(name)))
    return paths


def load(source: str | Path, *, fetch: bool = True, progress: bool = True) -> Images:
    """Load `mnist`, `fashion-mnist`, `cifar-10`, or a directory with four idx files of the same names.

    Known sets are verified by SHA-256 on every load; a directory of your own is checked for agreeing lengths
    only. What is not on this machine is fetched into the cache unless `fetch` is False; `DataUnavailable`
    says where to put the files.

    Example: `load("mnist").train_images.shape`, which is (60000, 28, 28).
    """
    if str(source) in ENTRIES:
        entry = ENTRIES[str(source)]
        if entry.read is None:
            raise DataUnavailable(
                f"{entry.name} is text, not images: load it with skelmix.datasets.load_speakers()"
            )
        paths = locate_or_fetch(entry.name, fetch=fetch, progress=progress)
        return _images(entry.name, entry.read(paths, entry.sha256))
    if not Path(source).is_dir():
        raise DataUnavailable(
            f"{source!r} is neither a known data set ({', '.join(ENTRIES)}) nor a directory"
        )
    own_paths = parts_in(Path(source))
    if own_paths is None:
        names = ", ".join(next(file_names(part)) for part in PARTS)
        raise DataUnavailable(f"{source} lacks some of the four idx files (raw or .gz): {names}")
    return _images(str(source), read_parts(own_paths, {}))


def _images(name: str, arrays: dict[str, NDArray[Any]]) -> Images:
    for split in ("train", "test"):
        images, labels = arrays[f"{split}-images"], arrays[f"{split}-labels"]
        shaped = images.ndim == 3 or (images.ndim == 4 and images.shape[1] == 3)
        if not shaped or images.dtype != np.uint8 or labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise CorruptState(
                f"{name}: {split} needs uint8 images (count, height, width) or (count, 3, height, width) and "
                "integer labels (count,)"
            )
        if len(images) != len(labels) or len(images) == 0:
            raise CorruptState(f"{name}: {len(images)} {split} images but {len(labels)} labels")
    targets = [arrays[f"{split}-labels"].astype(np.int64) for split in ("train", "test")]
    for array in targets:
        array.setflags(write=False)
    return Images(name, arrays["train-images"], targets[0], arrays["test-images"], targets[1])


def counts(name: str) -> dict[str, int]:
    """The size of a known data set on this machine, once its files are verified.

    `train` and `test` images, or `speakers` and `characters` of text.
    """
    if entry_of(name).read is None:
        from skelmix.datasets.shakespeare import load_speakers

        speakers = load_speakers(fetch=False)
        return {"speakers": len(speakers), "characters": sum(map(len, speakers.values()))}
    images = load(name, fetch=False)
    return {"train": len(images.train_labels), "test": len(images.test_labels)}
