"""What was given to a run is not forgotten, whatever happens to the process."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from skelmix.errors import CorruptState, PolicyViolation, StorageFailed
from skelmix.rounds.contributions import KEEP_SECONDS, Contributions, ContributionStore, default_directory
from skelmix.rounds.locks import FileLock

PLAN = "a" * 64


@pytest.fixture
def store(tmp_path):
    return ContributionStore(tmp_path / "node", run=7)


def test_nothing_is_known_and_nothing_written_before_a_run_is_joined(store):
    assert store.read() == Contributions("", -1, 0)
    assert not store.directory.exists()


def test_rounds_and_plan_survive_a_restart(store):
    store.accept(PLAN)
    store.spend(0)
    store.spend(3)
    again = ContributionStore(store.directory, run=7)
    assert again.read() == Contributions(PLAN, 3, 2)
    again.accept(PLAN)
    assert again.read().count == 2
    for spent in (0, 2, 3):
        with pytest.raises(CorruptState, match="already spent"):
            again.spend(spent)
    again.spend(4)


@pytest.mark.parametrize("answer", ["signed", "unmasked"])
def test_the_survivors_of_a_round_are_answered_for_once(store, answer):
    store.spend(2)
    store.claim(answer, 2)
    again = ContributionStore(store.directory, run=7)
    for round in (1, 2):
        with pytest.raises(CorruptState, match=f"already {answer}"):
            again.claim(answer, round)
    again.claim(answer, 3)
    assert replace(again.read(), **{answer: -1}) == Contributions("", 2, 1), "and nothing else changed"


def test_another_process_of_the_node_is_waited_for_and_not_for_ever(store, monkeypatch):
    store.accept(PLAN)
    held = FileLock(store.directory / "lock")
    release = threading.Timer(0.3, held.close)
    release.start()
    assert store.spend(0) == 1
    release.join()
    monkeypatch.setattr("skelmix.rounds.locks._WAIT_SECONDS", 0.1)
    with FileLock(store.directory / "lock"), pytest.raises(CorruptState, match="in use by another process"):
        store.spend(1)
    assert store.read().last_round == 0


def test_a_run_has_one_plan(store):
    store.accept(PLAN)
    with pytest.raises(PolicyViolation, match="changed the plan"):
        ContributionStore(store.directory, run=7).accept("b" * 64)


def test_runs_do_not_count_for_one_another(store):
    store.accept(PLAN)
    store.spend(0)
    other = ContributionStore(store.directory, run=8)
    assert other.read() == Contributions()
    other.spend(0)


def test_a_run_is_forgotten_when_told_or_when_it_is_long_over(store):
    store.accept(PLAN)
    store.spend(0)
    store.erase()
    assert store.read() == Contributions()
    store.spend(0)
    ContributionStore(store.directory, run=8).accept(PLAN)
    assert store.read().last_round == 0, "another run may still go on"
    old = time.time() - KEEP_SECONDS - 60
    os.utime(store.directory / "run-7.json", (old, old))
    ContributionStore(store.directory, run=9).accept(PLAN)
    assert sorted(path.name for path in store.directory.glob("run-*")) == ["run-8.json", "run-9.json"]


def test_every_damage_is_refused_and_nothing_is_given(store):
    store.accept(PLAN)
    store.spend(3)
    path = store.directory / "run-7.json"
    whole = path.read_bytes()
    wrong = [whole[:length] for length in range(len(whole))]
    wrong += [whole.replace(b'"last_round": 3', b'"last_round": 0'), whole.replace(PLAN.encode(), b"b" * 64)]
    for text in wrong:
        path.write_bytes(text)
        for attempt in (store.read, lambda: store.spend(9), lambda: store.accept(PLAN)):
            with pytest.raises(CorruptState, match="damaged"):
                attempt()


def test_a_crash_while_writing_leaves_what_was_there(store, monkeypatch):
    store.spend(0)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.spend(1)
    assert store.read().last_round == 0


def test_a_disk_that_cannot_be_written_is_named():
    with pytest.raises(StorageFailed, match="proc"):
        ContributionStore(Path("/proc/skelmix"), run=1).accept(PLAN)


def test_the_default_place_is_the_users_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_directory("name") == tmp_path / "skelmix" / "participants" / "name"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_directory("name").parts[-5:-2] == (".local", "state", "skelmix")
