"""The ledger never understates what was spent."""

import errno
import os

import pytest

from skelmix.errors import BudgetExhausted, CorruptState, InvalidInput
from skelmix.rounds.files import write_atomically
from skelmix.rounds.ledger import Ledger


def opened(path, **changes):
    return Ledger(path, **{"plan_digest": "a" * 64, "budget": 5, "private": True, **changes})


def with_rounds(path, rounds):
    ledger = opened(path)
    for round in range(rounds):
        ledger.charge(round)
    ledger.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def test_charges_survive_reopening_and_the_budget_ends(path):
    with_rounds(path, 3)
    ledger = opened(path)
    assert (ledger.charged, ledger.remaining) == (3, 2)
    ledger.charge(3)
    ledger.charge(4)
    with pytest.raises(BudgetExhausted, match="the plan's 5 rounds"):
        ledger.charge(5)
    ledger.close()
    assert opened(path).charged == 5


def test_a_ledger_in_memory_keeps_the_same_budget():
    ledger = opened(None, budget=1)
    ledger.charge(0)
    with pytest.raises(BudgetExhausted):
        ledger.charge(1)


def test_rounds_are_charged_in_order_and_once(path):
    ledger = opened(path)
    ledger.charge(0)
    for wrong in (0, 2):
        with pytest.raises(InvalidInput, match="next round"):
            ledger.charge(wrong)


def test_a_torn_last_line_counts_as_charged_at_every_length(path):
    with_rounds(path, 3)
    whole = path.read_bytes()
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    for length in range(start + 1, len(whole)):
        path.write_bytes(whole[:length])
        ledger = opened(path)
        assert ledger.charged == 3
        ledger.charge(3)
        ledger.close()
        assert opened(path).charged == 4


def test_a_last_line_of_zeros_counts_as_charged(path):
    with_rounds(path, 2)
    path.write_bytes(path.read_bytes() + bytes(80))
    assert opened(path).charged == 3


def test_any_changed_byte_before_the_last_line_is_refused(path):
    with_rounds(path, 3)
    whole = path.read_bytes()
    end = whole.rstrip(b"\n").rfind(b"\n")
    for place in range(0, end, 7):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(bytes(damaged))
        with pytest.raises(CorruptState):
            opened(path)


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_removed_line_in_the_middle_is_refused(path, gone):
    with_rounds(path, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
    with pytest.raises(CorruptState):
        opened(path)


def test_swapped_lines_are_refused(path):
    with_rounds(path, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2], lines[3] = lines[3], lines[2]
    path.write_bytes(b"".join(lines))
    with pytest.raises(CorruptState):
        opened(path)


@pytest.mark.parametrize("change", [{"plan_digest": "b" * 64}, {"budget": 6}, {"private": False}])
def test_a_ledger_of_another_plan_or_kind_is_refused(path, change):
    with_rounds(path, 1)
    with pytest.raises(CorruptState, match="another plan"):
        opened(path, **change)


def test_a_full_disk_is_told_before_the_round_and_the_ledger_stays_closed(path, monkeypatch):
    ledger = opened(path)
    ledger.charge(0)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            ledger.charge(1)
    with pytest.raises(CorruptState, match="resume"):
        ledger.charge(1)
    assert opened(path).charged == 1


def test_an_interrupt_while_writing_closes_the_ledger(path, monkeypatch):
    ledger = opened(path)

    def interrupted(descriptor):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ledger.charge(0)
    with pytest.raises(CorruptState, match="resume"):
        ledger.charge(0)
    assert opened(path).charged == 1


def test_a_half_written_line_is_told_and_counts_after_reopening(path, monkeypatch):
    ledger = opened(path)
    genuine = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda file, data: genuine(file, data[:20]))
        with pytest.raises(OSError, match="only part"):
            ledger.charge(0)
    assert opened(path).charged == 1


def test_lines_are_synced_before_charge_returns(path, monkeypatch):
    ledger = opened(path)
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(path.read_bytes().count(b"\n")))
    ledger.charge(0)
    assert synced == [2]


def test_an_interrupted_replacement_leaves_the_old_content(tmp_path, monkeypatch):
    target = tmp_path / "state"
    write_atomically(target, b"old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
