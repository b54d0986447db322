"""A record's gradient is a function of that record and the model, bit for bit."""

import random
import tracemalloc

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from skelmix.datasets.partition import Partition, one_record_each
from skelmix.errors import InvalidInput
from skelmix.federated import records as module
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import dimension, trainable
from skelmix.federated.records import RecordGradients

RECORDS = 37
PERSONS = Partition(np.random.default_rng(3).permutation(RECORDS), np.array([0, 1, 6, 9, 10, 25, RECORDS]))
ACTIVATIONS = [
    nn.Identity(),
    nn.ReLU(),
    nn.LeakyReLU(0.2),
    nn.Tanh(),
    nn.Sigmoid(),
    nn.SiLU(),
    nn.ELU(0.7),
    nn.Softplus(2.0, 1.0),
    nn.GELU(),
    nn.GELU("tanh"),
]


def mlp(activation=None):
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 7), activation or nn.ReLU(), nn.Linear(7, 3))


def deep():
    return nn.Sequential(
        nn.Tanh(), nn.Linear(12, 9, bias=False), nn.GELU(), nn.Linear(9, 19), nn.SiLU(), nn.Linear(19, 3)
    )


def cnn():
    return nn.Sequential(
        nn.Unflatten(1, (1, 3, 4)),
        nn.Conv2d(1, 4, 2),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24, 3),
    )


def data():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(RECORDS, 12, generator=generator)
    return inputs, torch.randint(0, 3, (RECORDS,), generator=generator)


def collected(gradients, silo, units):
    blocks = [block.copy() for block in gradients.blocks(silo, np.asarray(units, np.int64))]
    return np.concatenate(blocks) if blocks else np.empty((0, gradients.dimension), np.float32)


def loop(model, loss, silo, units):
    rows = []
    for unit in units:
        model.zero_grad()
        for record in silo.partition.records_of(unit):
            loss(model(silo.inputs[record : record + 1]), silo.targets[record : record + 1]).mean().backward()
        rows.append(torch.cat([p.grad.flatten() for p in trainable(model).values()]))
    return torch.stack(rows).numpy()


def built(build):
    torch.manual_seed(0)
    return build()


