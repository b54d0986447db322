"""The one way in which files are replaced: as a whole, and on disk when the call returns."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(target: Path, *, shared: bool = False) -> Iterator[Path]:
    """A path beside the target, to be written in the block; then it takes the target's place.

    A reader, even after a crash, sees the old content or the new one, never a mixture. When the block fails,
    nothing is left behind. shared: others may be writing the same target at this moment; otherwise what a
    crash left behind is overwritten the next time.
    """
    own = f".{os.getpid()}-{threading.get_ident()}" if shared else ""
    temporary = target.with_name(f"{target.name}{own}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    """Make a new or renamed name in the directory survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
