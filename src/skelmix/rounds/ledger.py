"""The privacy ledger: one line per started round, on disk before anything of that round is used.

A line is JSON with the SHA-256 of the line before it, so a changed, missing or foreign line breaks the chain.
A last line that a crash tore counts as a started round: the ledger may overstate what was spent, never
understate it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skelmix.errors import BudgetExhausted, CorruptState, InvalidInput
from skelmix.noise.entropy import system_entropy
from skelmix.rounds.files import storing, write_atomically
from skelmix.rounds.locks import FileLock, is_at
from skelmix.validation import whole
from skelmix.wording import counted

if TYPE_CHECKING:
    from skelmix.planning import Plan

CHAIN_START = "0" * 64
"""In place of a digest, before the first line."""


def chained_line(previous: str, content: dict[str, Any]) -> tuple[bytes, str]:
    """One line of a ledger and its digest; `previous`: the digest of the line before it."""
    body = json.dumps({**content, "previous": previous}, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f"{body}\t{digest}\n".encode(), digest


def read_chained(line: bytes, previous: str) -> tuple[dict[str, Any], str] | None:
    """The content and digest of one line, or None when it is torn, changed or does not follow `previous`."""
    body, tab, digest = line.rpartition(b"\t")
    if (
        not tab
        or hashlib.sha256(body).hexdigest().encode() != digest.rstrip(b"\n")
        or not line.endswith(b"\n")
    ):
        return None
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None
    follows = isinstance(content, dict) and content.get("previous") == previous
    return (content, digest[:-1].decode()) if follows else None


def discard_unused(path: Path) -> bool:
    """Remove a ledger that holds no round yet; False, and nothing is removed, where one was started.

    It is locked meanwhile: one that is open elsewhere raises `CorruptState`. A file that does not begin as a
    ledger, or holds anything below its first line, stays.
    """
    path = path.resolve()
    lock = FileLock(path.with_name(path.name + ".lock"), subject=path)
    try:
        own = FileLock(path)
        try:
            lines = path.read_bytes().splitlines(keepends=True)
            if len(lines) != 1 or read_chained(lines[0], CHAIN_START) is None:
                return False
            path.unlink()
            return True
        finally:
            own.close()
    finally:
        lock.close()


@dataclass(frozen=True)
class LedgerState:
    """What a ledger file says: the plan it belongs to, and the rounds that were started."""

    plan_digest: str
    budget: int
    charged: int
    private: bool


def read_ledger(path: Path) -> LedgerState:
    """Read a ledger without locking or repairing it: its run may still be going on.

    A torn last line counts as a started round. Any other damage raises `CorruptState`.
    """
    with storing(path):
        first, *lines = path.read_bytes().splitlines(keepends=True) or [b""]
    header = read_chained(first, CHAIN_START)
    if header is None:
        raise CorruptState(f"{path} does not begin as a ledger: it is damaged or not one")
    content, previous = header
    for place, line in enumerate(lines):
        parsed = read_chained(line, previous)
        if parsed is None and place == len(lines) - 1:
            break
        if parsed is None or parsed[0].get("round") != place:
            raise CorruptState(f"{path} is damaged at line {place + 2}: what was spent is unknown")
        previous = parsed[1]
    try:
        return LedgerState(content["plan"], content["budget"], len(lines), content["private"])
    except KeyError as error:
        raise CorruptState(f"{path} does not begin as a ledger: {error} is missing") from error


class Ledger:
    """The rounds charged to one plan; `Ledger.for_plan` makes one.

    `path=None` keeps them in memory only, for simulations that are not resumed.

    `charged` counts the rounds started so far, `budget` those that the plan paid for. Opening a file that is
    damaged before its last line, or that belongs to another plan or budget, raises `CorruptState`; so does
    one that is open elsewhere: a ledger is locked from here to `close`, since two ledgers that charge one
    file would spend its budget twice. The lock of a dead process blocks nobody.

    Example:

        >>> ledger = Ledger(None, plan_digest="", budget=2)
        >>> ledger.charge(0)
        >>> ledger.remaining
        1
    """

    def __init__(self, path: Path | None, *, plan_digest: str, budget: int, private: bool = True) -> None:
        whole(1, budget=budget)
        self._file: int | None = None
        self._lock: FileLock | None = None  # lock by name, which also covers the replacement of a torn ledger
        self._own: FileLock | None = None  # lock on the file itself, whatever other names it has
        self.budget, self.charged, self.heads = budget, 0, [CHAIN_START]
        self._header = {"kind": "ledger", "plan": plan_digest, "budget": budget, "private": private}
        self._path = None if path is None else path.resolve()  # one lock, whatever the name it goes by
        if self._path is not None:
            self._lock_and_open(self._path)

    @classmethod
    def for_plan(cls, plan: Plan, path: Path | str | None, *, private: bool = True) -> Ledger:
        """The ledger of all of this plan's rounds, in the file at `path`, which is made if there is none.

        private: False marks the file as that of a run with reproducible randomness.
        """
        place = None if path is None else Path(path)
        return cls(place, plan_digest=plan.digest(), budget=plan.rounds, private=private)

    @property
    def plan_digest(self) -> str:
        """The digest of the plan whose rounds are counted."""
        return str(self._header["plan"])

    @property
    def remaining(self) -> int:
        """Rounds that may still be started."""
        return self.budget - self.charged

    def charge(self, round: int) -> None:
        """Record that `round` starts; returns only when the line is on disk.

        When it raises, the round may or may not be charged, and must not run.

        `BudgetExhausted` when the plan's rounds are used up; `StorageFailed` (disk full, say) before anything
        was released. Rounds are charged in order, each once.
        """
        if self.remaining <= 0:
            raise BudgetExhausted(
                f"nothing is left of the plan's {counted(self.budget, 'round')}: "
                "to go on, make a new plan; its ε adds to this one's"
            )
        if round != self.charged:
            raise InvalidInput(f"round = {round}: the next round to be charged is {self.charged}")
        line, digest = chained_line(self.heads[-1], {"round": round})
        if self._path is not None:
            self._append(self._path, line)
        self.heads.append(digest)
        self.charged += 1

    def close(self) -> None:
        """Release the file and its lock; a closed ledger cannot be charged."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        for held in (self._own, self._lock):
            if held is not None:
                held.close()
        self._own = self._lock = None

    def _append(self, path: Path, line: bytes) -> None:
        if self._file is None or self._lock is None:
            raise CorruptState(
                "the ledger is closed (a write failed, or the run ended): resume the run to read it again"
            )
        self._lock.check()
        if not is_at(self._file, path):
            self.close()
            raise CorruptState(
                f"{path} was removed or replaced while it was open: what is charged from now on would be "
                "lost; put the ledger back, then resume"
            )
        try:
            with storing(path):
                if os.write(self._file, line) != len(line):
                    raise OSError("the disk took only part of a ledger line")
                os.fsync(self._file)
        except BaseException:
            self.close()  # what is on disk is now unknown until the file is read again
            raise

    def _lock_and_open(self, path: Path) -> None:
        self._lock = FileLock(path.with_name(path.name + ".lock"), subject=path)
        try:
            self._open(path)
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path) -> None:
        if not path.exists():
            run = system_entropy().bytes(16).hex()  # so that no other run's checkpoint fits this ledger
            line, digest = chained_line(CHAIN_START, self._header | {"run": run})
            write_atomically(path, line)
            self.heads = [digest]
            self._own = FileLock(path)
        else:
            self._own = FileLock(path)
            self._read(path, path.read_bytes().splitlines(keepends=True))
        with storing(path):
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def _read(self, path: Path, lines: list[bytes]) -> None:
        header = read_chained(lines[0], CHAIN_START) if lines else None
        if header is None:
            raise CorruptState(f"{path} does not begin as a ledger: it is damaged or not one; stop training")
        if not self._header.items() <= header[0].items():
            raise CorruptState(
                f"{path} belongs to another plan, budget or kind of run: resume with the plan it was made for"
            )
        self.heads = [header[1]]
        for place, line in enumerate(lines[1:]):
            parsed = read_chained(line, self.heads[-1])
            if parsed is None and place == len(lines) - 2:
                torn, digest = chained_line(self.heads[-1], {"round": place, "torn": True})
                write_atomically(path, b"".join(lines[:-1]) + torn)
                self._own = FileLock(path)
            elif parsed is None or parsed[0].get("round") != place:
                raise CorruptState(
                    f"{path} is damaged at line {place + 2}: what was spent is unknown, stop training"
                )
            else:
                digest = parsed[1]
            self.heads.append(digest)
            self.charged += 1
        if self.charged > self.budget:
            raise CorruptState(f"{path} holds {self.charged} rounds, more than the plan's {self.budget}")
