"""Training with coins and caps: what reaches the sum, what is counted, what a crash cannot undo."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from helpers.federation import POPULATION, clients, network, small_plan
from helpers.noiseless import noiseless
from skelmix.errors import CorruptState
from skelmix.federated import round_sums
from skelmix.federated import trainer as module
from skelmix.federated.trainer import Trainer
from skelmix.noise.entropy import ReproducibleEntropy
from skelmix.rounds.coin_and_cap import SimulatedChoices


class Steps(torch.optim.Optimizer):
    """Keeps what it was given instead of stepping."""

    def __init__(self, model):
        super().__init__(model.parameters(), {})
        self.seen = []

    def step(self):
        self.seen.append(
            torch.cat([p.grad.flatten() for g in self.param_groups for p in g["params"]]).numpy()
        )


def everyone(**options):
    return small_plan(expected=POPULATION, sampling="none", rounds=4, bits=16, **options)


def quiet(plan):
    """The plan without noise and on a grid too fine to see."""
    fine = dataclasses.replace(plan.mechanism, scale=2.0**16, bits=32)
    return dataclasses.replace(plan, mechanism=noiseless(fine))


def make(plan, optimizer=Steps, people=None, **options):
    model = network()
    return Trainer(model, cross_entropy, people or clients(), plan, optimizer(model), **options)


def resumed(directory, **options):
    model = network()
    return Trainer.resume(directory, model, cross_entropy, clients(), Steps(model), **options)


@pytest.fixture
def senders(monkeypatch):
    """Those who sent their vector, round by round."""
    seen = []
    of = SimulatedChoices.of
    monkeypatch.setattr(SimulatedChoices, "of", lambda *a: seen.append(of(*a)) or seen[-1])
    return seen


@pytest.mark.parametrize("secure", ["simulated", "protocol"])
def test_the_optimiser_sees_the_senders_sum_over_expected_contributions(secure, senders):
    plan = quiet(everyone(contribute=0.25))
    trainer = make(plan, secure=secure, entropy=ReproducibleEntropy(4))
    trainer.step()
    vectors = np.concatenate([b.copy() for b in trainer.gradients.blocks(clients(), senders[0])])
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    expected = (vectors * np.minimum(1, 1 / norms)[:, None]).sum(0) / (POPULATION * 0.25)
    assert 0 < len(senders[0]) < POPULATION
    assert len(senders[0]) != POPULATION * 0.25
    np.testing.assert_allclose(trainer.optimizer.seen[0], expected, atol=2e-5)


@pytest.mark.parametrize("secure", ["simulated", "protocol"])
def test_a_round_in_which_nobody_contributes_opens_with_all_of_its_noise(secure):
    plan = everyone(max_participations=1)
    trainer = make(plan, secure=secure)
    first = trainer.step()
    empty = trainer.step()
    assert first.opened
    assert empty.opened
    assert first.to_dict().keys() == empty.to_dict().keys()
    noise = plan.mechanism.noise_variance(POPULATION) / plan.mechanism.scale**2 / plan.cohort.divisor**2
    seen = np.var(trainer.optimizer.seen[1])
    assert 0.8 * noise < seen < 1.25 * noise  # 1,666 coordinates: a relative deviation of 3.5 %


def test_the_cap_holds_over_crash_and_resume(tmp_path, senders, monkeypatch):
    plan = everyone(max_participations=2)
    trainer = make(plan, run_directory=tmp_path)
    trainer.step()
    noisy_sum = round_sums.noisy_sum
    monkeypatch.setattr(round_sums, "noisy_sum", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):  # an upload that nobody opened counts
        trainer.step()
    assert (np.load(tmp_path / "participations.npy") == 2).all(), "on disk before anything was encoded"
    trainer.close()
    monkeypatch.setattr(round_sums, "noisy_sum", noisy_sum)
    again = resumed(tmp_path)
    result = again.run()
    assert [len(sent) for sent in senders] == [POPULATION, POPULATION, 0, 0]
    assert result.rounds == 4
    assert (np.load(tmp_path / "participations.npy") == 4).all()


def test_only_those_in_a_round_use_up_their_cap(tmp_path, senders, monkeypatch):
    cohorts = [np.arange(0, 200), np.arange(100, 300), np.arange(0, 400), np.arange(0, 400)]
    monkeypatch.setattr(module, "draw_cohort", lambda *_: cohorts[len(senders)])
    make(everyone(max_participations=1, dropout_tolerance=0.9), run_directory=tmp_path).run()
    assert [(sent.min(), sent.max()) if len(sent) else None for sent in senders] == [
        (0, 199),
        (200, 299),
        (300, 399),
        None,
    ]


def test_a_run_with_a_cap_is_not_resumed_without_its_counts(tmp_path):
    trainer = make(everyone(max_participations=2), run_directory=tmp_path)
    trainer.step()
    trainer.save()
    trainer.close()
    counts = tmp_path / "participations.npy"
    kept = counts.read_bytes()
    counts.unlink()
    with pytest.raises(CorruptState, match=r"participations.npy cannot be read"):
        resumed(tmp_path)
    counts.write_bytes(kept)
    resumed(tmp_path).close()  # and the refusal has released the directory


def test_records_say_nothing_about_coins():
    history = make(everyone(contribute=0.5, max_participations=2)).run().history
    assert set().union(*(record.to_dict() for record in history)) == {"round", "opened"}


def test_a_seed_repeats_the_coins(senders):
    for _ in range(2):
        make(everyone(contribute=0.5), entropy=ReproducibleEntropy(8)).run()
    assert [sent.tolist() for sent in senders[:4]] == [sent.tolist() for sent in senders[4:]]
    assert senders[0].tolist() != senders[1].tolist()