@pytest.mark.parametrize("build", [mlp, deep, cnn])
@pytest.mark.parametrize("partition", [one_record_each(RECORDS), PERSONS], ids=["records", "persons"])
@pytest.mark.parametrize(
    "loss", [cross_entropy, nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)]
)
def test_vectors_are_the_sums_of_the_records_gradients(build, partition, loss, monkeypatch):
    model = built(build)
    monkeypatch.setattr(module, "BLOCK_FLOATS", 4 * dimension(model))  # several blocks
    monkeypatch.setattr(module, "_PASS_RECORDS", 12)
    silo = Clients(*data(), partition)
    units = np.arange(len(silo))[::-1]
    got = collected(RecordGradients(model, loss), silo, units)
    np.testing.assert_allclose(got, loop(model, loss, silo, units), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_every_activation_has_its_derivative(activation):
    model = built(lambda: mlp(activation))
    silo = Clients(*data())
    gradients = RecordGradients(model, cross_entropy)
    assert gradients._stack is not None
    units = np.arange(RECORDS)
    got, expected = collected(gradients, silo, units), loop(model, cross_entropy, silo, units)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("build", [mlp, deep, cnn])
@pytest.mark.parametrize("loss", [cross_entropy, lambda outputs, targets: cross_entropy(outputs, targets)])
@pytest.mark.parametrize("partition", [one_record_each(RECORDS), PERSONS], ids=["records", "persons"])
def test_no_bit_of_a_vector_depends_on_the_others(build, loss, partition, monkeypatch):
    """Alone, in any company, at any place, in blocks of any size, beside broken records."""
    model = built(build)
    inputs, targets = data()
    silo = Clients(inputs, targets, partition)
    alone = [collected(RecordGradients(model, loss), silo, [unit])[0].tobytes() for unit in range(len(silo))]
    random = np.random.default_rng(0)
    for rows in (1, 2, 3, 8, 64):
        monkeypatch.setattr(module, "BLOCK_FLOATS", rows * dimension(model))
        gradients = RecordGradients(model, loss)
        units = random.permutation(len(silo))[: random.integers(1, len(silo) + 1)]
        for unit, row in zip(units, collected(gradients, silo, units), strict=True):
            assert row.tobytes() == alone[unit]
    broken = inputs.clone()
    broken[partition.records_of(1)] = torch.nan
    mixed = collected(gradients, Clients(broken, targets, partition), np.arange(len(silo)))
    same = [row.tobytes() == one for row, one in zip(mixed, alone, strict=True)]
    assert same == [unit != 1 for unit in range(len(silo))]


def test_the_order_of_a_persons_neighbours_does_not_matter():
    """The same person in another silo, with other records before hers."""
    inputs, targets = data()
    gradients = RecordGradients(built(mlp), cross_entropy)
    whole = Clients(inputs, targets, PERSONS)
    hers = torch.from_numpy(PERSONS.records_of(4))
    own = Clients(inputs[hers], targets[hers], Partition(np.arange(15), np.array([0, 15])))
    assert collected(gradients, whole, [4]).tobytes() == collected(gradients, own, [0]).tobytes()


@pytest.mark.parametrize("build", [mlp, cnn])
@pytest.mark.parametrize("loss", [cross_entropy, lambda outputs, targets: cross_entropy(outputs, targets)])
def test_nothing_in_the_data_raises(build, loss):
    inputs, targets = data()
    clean = collected(RecordGradients(built(build), loss), Clients(inputs, targets), np.arange(RECORDS))
    inputs[2], inputs[5, 3], targets[7], targets[8] = torch.nan, torch.inf, 3, -1
    got = collected(RecordGradients(built(build), loss), Clients(inputs, targets), np.arange(RECORDS))
    broken = ~np.isfinite(got).all(axis=1)
    assert np.flatnonzero(broken).tolist() == [2, 5, 7, 8]
    assert got[~broken].tobytes() == clean[~broken].tobytes()


def test_no_records_give_no_block():
    gradients = RecordGradients(built(mlp), cross_entropy)
    assert list(gradients.blocks(Clients(*data()), np.array([], np.int64))) == []


def test_vectors_follow_the_weights():
    model = built(mlp)
    gradients, silo = RecordGradients(model, cross_entropy), Clients(*data())
    before = collected(gradients, silo, [0])
    with torch.no_grad():
        model[1].weight += 0.1
    after = collected(gradients, silo, [0])
    assert not np.array_equal(before, after)
    np.testing.assert_allclose(after, loop(model, cross_entropy, silo, [0]), rtol=2e-5, atol=1e-6)


def test_other_losses_and_inputs_take_the_general_road():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    inputs, _ = data()
    silo = Clients(inputs.reshape(RECORDS, 3, 4), torch.zeros(RECORDS, 3, 3))
    got = collected(RecordGradients(model, mse_loss), silo, [0, 5])
    np.testing.assert_allclose(got, loop(model, mse_loss, silo, [0, 5]), rtol=2e-5, atol=1e-6)


class Counting(nn.Module):
    """A layer that counts its calls."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.linear(x)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(12, 3), nn.Dropout()), "random numbers"),
        (Counting(), "buffers"),
        (nn.Sequential(nn.Linear(12, 3), nn.BatchNorm1d(3)), "GroupNorm"),
        (nn.Linear(11, 3), "shape"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_any_record_is_seen(model, message):
    with pytest.raises((InvalidInput, RuntimeError), match=message):
        collected(RecordGradients(model, cross_entropy), Clients(*data()), [0])


def test_dropout_that_is_switched_off_is_welcome():
    model = nn.Sequential(nn.Linear(12, 3), nn.Dropout().eval())
    assert collected(RecordGradients(model, cross_entropy), Clients(*data()), [0]).shape == (1, 39)


class Counting(nn.Module):
    """Keeps a number of its own, which no buffer shows."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(2, 2), 0

    def forward(self, inputs):
        self.calls += 1
        return self.layer(inputs) * self.calls


class Looking(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(3, 2), nn.Linear(2, 2)

    def forward(self, inputs):
        return self.layer(nn.functional.embedding(inputs[:, 0], self.table.weight, max_norm=0.1))


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (Looking(), torch.zeros(3, 1, dtype=torch.long), "buffers or weights"),
        (Counting(), torch.zeros(3, 2), "state of its own"),
    ],
    ids=["weights", "python"],
)
def test_a_model_that_remembers_records_is_refused(model, inputs, message):
    silo = Clients(inputs, torch.zeros(3, dtype=torch.long))
    with pytest.raises(InvalidInput, match=message):
        list(RecordGradients(model, cross_entropy).blocks(silo, np.arange(3)))


