"""The file that a report is to be written to."""

from __future__ import annotations

from pathlib import Path


def check_report(path: Path | None, option: str = "--report") -> None:
    """Refuse a report that was asked for and cannot be written, before anything is released."""
    from skelmix.display import plotly_script
    from skelmix.errors import InvalidInput
    from skelmix.rounds.files import storing

    if path is None:
        return
    plotly_script()
    if path.suffix != ".html":
        raise InvalidInput(f"{option} {path}: the ending must be .html")
    if path.is_dir() or not path.parent.is_dir():
        raise InvalidInput(f"{option} {path}: must be a file in a directory that exists; make it first")
    probe = path.with_name(path.name + ".tmp")
    with storing(path):
        probe.touch()
        probe.unlink()
