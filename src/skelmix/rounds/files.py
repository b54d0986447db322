"""Files that survive a crash: replaced as a whole, and on disk when the call returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skelmix.errors import StorageFailed
from skelmix.replacement import replacing


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn failures of the operating system within the block into `StorageFailed`, naming the path."""
    try:
        yield
    except StorageFailed:
        raise
    except OSError as error:
        raise StorageFailed(
            f"{path} could not be written ({error.strerror or error}): free space or correct the rights, "
            "then resume; nothing of the round was released"
        ) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file: a reader, even after a crash, sees the old content or the new one, never a mixture.

    One writer at a time: hold a `FileLock` where several processes may write the same file.
    """
    with storing(path), replacing(path) as temporary:
        temporary.write_bytes(data)