def test_layers_that_were_set_to_train_between_rounds_are_refused():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))
    model[1].eval()
    silo = Clients(torch.randn(3, 1, 2, 2), torch.zeros(3, dtype=torch.long))
    gradients = RecordGradients(model, cross_entropy)
    assert sum(len(block) for block in gradients.blocks(silo, np.arange(3))) == 3
    model.train()
    with pytest.raises(InvalidInput):
        list(gradients.blocks(silo, np.arange(3)))


class Panic(BaseException):
    """What readers and tokenizers written in Rust raise: no `Exception`."""


@pytest.mark.parametrize("error", [AssertionError, KeyError, TypeError, SystemExit, Panic])
@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Softsign())])
def test_a_record_that_fails_in_any_way_stops_no_other(model, error):
    def loss(outputs, targets):
        if int(targets[0]) == 1:
            raise error("a rare record")
        return cross_entropy(outputs, targets)

    silo = Clients(torch.randn(3, 2), torch.tensor([0, 1, 0]))
    (block,) = [block.copy() for block in RecordGradients(model, loss).blocks(silo, np.arange(3))]
    assert np.isfinite(block[[0, 2]]).all()
    assert np.isnan(block[1]).any()


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Softsign())])
def test_the_operator_can_stop_a_silo(model):
    def loss(outputs, targets):
        if int(targets[0]) == 1:
            raise KeyboardInterrupt
        return cross_entropy(outputs, targets)

    silo = Clients(torch.randn(3, 2), torch.tensor([0, 1, 0]))
    with pytest.raises(KeyboardInterrupt):
        list(RecordGradients(model, loss).blocks(silo, np.arange(3)))


MANY = Partition(np.arange(RECORDS), np.array([0, 2, 31, RECORDS]))  # the one in the middle has 29


@pytest.mark.parametrize("build", [mlp, deep, cnn])
def test_a_person_with_many_records_is_added_up_in_pieces_bit_by_bit_as_in_one(build, monkeypatch):
    silo = Clients(*data(), MANY)
    gradients = RecordGradients(built(build), cross_entropy)
    whole = collected(gradients, silo, [0, 1, 2])
    for most in (1, 2, 5, 28, 29, 30):
        monkeypatch.setattr(module, "_PASS_RECORDS", most)
        assert collected(gradients, silo, [0, 1, 2]).tobytes() == whole.tobytes()
        assert collected(gradients, silo, [1]).tobytes() == whole[1:2].tobytes()
        assert collected(gradients, silo, [2, 1]).tobytes() == whole[[2, 1]].tobytes()
    monkeypatch.setattr(module, "_PASS_FLOATS", 1)
    assert collected(gradients, silo, [0, 1, 2]).tobytes() == whole.tobytes()


def test_the_memory_of_a_person_with_many_records_is_that_of_one_piece(monkeypatch):
    monkeypatch.setattr(module, "_PASS_RECORDS", 256)
    count = 50_000
    one_person = Partition(np.arange(count), np.array([0, count]))
    silo = Clients(torch.randn(count, 12), torch.zeros(count, dtype=torch.int64), one_person)
    gradients = RecordGradients(built(mlp), cross_entropy)
    collected(gradients, silo, [0])  # kernels are compiled
    tracemalloc.start()
    try:
        assert np.isfinite(collected(gradients, silo, [0])).all()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000, "one piece is 12 kB, all inputs are 2.4 MB"


def noisy_loss(outputs, targets):
    """Draws only for records of class 1, so no trial on made-up records sees it."""
    shake = torch.rand_like(outputs) if int(targets[0]) == 1 else torch.ones_like(outputs)
    return cross_entropy(outputs * shake, targets)


@pytest.mark.parametrize("build", [mlp, cnn])
def test_what_a_loss_draws_for_one_record_does_not_depend_on_the_others(build):
    silo = Clients(*data())
    assert (silo.targets == 1).sum() > 3
    gradients = RecordGradients(built(build), noisy_loss)
    together = collected(gradients, silo, np.arange(RECORDS))
    before = torch.get_rng_state()
    alone = [collected(gradients, silo, [record]) for record in range(RECORDS)]
    assert np.concatenate(alone).tobytes() == together.tobytes()
    assert torch.equal(before, torch.get_rng_state()), "the application's own draws go on as before"


@pytest.mark.parametrize("draw", [np.random.rand, random.random], ids=["numpy", "python"])
def test_a_model_that_draws_elsewhere_is_refused_too(draw):
    with pytest.raises(InvalidInput, match="random numbers"):
        collected(
            RecordGradients(built(cnn), lambda o, t: cross_entropy(o, t) + 0 * draw()), Clients(*data()), [0]
        )
