"""Training over silos: every record drawn, clipped and added by itself, whatever the silos look like."""

import dataclasses
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import skelmix as sk
from helpers.federation import DIMENSION, POPULATION, accuracy, clients, network, records, small_plan
from helpers.noiseless import noiseless
from skelmix.datasets.partition import Partition, equal_shares, label_skew
from skelmix.errors import InvalidInput
from skelmix.federated.gradients import LocalSteps
from skelmix.federated.records import RecordGradients
from skelmix.federated.silo_clients import SiloClients, silo_sums
from skelmix.federated.trainer import Trainer
from skelmix.noise.entropy import ReproducibleEntropy
from skelmix.rounds.aggregation import Seconds

UNEQUAL = Partition(np.arange(POPULATION), np.array([0, 10, 150, 160, POPULATION]))


@lru_cache(maxsize=8)
def silo_plan(count=4, *, rounds=6, records=POPULATION, batch=40, epsilon=20.0, bits=12, **more):
    return sk.plan(
        sk.PrivacyTarget(epsilon, 1e-5),
        dimension=DIMENSION,
        bits=bits,
        rounds=rounds,
        scale=64.0,
        bound="rdp",
        cohort=sk.Silos(count, records, batch, **more),
    )


def silos(partition=UNEQUAL, owners=None):
    return SiloClients.split(*records(), partition, owners)


def make(plan=None, held=None, *, model=None, lr=0.02, **options):
    model = network() if model is None else model
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    return Trainer(model, cross_entropy, held or silos(), plan or silo_plan(), optimizer, **options)


def without_noise(plan, bits=32, scale=2.0**14):
    fine = dataclasses.replace(plan.mechanism, scale=scale, bits=bits)
    return dataclasses.replace(plan, mechanism=noiseless(fine))


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def clipped_mean(model, held, plan):
    """What an optimiser should be given when every record is drawn."""
    total = np.zeros(DIMENSION)
    for silo in held.silos:
        for block in RecordGradients(model, cross_entropy).blocks(silo, np.arange(len(silo))):
            norms = np.linalg.norm(block.astype(np.float64), axis=1)
            total += (block * np.minimum(1, 1 / norms)[:, None]).sum(0)
    return total / plan.cohort.divisor


class Shaken(torch.utils.data.Dataset):
    """Adds fresh noise to each record that is read, as a random crop does."""

    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, place):
        number, target = self.pairs[place]
        return number + torch.rand(2) + np.random.rand(), target


def test_a_silo_may_be_a_data_set_and_no_record_changes_another():
    pairs = [(number, number % 2) for number in range(5)]
    held, fewer = (SiloClients.of([Shaken(some), pairs[:2]]) for some in (pairs, pairs[1:]))
    assert [len(silo) for silo in held.silos] == [5, 2]
    assert (held.silos[0].inputs[1:] == fewer.silos[0].inputs).all()
    assert held.silos[1].targets.tolist() == [0, 1]


def test_two_mappings_are_two_records():
    (silo,) = SiloClients.of([[{"x": [0.0, 1.0], "y": 1}, {"x": [2.0, 3.0], "y": 0}]]).silos
    assert silo.inputs.tolist() == [[0, 1], [2, 3]]
    assert silo.targets.tolist() == [1, 0]


def test_the_records_of_a_data_set_have_owners():
    held = SiloClients.of([Shaken([(0, 0), (1, 1), (2, 0)])], [np.array(["ann", "bob", "ann"])])
    assert (held.unit, held.members) == ("owner", 2)


@pytest.mark.parametrize("data", [5, torch.zeros(3, 2)])
def test_a_silo_without_targets_is_refused(data):
    with pytest.raises(InvalidInput, match="without targets"):
        SiloClients.of([data])


