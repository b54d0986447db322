"""The training loop: what reaches the optimiser, what is charged, what is refused."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import skelmix as sk
from helpers.federation import DIMENSION, POPULATION, accuracy, clients, network, records, small_plan
from skelmix.datasets.catalogue import Images
from skelmix.encoding.rotation import rotate, unrotate
from skelmix.encoding.subset import choose
from skelmix.errors import BudgetExhausted, CorruptState, InvalidInput
from skelmix.federated import trainer as module
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import Gradients
from skelmix.federated.recipes import Accuracy
from skelmix.federated.trainer import Trainer
from skelmix.noise.entropy import ReproducibleEntropy


def make(plan=None, *, model=None, people=None, lr=0.02, **options):
    model = network() if model is None else model
    plan = small_plan() if plan is None else plan
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    return Trainer(model, cross_entropy, people or clients(), plan, optimizer, **options)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


class Steps(torch.optim.Optimizer):
    """Keeps what it was given instead of stepping."""

    def __init__(self, model):
        super().__init__(model.parameters(), {})
        self.seen = []

    def step(self):
        self.seen.append(
            torch.cat([p.grad.flatten() for g in self.param_groups for p in g["params"]]).numpy()
        )


@pytest.mark.parametrize("secure", ["simulated", "protocol"])
def test_without_noise_and_rounding_the_optimiser_sees_the_plain_clipped_mean(secure, monkeypatch):
    plan = small_plan()
    fine = dataclasses.replace(plan.mechanism, scale=2.0**16, bits=32)  # a grid too fine to see
    plan = dataclasses.replace(plan, mechanism=fine.without_noise())
    cohorts = []
    draw = module.draw_cohort
    monkeypatch.setattr(module, "draw_cohort", lambda *a: cohorts.append(draw(*a)) or cohorts[-1])
    model = network()
    steps = Steps(model)
    trainer = Trainer(
        model, cross_entropy, clients(), plan, steps, secure=secure, entropy=ReproducibleEntropy(5)
    )
    for _ in range(3):
        trainer.step()
    for seen, cohort in zip(steps.seen, cohorts, strict=True):
        vectors = np.concatenate(
            [b.copy() for b in Gradients(model, cross_entropy).blocks(clients(), cohort)]
        )
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        expected = (vectors * np.minimum(1, 1 / norms)[:, None]).sum(0) / plan.cohort.expected
        assert len(cohort) != plan.cohort.expected  # divided by the expected cohort, not by this one
        np.testing.assert_allclose(seen, expected, atol=2e-5)


@pytest.mark.parametrize("secure", ["simulated", "protocol"])
def test_of_a_subset_the_optimiser_sees_what_was_sent_in_place_and_zero_elsewhere(secure, monkeypatch):
    plan = sk.plan(
        sk.PrivacyTarget(20.0, 1e-5), dimension=DIMENSION, bits=32, keep=0.1, scale=2.0**16, bound="rdp",
        rounds=2, cohort=sk.Cohort(expected=40, population=POPULATION),
    )  # fmt: skip
    mechanism = plan.mechanism.without_noise()
    length, keep = mechanism.padded_dimension, mechanism.keep
    plan = dataclasses.replace(plan, mechanism=mechanism)
    cohorts = []
    draw = module.draw_cohort
    monkeypatch.setattr(module, "draw_cohort", lambda *a: cohorts.append(draw(*a)) or cohorts[-1])
    model = network()
    steps = Steps(model)
    trainer = Trainer(
        model, cross_entropy, clients(), plan, steps, secure=secure, entropy=ReproducibleEntropy(5)
    )
    for round in range(2):
        trainer.step()
        blocks = Gradients(model, cross_entropy).blocks(clients(), cohorts[round])
        vectors = np.concatenate([block.astype(np.float64) for block in blocks])
        places = choose(mechanism.rotation_seed, round, length, keep)
        sent = rotate(vectors, mechanism.rotation_seed, round)[:, places]
        most = mechanism.radius / mechanism.scale
        sent *= np.minimum(1, most / np.linalg.norm(sent, axis=1))[:, None]
        whole = np.zeros((1, length))
        whole[0, places] = sent.sum(axis=0) * length / keep
        expected = unrotate(whole, mechanism.rotation_seed, round, dimension=DIMENSION)[0] / 40
        np.testing.assert_allclose(steps.seen[round], expected, atol=2e-5)


@pytest.mark.parametrize("mechanism", ["skellam", "gaussian"])
def test_training_learns_and_says_what_it_spent(mechanism):
    result = make(
        small_plan(mechanism, rounds=200, epsilon=200.0), evaluate=accuracy, evaluate_every=50
    ).run()
    assert result.accuracy > 0.5  # ten classes; 0.82 was the least of forty runs
    assert result.rounds == len(result.history) == 200
    assert result.report.epsilon <= 200
    assert result.private
    assert not result.report.reproducible
    assert [r["round"] for r in result.history if "accuracy" in r] == [50, 100, 150, 200]


def test_measured_error_is_the_predicted_one():
    plan = small_plan("skellam", rounds=30)
    result = make(plan, evaluate_every=1, diagnostics=True).run()
    measured = np.mean([record["diagnostics"]["mse"] for record in result.history])
    assert measured == pytest.approx(plan.predicted.mse, rel=0.05)


def test_a_seed_repeats_the_run_and_marks_it_not_private():
    first, second, other = (make(entropy=ReproducibleEntropy(seed)) for seed in (1, 1, 2))
    results = [trainer.run() for trainer in (first, second, other)]
    assert torch.equal(weights(first.model), weights(second.model))
    assert not torch.equal(weights(first.model), weights(other.model))
    assert all(not result.private and result.report.reproducible for result in results)
    assert "NOT PRIVATE" in str(results[0].report)


def test_without_a_seed_no_two_runs_are_alike():
    first, second = make(), make()
    first.run()
    second.run()
    assert not torch.equal(weights(first.model), weights(second.model))


def test_the_budget_ends_the_run():
    trainer = make(small_plan(rounds=3))
    assert trainer.run().rounds == 3
    before = weights(trainer.model)
    with pytest.raises(BudgetExhausted):
        trainer.step()
    trainer.run()
    assert torch.equal(before, weights(trainer.model))


def test_rounds_with_too_few_survivors_change_nothing_and_are_charged():
    trainer = make(dropout_rate=0.5)  # the plan tolerates none
    before = weights(trainer.model)
    result = trainer.run()
    assert torch.equal(before, weights(trainer.model))
    assert (result.rounds, result.failed_rounds) == (12, 12)


@pytest.mark.parametrize("secure", ["simulated", "protocol"])
def test_tolerated_dropouts_leave_the_noise_that_was_accounted_for(secure):
    plan = small_plan(rounds=4, dropout_tolerance=0.6)
    result = make(plan, dropout_rate=0.3, secure=secure, evaluate_every=1, diagnostics=True).run()
    opened = [record for record in result.history if record["opened"]]
    assert opened
    for record in opened:
        least = plan.mechanism.noise_variance(plan.mechanism.shares) / plan.mechanism.scale**2
        assert (
            record["diagnostics"]["mse"] > 0.85 * least
        )  # 1,666 coordinates: a relative deviation of 3.5 % a round


def test_an_empty_cohort_is_a_charged_round_without_a_step(monkeypatch):
    monkeypatch.setattr(module, "draw_cohort", lambda *_: np.arange(0))
    trainer = make(small_plan(rounds=2))
    before = weights(trainer.model)
    assert trainer.run().failed_rounds == 2
    assert torch.equal(before, weights(trainer.model))


def test_schedules_and_callbacks_run_every_round():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    seen = []
    Trainer(
        model,
        cross_entropy,
        clients(),
        small_plan(rounds=3),
        optimizer,
        scheduler=scheduler,
        callbacks=[lambda trainer, record: seen.append((record["round"], scheduler.get_last_lr()[0]))],
    ).run()
    assert seen == [(1, 0.5), (2, 0.25), (3, 0.125)]


def test_measure_false_keeps_nothing_about_the_data():
    history = make(evaluate=accuracy, evaluate_every=1).run().history
    assert set().union(*history) == {"round", "opened", "accuracy"}


def test_a_plan_for_another_model_or_population_is_refused():
    with pytest.raises(InvalidInput, match="trainable weights"):
        make(model=torch.nn.Linear(196, 10))
    plan = small_plan()
    wrong = dataclasses.replace(plan, cohort=dataclasses.replace(plan.cohort, population=POPULATION * 2))
    with pytest.raises(InvalidInput, match="population"):
        make(wrong)


def test_the_central_gaussian_has_no_protocol():
    with pytest.raises(InvalidInput, match="trusts"):
        make(small_plan("gaussian"), secure="protocol")


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
        if record["round"] == 5:
            raise KeyboardInterrupt

    trainer = make(run_directory=tmp_path, callbacks=[stop])
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    with pytest.raises(CorruptState, match="still open"):
        Trainer.resume(tmp_path, network(), cross_entropy, clients(), trainer.optimizer)
    trainer.close()
    model = network(1)
    again = Trainer.resume(
        tmp_path, model, cross_entropy, clients(), torch.optim.Adam(model.parameters(), lr=0.02)
    )
    assert torch.equal(weights(model), weights(trainer.model))
    assert [record["opened"] for record in again.history] == [True] * 5
    assert again.run().rounds == 12


def test_a_round_that_breaks_after_its_step_is_not_lost_and_a_closed_trainer_saves_nothing(tmp_path):
    def fails(model):
        raise ZeroDivisionError

    trainer = make(run_directory=tmp_path, evaluate=fails, evaluate_every=3)
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    assert [record["opened"] for record in trainer.history] == [True] * 3
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
    result = Trainer.resume(tmp_path, *parts, evaluate=accuracy).run()
    assert (result.rounds, result.failed_rounds, result.lost_rounds, len(result.history)) == (12, 0, 12, 12)
    assert result.accuracy == accuracy(model)


def test_a_checkpoint_of_another_run_of_the_same_plan_is_refused(tmp_path):
    for name in "ab":
        make(run_directory=tmp_path / name).run()
    (tmp_path / "a" / "checkpoint.pt").replace(tmp_path / "b" / "checkpoint.pt")
    model = network()
    with pytest.raises(CorruptState, match="different runs"):
        Trainer.resume(tmp_path / "b", model, cross_entropy, clients(), torch.optim.Adam(model.parameters()))


def test_a_seed_repeats_dropout_layers():
    def run():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Dropout(0.5), *network())
        make(model=model, entropy=ReproducibleEntropy(1)).run()
        return weights(model)

    first = run()
    torch.rand(7)
    assert torch.equal(first, run())


def test_evaluation_leaves_frozen_layers_frozen():
    images = Images("made up", *((np.zeros((4, 14, 14), np.uint8), np.zeros(4, np.int64)) * 2))
    model = torch.nn.Sequential(torch.nn.Linear(196, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 10))
    model[1].eval()
    Accuracy(images)(model)
    assert [module.training for module in model.modules()] == [True, True, False, True]


def test_a_damaged_checkpoint_is_refused(tmp_path):
    make(run_directory=tmp_path).run()
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    model = network()
    with pytest.raises(CorruptState, match="damaged"):
        Trainer.resume(tmp_path, model, cross_entropy, clients(), torch.optim.Adam(model.parameters()))


@pytest.mark.parametrize("secure", ["simulated", "protocol"])
def test_a_broken_vector_counts_as_zero_and_does_not_show(secure):
    inputs, targets = records()
    inputs = inputs.clone()
    inputs[7] = math.nan
    sick = Clients(inputs, targets)
    everyone = small_plan(expected=POPULATION, sampling="none", rounds=2, bits=16)
    trainer = make(everyone, people=sick, secure=secure, diagnostics=True)
    result = trainer.run()
    assert all(record["opened"] and record["diagnostics"]["broken"] == 1 for record in result.history)
    assert weights(trainer.model).isfinite().all()
    hidden = make(everyone, people=sick, secure=secure).run()
    assert all(record.keys() == {"round", "opened"} for record in hidden.history)


@pytest.mark.parametrize("broken", [math.nan, math.inf, 0.0])
def test_a_broken_vector_changes_no_other(broken):
    inputs, targets = records()
    inputs = inputs.clone()
    inputs[:10] = 1e25  # finite and huge: clipped as ever
    fine = small_plan(expected=POPULATION, sampling="none", rounds=1, bits=16)
    grid = dataclasses.replace(fine.mechanism, scale=2.0**16, bits=32)  # too fine to see
    quiet = dataclasses.replace(fine, mechanism=grid.without_noise())
    sums = []
    for healthy in (False, True):
        inputs[11] = 0.0 if healthy else broken
        model = network()
        with torch.no_grad():  # no dead units: huge inputs give huge gradients, zero inputs small ones
            for parameter in model.parameters():
                parameter.fill_(0.01)
        steps = Steps(model)
        Trainer(model, cross_entropy, Clients(inputs, targets), quiet, steps).run()
        sums.append(steps.seen[0] * POPULATION)
    assert np.linalg.norm(sums[0]) > 5  # the huge ones are there
    assert np.linalg.norm(sums[0] - sums[1]) < 1.01  # one vector, no longer than the clip norm


def test_a_seeded_run_with_a_broken_vector_repeats():
    inputs, targets = records()
    inputs = inputs.clone()
    inputs[5] = math.nan
    ended = []
    for _ in range(3):
        trainer = make(people=Clients(inputs, targets), entropy=ReproducibleEntropy(2))
        trainer.run()
        ended.append(weights(trainer.model))
    assert torch.equal(ended[0], ended[1])
    assert torch.equal(ended[0], ended[2])


def test_a_model_that_diverged_is_said_to_have():
    trainer = make()
    with torch.no_grad():
        next(trainer.model.parameters()).fill_(math.nan)
    with pytest.raises(InvalidInput, match="diverged"):
        trainer.run()
