"""One writer at a time: a lock that the operating system drops when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from weakref import WeakSet

from skelmix.errors import CorruptState, StorageFailed
from skelmix.rounds.files import storing

_WAIT_SECONDS = 10.0


class FileLock:
    """Holds a file for this process; a second opener, in this process or another, is refused at once.

    path: the file that is locked, made if it is missing; its content is not touched. A file that is replaced
    by renaming needs a lock file beside it. subject: what is in use, for the message to a second opener.

    Released by `close`, at the end of the process, or when it is killed: a file that a dead process left
    behind blocks nobody. A forked child closes its copy at once, so it neither holds the lock nor keeps it
    from others: `check` raises there. It raises, too, when the file was removed or replaced, since another
    process may then hold a new one of that name. A file system without locks raises `StorageFailed`.

    Example:

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "ledger.lock"
        >>> with FileLock(path):
        ...     FileLock(path)
        Traceback (most recent call last):
        ...
        skelmix.errors.CorruptState: ...ledger.lock is in use by another process, ...
    """

    def __init__(self, path: Path, *, subject: Path | None = None) -> None:
        self._subject = subject or path
        self._path = path
        self._owner = os.getpid()
        self._file: int | None = None
        _open_locks.add(self)
        while self._file is None:
            descriptor = self._locked(path)
            if is_at(descriptor, path):
                self._file = descriptor
            else:  # its last holder renamed or removed it between our open and our lock
                os.close(descriptor)

    def check(self) -> None:
        """Raise `CorruptState` unless this very process holds the lock, by the file of that name."""
        if self._file is None or self._owner != os.getpid():
            raise CorruptState(
                f"{self._subject} is not held by this process: it was closed, or opened before a fork; open "
                "it again in the process that writes"
            )
        if not is_at(self._file, self._path):
            raise CorruptState(
                f"{self._path} was removed or replaced while it was locked, so another process may hold "
                f"{self._subject}: leave lock files alone; open it again when no other process uses it"
            )

    def close(self) -> None:
        """Release the file; a forked child releases its copy only."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.close()

    def _locked(self, path: Path) -> int:
        with storing(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise CorruptState(
                f"{self._subject} is in use by another process, or is still open in this one: wait until "
                "that process ends, close() it here, or choose another place"
            ) from error
        except OSError as error:
            os.close(descriptor)
            raise StorageFailed(
                f"{path} cannot be locked ({error.strerror or error}): choose a place on a file system with "
                "locks, or two processes might spend one budget twice"
            ) from error
        return descriptor


def waited_lock(path: Path, *, subject: Path) -> FileLock:
    """A `FileLock` that others hold for milliseconds only: it is waited for, ten seconds at most."""
    end = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            return FileLock(path, subject=subject)
        except CorruptState:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


_open_locks: WeakSet[FileLock] = WeakSet()


def _close_in_child() -> None:
    for held in list(_open_locks):
        held.close()


os.register_at_fork(after_in_child=_close_in_child)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
