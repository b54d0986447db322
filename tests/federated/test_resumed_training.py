"""A run that stops and goes on: schedule, charges and checkpoints."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from helpers.federation import accuracy, clients, network, small_plan
from helpers.trainers import make, weights
from skelmix.errors import CorruptState, InvalidInput, RoundFailed
from skelmix.federated.trainer import Trainer
from skelmix.noise.entropy import ReproducibleEntropy


def test_a_resumed_run_keeps_the_schedule(tmp_path):
    def parts():
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    model, optimizer, scheduler = parts()
    first = Trainer(
        model, cross_entropy, clients(), small_plan(rounds=3), optimizer, scheduler=scheduler,
        run_directory=tmp_path,
    )  # fmt: skip
    first.step()
    first.step()
    first.save()
    first.close()
    model, optimizer, scheduler = parts()
    again = Trainer.resume(tmp_path, model, cross_entropy, clients(), optimizer, scheduler=scheduler)
    assert scheduler.get_last_lr() == [0.25]
    again.run()
    assert scheduler.get_last_lr() == [0.125]


def test_a_finished_run_resumes_to_its_end_and_no_further(tmp_path):
    first = make(run_directory=tmp_path / "run")
    first.run()
    model = network(seed=9)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    again = Trainer.resume(tmp_path / "run", model, cross_entropy, clients(), optimizer)
    assert torch.equal(weights(model), weights(first.model))
    assert again.run().rounds == 12
    assert torch.equal(weights(model), weights(first.model))


def test_a_resumed_seeded_run_ends_where_an_unbroken_one_does(tmp_path):
    plan = small_plan()
    unbroken = make(plan, entropy=ReproducibleEntropy(3))
    unbroken.run()
    broken = make(plan, entropy=ReproducibleEntropy(3), run_directory=tmp_path, checkpoint_every=1)
    for _ in range(5):
        broken.step()
    broken.save()
    broken.close()
    model = network(seed=9)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    options = {"entropy": ReproducibleEntropy(3)}
    Trainer.resume(tmp_path, model, cross_entropy, clients(), optimizer, **options).run()
    assert torch.equal(weights(model), weights(unbroken.model))


def test_a_second_process_a_foreign_plan_and_a_shortened_ledger_are_refused(tmp_path):
    trainer = make(run_directory=tmp_path)
    with pytest.raises(CorruptState, match="in use"):
        make(run_directory=tmp_path)
    trainer.run()
    with pytest.raises(InvalidInput, match="resume"):
        make(run_directory=tmp_path)
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:4]))
    model = network()
    with pytest.raises(CorruptState, match="lines were removed"):
        Trainer.resume(tmp_path, model, cross_entropy, clients(), torch.optim.Adam(model.parameters()))


def test_an_interrupt_loses_no_finished_round(tmp_path):
    def stop(trainer, record):
        if record.round == 5:
            raise KeyboardInterrupt

    trainer = make(run_directory=tmp_path, callbacks=[stop])
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    with pytest.raises(CorruptState, match="still open"):
        Trainer.resume(tmp_path, trainer.model, cross_entropy, clients(), trainer.optimizer)
    trainer.close()
    model = network(1)
    again = Trainer.resume(
        tmp_path, model, cross_entropy, clients(), torch.optim.Adam(model.parameters(), lr=0.02)
    )
    assert torch.equal(weights(model), weights(trainer.model))
    assert [record.opened for record in again.history] == [True] * 5
    assert again.run().rounds == 12


def test_a_round_that_breaks_after_its_step_is_not_lost_and_a_closed_trainer_saves_nothing(tmp_path):
    calls = []

    def fails(model):
        calls.append(model)
        return 1 / (2 - len(calls))  # the first call is the trial before the first round

    trainer = make(run_directory=tmp_path, evaluate=fails, evaluate_every=3)
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    assert [record.opened for record in trainer.history] == [True] * 3
    trainer.close()
    kept = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(CorruptState):
        trainer.run()
    assert (tmp_path / "checkpoint.pt").read_bytes() == kept


def test_rounds_without_any_checkpoint_are_lost_and_counted(tmp_path):
    trainer = make(run_directory=tmp_path, checkpoint_every=100)
    for _ in range(12):
        trainer.step()
    trainer.close()
    model = network(1)
    parts = (model, cross_entropy, clients(), torch.optim.Adam(model.parameters()))
    resumed = Trainer.resume(tmp_path, *parts, evaluate=accuracy)
    result = resumed.run_unchecked()
    assert (result.rounds, result.failed_rounds, result.lost_rounds, len(result.history)) == (12, 0, 12, 12)
    assert result.accuracy == accuracy(model)
    with pytest.raises(RoundFailed, match="all 12 rounds were interrupted before a checkpoint"):
        resumed.run()


def test_a_checkpoint_of_another_run_of_the_same_plan_is_refused(tmp_path):
    for name in "ab":
        make(run_directory=tmp_path / name).run()
    (tmp_path / "a" / "checkpoint.pt").replace(tmp_path / "b" / "checkpoint.pt")
    model = network()
    with pytest.raises(CorruptState, match="different runs"):
        Trainer.resume(tmp_path / "b", model, cross_entropy, clients(), torch.optim.Adam(model.parameters()))


def test_a_damaged_checkpoint_is_refused(tmp_path):
    make(run_directory=tmp_path).run()
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    model = network()
    with pytest.raises(CorruptState, match="damaged"):
        Trainer.resume(tmp_path, model, cross_entropy, clients(), torch.optim.Adam(model.parameters()))
