"""The training loop: what reaches the optimiser, what is charged, what is refused."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import skelmix as sk
from helpers.federation import DIMENSION, POPULATION, accuracy, clients, network, records, small_plan
from helpers.noiseless import noiseless
from helpers.trainers import make, weights
from skelmix.datasets.catalogue import Images
from skelmix.encoding.rotation import rotate, unrotate
from skelmix.encoding.subset import choose
from skelmix.errors import BudgetExhausted, InvalidInput, RoundFailed
from skelmix.federated import trainer as module
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import Gradients
from skelmix.federated.recipes import Accuracy
from skelmix.federated.trainer import Trainer
from skelmix.noise.entropy import ReproducibleEntropy


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
    plan = dataclasses.replace(plan, mechanism=noiseless(fine))
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
    mechanism = noiseless(plan.mechanism)
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
    assert [r.round for r in result.history if r.accuracy is not None] == [50, 100, 150, 200]


def test_the_central_gaussian_gives_the_same_weights_from_written_vectors(monkeypatch):
    def trained():
        trainer = make(small_plan("gaussian", rounds=5), entropy=ReproducibleEntropy(1), diagnostics=True)
        history = trainer.run().history
        return weights(trainer.model), [record.diagnostics for record in history]

    fast, notes = trained()
    monkeypatch.setattr(Gradients, "clipped_sum", lambda *_: None)
    slow, expected = trained()
    np.testing.assert_allclose(fast, slow, rtol=1e-4, atol=1e-5)
    for mine, other in zip(notes, expected, strict=True):
        assert mine.clipped_fraction == other.clipped_fraction
        assert mine.rms_norm == pytest.approx(other.rms_norm, rel=1e-4)
    errors = [[note.mse for note in some if note.mse is not None] for some in (notes, expected)]
    assert len(errors[0]) > 0
    np.testing.assert_allclose(*errors, rtol=1e-3)


def test_measured_error_is_the_predicted_one():
    plan = small_plan("skellam", rounds=30)
    result = make(plan, evaluate_every=1, diagnostics=True).run()
    measured = np.mean([record.diagnostics.mse for record in result.history])
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


def test_rounds_with_too_few_survivors_change_nothing_are_charged_and_told(caplog):
    with pytest.raises(InvalidInput, match=r"dropout_rate = 0\.5: all rounds would fail"):
        make(dropout_rate=0.5)  # the plan tolerates none
    trainer = make(dropout_rate=0.5, allow_failing_rounds=True)
    before = weights(trainer.model)
    with pytest.raises(RoundFailed, match="none of 12 rounds gave a sum"):
        trainer.run()
    assert torch.equal(before, weights(trainer.model))
    assert trainer.ledger.charged == 12
    assert not any(record.opened or record.lost for record in trainer.history)
    assert caplog.text.count("gave no sum, too few survived") == 12
    assert "all rounds would fail at a dropout rate of 0.5" in caplog.text


@pytest.mark.parametrize("secure", ["simulated", "protocol"])
def test_tolerated_dropouts_leave_the_noise_that_was_accounted_for(secure):
    plan = small_plan(rounds=4, dropout_tolerance=0.6)
    result = make(plan, dropout_rate=0.3, secure=secure, evaluate_every=1, diagnostics=True).run()
    opened = [record for record in result.history if record.opened]
    assert opened
    for record in opened:  # 1,666 coordinates: a relative deviation of 3.5 % per round
        assert record.diagnostics.mse == pytest.approx(plan.predicted.mse, rel=0.2)


def test_more_dropouts_than_the_law_that_epsilon_is_proved_under_are_refused():
    plan = small_plan(rounds=4, dropout_tolerance=0.6, dropout_rate=0.2)
    with pytest.raises(InvalidInput, match=r"0\.2 at most; plan with Cohort\(dropout_rate=0\.3\)"):
        make(plan, dropout_rate=0.3, allow_failing_rounds=True)
    assert make(plan, dropout_rate=0.2).dropout_rate == 0.2


def test_an_empty_cohort_is_a_charged_round_without_a_step(monkeypatch):
    monkeypatch.setattr(module, "draw_cohort", lambda *_: np.arange(0))
    trainer = make(small_plan(rounds=2))
    before = weights(trainer.model)
    assert trainer.run_unchecked().failed_rounds == 2
    assert torch.equal(before, weights(trainer.model))
    with pytest.raises(RoundFailed, match="none of 2 rounds gave a sum"):
        trainer.run()


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
        callbacks=[lambda trainer, record: seen.append((record.round, scheduler.get_last_lr()[0]))],
    ).run()
    assert seen == [(1, 0.5), (2, 0.25), (3, 0.125)]


def test_measure_false_keeps_nothing_about_the_data():
    history = make(evaluate=accuracy, evaluate_every=1).run().history
    assert set().union(*(record.to_dict() for record in history)) == {"round", "opened", "accuracy"}


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


@pytest.mark.parametrize("secure", ["simulated", "protocol"])
def test_a_broken_vector_counts_as_zero_and_does_not_show(secure):
    inputs, targets = records()
    inputs = inputs.clone()
    inputs[7] = math.nan
    sick = Clients(inputs, targets)
    everyone = small_plan(expected=POPULATION, sampling="none", rounds=2, bits=16)
    trainer = make(everyone, people=sick, secure=secure, diagnostics=True)
    result = trainer.run()
    assert all(record.opened and record.diagnostics.broken == 1 for record in result.history)
    assert weights(trainer.model).isfinite().all()
    hidden = make(everyone, people=sick, secure=secure).run()
    assert all(record.to_dict().keys() == {"round", "opened"} for record in hidden.history)


@pytest.mark.parametrize("broken", [math.nan, math.inf, 0.0])
def test_a_broken_vector_changes_no_other(broken):
    inputs, targets = records()
    inputs = inputs.clone()
    inputs[:10] = 1e25  # finite and huge: clipped as ever
    fine = small_plan(expected=POPULATION, sampling="none", rounds=1, bits=16)
    grid = dataclasses.replace(fine.mechanism, scale=2.0**16, bits=32)  # too fine to see
    quiet = dataclasses.replace(fine, mechanism=noiseless(grid))
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
