"""Files that a run leaves on disk, as the fuzzers see them: valid examples, readers and seals."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from skelmix.planning.digest import json_digest
from skelmix.rounds.contributions import ContributionStore
from skelmix.rounds.ledger import Ledger

SCRATCH = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())  # no disk


def ledger_text(rounds: int) -> bytes:
    path = SCRATCH / f"skelmix-fuzz-{os.getpid()}-example"
    path.unlink(missing_ok=True)
    ledger = Ledger(path, plan_digest="a" * 64, budget=4)
    for number in range(rounds):
        ledger.charge(number)
    ledger.close()
    data = path.read_bytes()
    path.unlink()
    path.with_name(path.name + ".lock").unlink()
    return data


def open_ledger(path: Path) -> None:
    ledger = Ledger(path, plan_digest="a" * 64, budget=4)
    ledger.close()
    assert 0 <= ledger.charged <= 4


def seal_ledger(data: bytes) -> bytes:
    """Each line with the digest of what it now says."""
    bodies = [line.rpartition(b"\t")[0] for line in data.split(b"\n") if line]
    return b"".join(body + b"\t" + hashlib.sha256(body).hexdigest().encode() + b"\n" for body in bodies)


def read_contributions(path: Path) -> None:
    """The file is read under the name that a store gives to that of its run."""
    run = ContributionStore(path.with_suffix(".d"), run=7)
    run._path = path
    found = run.read()
    assert (type(found.plan), type(found.last_round), type(found.count)) == (str, int, int)


def contributions_text() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        store = ContributionStore(Path(directory), run=7)
        store.accept("d" * 64)
        store.spend(3)
        return (Path(directory) / "run-7.json").read_bytes()


def seal_contributions(data: bytes) -> bytes:
    """With the digest of what it now says, if it says anything."""
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        content = json.loads(data)
        content.pop("digest", None)
        return json.dumps(content | {"digest": json_digest("contributions", content)}).encode()
    return data
