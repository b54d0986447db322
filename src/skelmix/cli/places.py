"""Whether a command can write its files, checked before anything is computed or released."""

from __future__ import annotations

import os
from pathlib import Path

from skelmix.errors import InvalidInput


def check_writable(path: Path, option: str) -> None:
    """Refuse a file that could not be written: in no directory, a directory itself, without the rights."""
    if path.is_dir():
        raise InvalidInput(f"{option} {path}: is a directory; name a file")
    if not path.parent.is_dir():
        raise InvalidInput(f"{option} {path}: {path.parent} is not a directory; make it first")
    probe = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidInput(
            f"{option} {path}: cannot be written ({error.strerror}), and nothing was released; choose "
            "another place"
        ) from error


def check_report(path: Path | None, option: str = "--report") -> None:
    """Refuse a report that cannot be made or written."""
    from skelmix.display import plotly_script

    if path is None:
        return
    plotly_script()  # says what to install where it is missing
    if path.suffix != ".html":
        raise InvalidInput(f"{option} {path}: the ending must be .html")
    check_writable(path, option)
