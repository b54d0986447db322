"""A participant's record, on its own disk, of what it gave to a run, so that a restart never repeats a round.

A server can ask again for a round that was answered, and a second vector for it is a second release that no
plan pays for. So the number of the round is on disk before a vector for it is made. The same holds for the
set of survivors that the participant signs, and unmasks: answers for two sets would together open a sum that
neither opens alone.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from skelmix.errors import CorruptState, PolicyViolation
from skelmix.planning.digest import json_digest
from skelmix.rounds.files import storing, write_atomically
from skelmix.rounds.locks import FileLock, waited_lock
from skelmix.validation import whole

KEEP_SECONDS = 90 * 24 * 3600
"""How long the file of a run is kept after its last round: participants do not learn when a run ends."""


@dataclass(frozen=True)
class Contributions:
    """What a participant gave to one run.

    plan: the digest of the only plan accepted in the run. last_round: the last round for which a vector was
    made, -1 before the first. count: for how many rounds one was made. signed: the last round whose survivors
    it signed; unmasked: the last one for whose survivors it gave shares.

    Example:

        >>> Contributions().last_round
        -1
    """

    plan: str = ""
    last_round: int = -1
    count: int = 0
    signed: int = -1
    unmasked: int = -1


class ContributionStore:
    """The contributions of one participant to one run, in one small file of `directory`.

    Every change is on disk when the call returns. A file that was damaged raises `CorruptState`, and one that
    cannot be written `StorageFailed`: without it the participant gives nothing.

    Example:

        >>> import tempfile
        >>> store = ContributionStore(Path(tempfile.mkdtemp()), run=7)
        >>> store.accept("a" * 64)
        >>> store.spend(0)
        1
        >>> ContributionStore(store.directory, run=7).read().last_round
        0
    """

    def __init__(self, directory: Path, run: int) -> None:
        whole(0, run=run)
        self.directory = directory
        self._path = directory / f"run-{run}.json"

    def read(self) -> Contributions:
        """What was given so far; nothing, when this run was never joined."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return Contributions()
        except OSError as error:
            raise CorruptState(f"{self._path} cannot be read ({error}): correct its rights") from error
        try:
            data: dict[str, Any] = json.loads(text)
            digest = data.pop("digest")
            contributions = Contributions(**data)
            sound = digest == _digest(contributions) and all(
                type(getattr(contributions, field.name)) is type(field.default)
                for field in fields(contributions)
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._damaged() from error
        if not sound:
            raise self._damaged()
        return contributions

    def accept(self, plan_digest: str) -> None:
        """Take this plan for the whole run; `PolicyViolation` if another one was taken before."""
        with self._locked():
            before = self.read()
            if before.plan not in ("", plan_digest):
                raise PolicyViolation(
                    "the server changed the plan in the middle of the run: this participant had accepted "
                    "another one before it restarted"
                )
            if not before.plan:
                self._forget_old_runs()
                self._write(replace(before, plan=plan_digest))

    def spend(self, round: int) -> int:
        """From now on, and after any restart, no vector is made for this round or an earlier one.

        Returns the number of rounds of the run, including this one, that a vector was made for; a cap limits
        it.
        """
        whole(0, round=round)
        with self._locked():
            before = self.read()
            if round <= before.last_round:
                raise CorruptState(f"round {round} was already spent: the last one is {before.last_round}")
            self._write(replace(before, last_round=round, count=before.count + 1))
            return before.count + 1

    def claim(self, answer: Literal["signed", "unmasked"], round: int) -> None:
        """From now on, and after any restart, this answer is not given for this round or an earlier one.

        When two messages are handled at the same time, from the same memory, only one gets the claim.
        """
        whole(0, round=round)
        with self._locked():
            before = self.read()
            if round <= (last := getattr(before, answer)):
                raise CorruptState(f"the survivors of round {round} were already {answer}; the last: {last}")
            changes: dict[str, Any] = {answer: round}
            self._write(replace(before, **changes))

    def erase(self) -> None:
        """Forget the run; only safe when its server can no longer ask for anything."""
        with self._locked(), storing(self._path):
            self._path.unlink(missing_ok=True)

    def _write(self, contributions: Contributions) -> None:
        content = asdict(contributions) | {"digest": _digest(contributions)}
        write_atomically(self._path, json.dumps(content).encode())

    def _locked(self) -> FileLock:
        with storing(self.directory):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return waited_lock(self.directory / "lock", subject=self.directory)

    def _forget_old_runs(self) -> None:
        with storing(self.directory):
            for path in self.directory.glob("run-*.json"):
                if path.stat().st_mtime < time.time() - KEEP_SECONDS:
                    path.unlink()

    def _damaged(self) -> CorruptState:
        return CorruptState(
            f"{self._path} is damaged: what was given to this run is unknown; take no further part in it"
        )


def _digest(contributions: Contributions) -> str:
    return json_digest("contributions", asdict(contributions))


def default_directory(name: str) -> Path:
    """The default place of a participant's contributions: $XDG_STATE_HOME or ~/.local/state."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "skelmix" / "participants" / name