@pytest.mark.parametrize("secure", ["simulated", "protocol"])
@pytest.mark.parametrize("owned", [False, True])
def test_without_noise_the_optimiser_sees_the_mean_of_clipped_units(secure, owned):
    owners = np.arange(POPULATION) // 2 if owned else None
    held = silos(owners=owners)
    unit = "owner" if owned else "record"
    plan = without_noise(silo_plan(records=held.members, batch=held.members, unit=unit))  # rate 1
    model = network()
    expected = clipped_mean(model, held, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    Trainer(model, cross_entropy, held, plan, optimizer, secure=secure).step()
    seen = torch.cat([p.grad.flatten() for p in model.parameters()]).numpy()
    assert np.abs(seen).max() > 1e-3
    np.testing.assert_allclose(seen, expected, atol=2e-6)


def test_an_owner_counts_once_however_many_records_it_has():
    assert silos(owners=np.arange(POPULATION) // 2).members == POPULATION // 2
    assert silos().members == POPULATION


@pytest.mark.parametrize(
    "partition", [UNEQUAL, equal_shares(POPULATION, 100), label_skew(records()[1].numpy(), 4, 0.5)]
)
def test_training_learns_whatever_the_silos_hold(partition):
    plan = silo_plan(rounds=150, epsilon=200.0)
    result = make(plan, silos(partition), evaluate=accuracy, evaluate_every=150).run()
    assert result.accuracy > 0.5  # ten classes
    assert result.rounds == 150
    assert result.private
    assert result.report.epsilon_aggregator == result.report.epsilon <= 200
    assert result.report.unit == "record"


def test_measured_error_is_the_predicted_one():
    plan = silo_plan(rounds=20)
    result = make(plan, evaluate_every=1, diagnostics=True).run()
    measured = np.mean([record.diagnostics.mse for record in result.history])
    assert measured == pytest.approx(plan.predicted.mse, rel=0.05)


def test_records_are_drawn_at_the_plans_rate_in_silos_of_any_size():
    mechanism, gradients = without_noise(silo_plan()).mechanism, RecordGradients(network(), cross_entropy)
    drawn = np.zeros(4)
    for round in range(50):
        sums = silo_sums(
            silos(), np.arange(4), gradients, mechanism, Fraction(1, 10), round=round,
            entropy=ReproducibleEntropy(round), seconds=Seconds(),
        )  # fmt: skip
        drawn += [silo.records for silo in sums]
    expected = 50 * 0.1 * UNEQUAL.sizes
    assert (np.abs(drawn - expected) < 6 * np.sqrt(expected)).all()  # fixed seeds: no chance of failing


def test_silos_may_drop_out_as_far_as_the_plan_allows():
    plan = silo_plan(dropout_tolerance=0.5, rounds=12)
    result = make(plan, dropout_rate=0.4, diagnostics=True, entropy=ReproducibleEntropy(3)).run()
    survivors = [record.diagnostics.survivors for record in result.history]
    assert [record.opened for record in result.history] == [left >= 2 for left in survivors]
    assert 0 < result.failed_rounds < 12


def test_a_resumed_run_ends_as_an_uninterrupted_one(tmp_path):
    whole = make(entropy=ReproducibleEntropy(1))
    whole.run()
    first = make(run_directory=tmp_path, entropy=ReproducibleEntropy(1))
    for _ in range(3):
        first.step()
    first.save()
    first.close()
    model = network(seed=9)
    again = Trainer.resume(
        tmp_path, model, cross_entropy, silos(), torch.optim.Adam(model.parameters(), lr=0.02),
        entropy=ReproducibleEntropy(1),
    )  # fmt: skip
    assert again.run().rounds == 6
    assert torch.equal(weights(again), weights(whole))


def test_neighbouring_silos_differ_by_the_clipped_record_and_nothing_else():
    """Exact sums with and without one record: other silos' are equal, this one's differ by that record."""
    inputs, targets = records()
    mechanism, gradients = silo_plan().mechanism, RecordGradients(network(), cross_entropy)

    def sums(kept):
        held = SiloClients.of([(inputs[:200][kept], targets[:200][kept]), (inputs[200:], targets[200:])])
        return [
            silo._total()
            for silo in silo_sums(
                held, np.arange(2), gradients, mechanism, 1, round=3,
                entropy=ReproducibleEntropy(0), seconds=Seconds(),
            )
        ]  # fmt: skip

    everyone = np.arange(200)
    full = sums(everyone)
    for removed in (0, 77, 199):
        less = sums(np.delete(everyone, removed))
        alone = mechanism.silo_sum(round=3)
        silo = SiloClients.of([(inputs[removed : removed + 1], targets[removed : removed + 1])]).silos[0]
        alone.add(gradients.blocks(silo, np.array([0])))
        assert (full[1] == less[1]).all()
        difference = full[0] - less[0]
        assert (difference == alone._total()).all()
        squares = sum(int(x) ** 2 for x in difference)
        assert 0 < squares <= (mechanism.radius * 2**mechanism.fixed_point.fraction_bits) ** 2


@pytest.mark.parametrize(
    ("plan", "held", "options", "message"),
    [
        (silo_plan, clients, {}, "SiloClients with Silos"),
        (small_plan, silos, {}, "Clients with a Cohort"),
        (lambda: silo_plan(count=5), silos, {}, "4 silos"),
        (silo_plan, silos, {"local": LocalSteps(2, 0.1)}, "local steps"),
        (silo_plan, lambda: silos(owners=np.arange(POPULATION) // 2), {}, "unit"),
        (lambda: silo_plan(unit="owner"), silos, {}, "unit"),
        (lambda: silo_plan(records=300), silos, {}, None),  # a rough number is fine: only the rate counts
    ],
)
def test_plans_that_do_not_fit_the_silos_are_refused(plan, held, options, message):
    if message is None:
        assert make(plan(), held()).step().opened
        return
    with pytest.raises(InvalidInput, match=message):
        make(plan(), held(), **options)


def test_records_without_an_owner_are_refused():
    owners = np.arange(POPULATION) / 1.0
    owners[3] = np.nan
    with pytest.raises(InvalidInput, match=f"1 of {POPULATION} records have none"):
        silos(owners=owners)
    with pytest.raises(InvalidInput, match="1 of 2 records have none"):
        SiloClients.of([(torch.zeros(2, 4), torch.zeros(2))], [["a", None]])


def test_an_owner_is_one_whatever_the_type_of_its_number():
    four = torch.zeros(4, 4), torch.zeros(4)
    for owners in ([1, 1.0, "1", 2], np.array([1, 1.0, "1", 2], object)):
        assert SiloClients.of([four], [owners]).members == 2
        whole = Partition(np.arange(4), np.array([0, 4]))
        assert SiloClients.split(*four, whole, owners).members == 2
        apart = Partition(np.arange(4), np.array([0, 1, 4]))
        with pytest.raises(InvalidInput, match="1 of 2 have records in several silos"):
            SiloClients.split(*four, apart, owners)


def test_an_owner_in_two_silos_is_refused():
    inputs, targets = records()
    half = POPULATION // 2
    two = Partition(np.arange(POPULATION), np.array([0, half, POPULATION]))
    owners = np.arange(POPULATION) // 3
    owners[half:] += 1000
    assert len(SiloClients.split(inputs, targets, two, owners)) == 2
    owners[-1] = owners[0]
    with pytest.raises(InvalidInput, match=r"1 of \d+ have records in several silos"):
        SiloClients.split(inputs, targets, two, owners)
