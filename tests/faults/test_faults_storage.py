"""Disks that are full, files that are damaged, processes that collide: named errors, nothing overspent,
nothing lost that was acknowledged."""

import hashlib
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from helpers.federation import clients, network, small_plan
from skelmix.errors import BudgetExhausted, CorruptState, InvalidInput, SkelmixError, StorageFailed
from skelmix.federated import trainer as trainer_module
from skelmix.federated.checkpoint import Checkpoint, load, save
from skelmix.federated.trainer import Trainer
from skelmix.rounds.files import write_atomically
from skelmix.rounds.ledger import Ledger
from skelmix.rounds.locks import FileLock
from skelmix.studies.rows import ResultFile, read

ROUNDS = 12
UNWRITABLE = Path("/proc/self")  # refuses new files to everyone, root included


@contextmanager
def files_no_longer_than(size):
    """The kernel takes what fits and refuses the rest, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def make(directory, **options):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.nn.functional.cross_entropy
    return Trainer(model, loss, clients(), small_plan(), optimizer, run_directory=directory, **options)


def resume(directory, **options):
    model = network(seed=9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Trainer.resume(
        directory, model, torch.nn.functional.cross_entropy, clients(), optimizer, **options
    )


def sealed(content):
    """With the head and digest that a checkpoint has: what a forger would write."""
    return b"skelmix checkpoint 1\n" + hashlib.sha256(content).digest() + content


def charged_on_disk(directory):
    return len((directory / "ledger.jsonl").read_bytes().splitlines()) - 1


def test_a_disk_that_fills_up_stops_before_the_round_and_the_run_goes_on_later(tmp_path):
    trainer = make(tmp_path)
    trainer.step()
    before = [p.detach().clone() for p in trainer.model.parameters()]
    size = (tmp_path / "ledger.jsonl").stat().st_size
    with files_no_longer_than(size + 30), pytest.raises(StorageFailed, match="free space"):
        trainer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    trainer.close()
    again = resume(tmp_path)
    assert again.ledger.charged == 2  # the torn line counts: never understated
    assert again.run().rounds == ROUNDS
    with pytest.raises(BudgetExhausted):
        again.ledger.charge(ROUNDS)


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before_it(tmp_path):
    trainer = make(tmp_path, checkpoint_every=1)
    trainer.step()
    trainer.save()
    saved = (tmp_path / "checkpoint.pt").read_bytes()
    trainer.step()
    with files_no_longer_than(2000), pytest.raises(StorageFailed):
        trainer.save()
    trainer.close()
    assert (tmp_path / "checkpoint.pt").read_bytes() == saved
    again = resume(tmp_path)
    assert again.ledger.charged == 2
    assert [record.lost for record in again.history] == [False, True]
    again.close()


def test_results_that_do_not_fit_are_told_and_rows_before_are_kept(tmp_path):
    path = tmp_path / "table.csv"
    with ResultFile(path, ["a"], ["b"]) as file:
        file.announce("test")
        file.append({"a": 1, "b": 2.5})
        with (
            files_no_longer_than(path.stat().st_size + 3),
            pytest.raises(StorageFailed, match="rows written before"),
        ):
            file.append({"a": 2, "b": 12345.678})
        assert ("2",) not in file.rows
    with ResultFile(path, ["a"], ["b"]) as file:
        assert list(file.rows) == [("1",)]
        file.append({"a": 2, "b": 7.5})
    assert [row["b"] for row in read(path, ["a"])[1].values()] == [2.5, 7.5]


def test_a_directory_that_cannot_be_written_is_named():
    for attempt in (
        lambda: make(UNWRITABLE / "run"),
        lambda: make(UNWRITABLE),
        lambda: FileLock(UNWRITABLE / "run.lock"),
        lambda: Ledger(UNWRITABLE / "ledger.jsonl", plan_digest="a" * 64, budget=3),
        lambda: save(UNWRITABLE / "checkpoint.pt", Checkpoint(0, "", True, {}, {})),
        lambda: write_atomically(UNWRITABLE / "plan.json", b"{}"),
        lambda: ResultFile(UNWRITABLE / "table.csv", ["a"], ["b"]).__enter__(),
    ):
        with pytest.raises(StorageFailed, match="proc"):
            attempt()


def test_an_emptied_or_missing_ledger_never_resets_the_budget(tmp_path):
    trainer = make(tmp_path)
    trainer.step()
    trainer.close()
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_bytes(b"")
    with pytest.raises(CorruptState, match="ledger"):
        resume(tmp_path)
    ledger.unlink()
    with pytest.raises(CorruptState, match="missing"):
        resume(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("finished")
    make(directory).run()
    return directory


def test_a_checkpoint_cut_short_or_damaged_anywhere_is_refused(finished, tmp_path):
    whole = (finished / "checkpoint.pt").read_bytes()
    path = tmp_path / "checkpoint.pt"
    for length in [0, 1, 2, 100, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptState):
            load(path)
    for place in range(0, len(whole), len(whole) // 40):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with pytest.raises(CorruptState):
            load(path)


@pytest.mark.parametrize(
    "content",
    [[1, 2], {"round": 1}, {"round": "1"}, dict(round="x", ledger_head=3, model=1, optimizer=2)],
    ids=str,
)
def test_a_foreign_torch_file_is_not_a_checkpoint(tmp_path, content):
    path = tmp_path / "checkpoint.pt"
    torch.save(content, path)
    with pytest.raises(CorruptState, match="digest"):
        load(path)
    path.write_bytes(sealed(path.read_bytes()))
    with pytest.raises(CorruptState, match="not a checkpoint"):
        load(path)


def test_a_checkpoint_of_code_is_not_run(tmp_path):
    """A pickle that would create a file when loaded, does not."""
    import pickle

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    (tmp_path / "checkpoint.pt").write_bytes(sealed(pickle.dumps(Bomb())))
    with pytest.raises(CorruptState):
        load(tmp_path / "checkpoint.pt")
    assert not (tmp_path / "exploded").exists()


def test_a_checkpoint_of_another_run_or_model_is_refused(finished, tmp_path):
    trainer = make(tmp_path)
    trainer.step()
    trainer.save()
    trainer.close()
    own = load(tmp_path / "checkpoint.pt")
    (tmp_path / "checkpoint.pt").write_bytes((finished / "checkpoint.pt").read_bytes())
    with pytest.raises(CorruptState, match="different runs"):
        resume(tmp_path)
    save(
        tmp_path / "checkpoint.pt",
        Checkpoint(own.round, own.ledger_head, True, {"other": torch.zeros(3)}, own.optimizer),
    )
    with pytest.raises(CorruptState, match="another model"):
        resume(tmp_path)


@pytest.mark.parametrize("text", [b"", b"\xff\xfe\x00", b"[]", b"{}", b"{" * 5000])
def test_a_damaged_plan_is_refused(finished, tmp_path, text):
    (tmp_path / "plan.json").write_bytes(text)
    (tmp_path / "ledger.jsonl").write_bytes((finished / "ledger.jsonl").read_bytes())
    with pytest.raises(InvalidInput, match="plan"):
        resume(tmp_path)


HOLD = """
import sys, time
from pathlib import Path
from skelmix.rounds.locks import FileLock
lock = FileLock(Path(sys.argv[1]) / "run.lock")
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_process_waits_its_turn_and_a_killed_one_leaves_no_lock(tmp_path):
    trainer = make(tmp_path)
    trainer.step()
    trainer.close()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        before = (tmp_path / "ledger.jsonl").read_bytes()
        with pytest.raises(CorruptState, match="another process"):
            resume(tmp_path)
        assert (tmp_path / "ledger.jsonl").read_bytes() == before
        other.kill()
    again = resume(tmp_path)
    assert again.ledger.charged == 1
    again.close()


def test_a_clock_that_goes_backwards_changes_nothing_that_is_spent(tmp_path, monkeypatch):
    import time

    ticks = iter(range(10**9, 0, -1))
    for name in ("time", "perf_counter", "monotonic"):
        monkeypatch.setattr(time, name, lambda: float(next(ticks)))
    monkeypatch.setattr(trainer_module, "perf_counter", lambda: float(next(ticks)))
    assert make(tmp_path).run().rounds == ROUNDS
    assert charged_on_disk(tmp_path) == ROUNDS


def test_storage_failures_are_both_ours_and_the_systems():
    assert issubclass(StorageFailed, SkelmixError)
    assert issubclass(StorageFailed, OSError)
