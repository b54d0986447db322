"""One writer at a time, and no lock that outlives its holder."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import ExitStack

import pytest

from skelmix.errors import CorruptState, StorageFailed
from skelmix.rounds.ledger import Ledger
from skelmix.rounds.locks import FileLock

PLAN, BUDGET, RACES = "a" * 64, 3, 100

RACER = """
import sys, time
from pathlib import Path
from skelmix.errors import SkelmixError
from skelmix.rounds import ledger as module
if sys.argv[1] == "unlocked":
    class Nothing:
        def __init__(self, *_, **__): pass
        def check(self): pass
        def close(self): pass
    module.FileLock, module.is_at = Nothing, lambda *_: True
print("ready", flush=True)
for line in sys.stdin:
    charged = refused = 0
    end = time.monotonic() + 20
    while True:
        try:
            ledger = module.Ledger(Path(line.strip()), plan_digest="a" * 64, budget=3)
        except SkelmixError as error:
            if "in use" not in str(error) or time.monotonic() > end:
                break  # only without the lock: the two have damaged it
            refused += 1
            time.sleep(0.0005)
            continue
        if sys.argv[1] == "unlocked":
            time.sleep(0.05)  # so that both have opened it
        while ledger.remaining:
            ledger.charge(ledger.charged)
            charged += 1
            time.sleep(0.001)
        ledger.close()
        break
    print(charged, refused, flush=True)
"""


def races(tmp_path, kind, count):
    """(rounds charged by both, refusals of both) for each of `count` ledgers that two processes open."""
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", RACER, kind],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(2)
        ]
        assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 2
        for number in range(count):
            path = tmp_path / f"{kind}-{number}.jsonl"
            Ledger(path, plan_digest="a" * 64, budget=3).close()
            for racer in racers:
                racer.stdin.write(f"{path}\n")
                racer.stdin.flush()
            answers = [tuple(map(int, racer.stdout.readline().split())) for racer in racers]
            yield tuple(map(sum, zip(*answers, strict=True)))
        for racer in racers:
            racer.stdin.close()


def test_a_hundred_races_of_two_processes_never_overspend(tmp_path):
    outcomes = list(races(tmp_path, "locked", RACES))
    assert [charged for charged, _ in outcomes] == [BUDGET] * RACES
    assert sum(refused > 0 for _, refused in outcomes) > RACES / 2, "they did race"
    for path in tmp_path.glob("*.jsonl"):
        assert len(path.read_bytes().splitlines()) == 1 + BUDGET


def test_control_without_the_lock_they_do(tmp_path):
    assert any(charged > BUDGET for charged, _ in races(tmp_path, "unlocked", RACES))


def test_a_second_opener_of_a_ledger_fails_at_once(tmp_path):
    path = tmp_path / "ledger.jsonl"
    first = Ledger(path, plan_digest=PLAN, budget=BUDGET)
    (tmp_path / "elsewhere").symlink_to(tmp_path)
    for name in (path, tmp_path / "elsewhere" / "ledger.jsonl"):
        with pytest.raises(CorruptState, match="in use"):
            Ledger(name, plan_digest=PLAN, budget=BUDGET)
    first.charge(0)
    first.close()
    second = Ledger(path, plan_digest=PLAN, budget=BUDGET)
    assert second.charged == 1
    with pytest.raises(CorruptState, match="closed"):
        first.charge(1)
    second.close()


def test_a_ledger_that_is_refused_is_not_left_locked(tmp_path):
    path = tmp_path / "ledger.jsonl"
    Ledger(path, plan_digest=PLAN, budget=BUDGET).close()
    for _ in range(2):
        with pytest.raises(CorruptState, match="another plan"):
            Ledger(path, plan_digest="b" * 64, budget=BUDGET)


HOLDER = """
import sys, time
from pathlib import Path
from skelmix.rounds.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]), plan_digest="a" * 64, budget=3)
ledger.charge(0)
print("held", flush=True)
time.sleep(60)
"""


def test_the_lock_of_a_process_that_was_killed_blocks_nobody(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CorruptState, match="in use by another process"):
            Ledger(path, plan_digest=PLAN, budget=BUDGET)
        holder.send_signal(signal.SIGKILL)
    again = Ledger(path, plan_digest=PLAN, budget=BUDGET)
    assert again.charged == 1
    again.close()


def test_a_forked_child_cannot_charge_its_parents_ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl", plan_digest=PLAN, budget=BUDGET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of numba exist, the child starts none
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            ledger.charge(0)
        except CorruptState:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    ledger.charge(0)
    ledger.close()


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, plan_digest=PLAN, budget=BUDGET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        signal.pause()
        os._exit(0)
    try:
        time.sleep(0.3)  # the child closes its copies as it starts
        ledger.close()
        Ledger(path, plan_digest=PLAN, budget=BUDGET).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_removing_the_lock_file_lets_nobody_in(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, plan_digest=PLAN, budget=BUDGET)
    (tmp_path / "ledger.jsonl.lock").unlink()
    with pytest.raises(CorruptState, match="in use"):
        Ledger(path, plan_digest=PLAN, budget=BUDGET)
    with pytest.raises(CorruptState, match="removed or replaced"):
        ledger.charge(0)
    ledger.close()


def test_a_second_name_of_a_ledger_is_refused(tmp_path):
    path, other = tmp_path / "ledger.jsonl", tmp_path / "other" / "ledger.jsonl"
    ledger = Ledger(path, plan_digest=PLAN, budget=BUDGET)
    other.parent.mkdir()
    os.link(path, other)
    with pytest.raises(CorruptState, match="in use"):
        Ledger(other, plan_digest=PLAN, budget=BUDGET)
    ledger.charge(0)
    ledger.close()


def test_a_ledger_that_was_deleted_is_not_charged(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, plan_digest=PLAN, budget=BUDGET)
    path.unlink()
    with pytest.raises(CorruptState, match="removed or replaced"):
        ledger.charge(0)
    assert ledger.charged == 0
    ledger.close()


def test_a_lock_is_let_go_by_close_and_by_being_forgotten(tmp_path):
    path = tmp_path / "lock"
    with FileLock(path) as held, pytest.raises(CorruptState, match="in use"):
        FileLock(path)
    with pytest.raises(CorruptState, match="not held"):
        held.check()
    forgotten = FileLock(path)
    forgotten.check()
    del forgotten
    FileLock(path).close()


def test_a_lock_is_of_the_name_and_not_of_a_file_that_had_it(tmp_path, monkeypatch):
    """Between opening and locking, the last holder may have renamed the file away."""
    path = tmp_path / "rows.csv"
    genuine = fcntl.flock

    def renamed_meanwhile(descriptor, operation):
        genuine(descriptor, operation)
        if not (tmp_path / "rows.old").exists():
            path.rename(tmp_path / "rows.old")

    monkeypatch.setattr(fcntl, "flock", renamed_meanwhile)
    with FileLock(path) as lock:
        assert os.path.samestat(os.fstat(lock._file), path.stat())


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def unsupported(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(StorageFailed, match="cannot be locked"):
        FileLock(tmp_path / "lock")
