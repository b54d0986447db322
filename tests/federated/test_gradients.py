"""Per-participant vectors equal those of a plain loop over the participants."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from skelmix.datasets.partition import by_id, equal_shares
from skelmix.errors import InvalidInput
from skelmix.federated import gradients as module
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import Gradients, LocalSteps, dimension, set_gradients, trainable

MLP = lambda: nn.Sequential(nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 3))  # noqa: E731
DEEP = lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 5, bias=False), nn.Tanh(), nn.Linear(5, 3))  # noqa: E731
OVERWRITING = lambda: nn.Sequential(nn.Linear(12, 7), nn.ReLU(inplace=True), nn.Linear(7, 3))  # noqa: E731


def hooked(place):
    """A stack whose outputs, of the whole or of a layer, are tripled on the way."""

    def build():
        model = MLP()
        (model if place is None else model[place]).register_forward_hook(lambda _, __, out: 3 * out)
        return model

    return build


CNN = lambda: nn.Sequential(  # noqa: E731
    nn.Unflatten(1, (1, 3, 4)),
    nn.Conv2d(1, 4, 2),
    nn.GroupNorm(2, 4),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(24, 3),
)


def data(records=23):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(records, 12, generator=generator), torch.randint(0, 3, (records,), generator=generator)


def loop(model, loss, clients, participants):
    rows = []
    for participant in participants:
        held = torch.from_numpy(clients.partition.records_of(participant))
        model.zero_grad()
        loss(model(clients.inputs[held]), clients.targets[held]).mean().backward()
        rows.append(torch.cat([p.grad.flatten() for p in trainable(model).values()]))
    return torch.stack(rows).numpy()


def collected(gradients, clients, participants):
    return np.concatenate([block.copy() for block in gradients.blocks(clients, np.asarray(participants))])


@pytest.mark.parametrize("build", [MLP, DEEP, OVERWRITING, hooked(None), hooked(0), CNN])
@pytest.mark.parametrize("per_participant", [1, 3])
def test_blocks_equal_a_loop_over_participants(build, per_participant, monkeypatch):
    torch.manual_seed(0)
    model = build()
    monkeypatch.setattr(module, "BLOCK_FLOATS", 4 * dimension(model))  # several blocks
    inputs, targets = data()
    clients = Clients(inputs, targets, equal_shares(23, per_participant))
    participants = np.arange(1, len(clients))
    got = collected(Gradients(model, cross_entropy), clients, participants)
    np.testing.assert_allclose(got, loop(model, cross_entropy, clients, participants), rtol=2e-5, atol=1e-6)


def test_linear_layers_over_sequences():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    inputs, _ = data()
    clients = Clients(inputs.reshape(23, 3, 4), torch.zeros(23, 3, 3))
    got = collected(Gradients(model, mse_loss), clients, [0, 5])
    np.testing.assert_allclose(got, loop(model, mse_loss, clients, [0, 5]), rtol=2e-5, atol=1e-6)


def test_both_roads_give_the_same_numbers():
    model = MLP()
    clients = Clients(*data())
    fast, general = Gradients(model, cross_entropy), Gradients(model, cross_entropy)
    assert fast._linear_gradients is not None
    general._linear_gradients = None
    everyone = np.arange(23)
    np.testing.assert_allclose(
        collected(fast, clients, everyone), collected(general, clients, everyone), rtol=2e-5, atol=1e-7
    )


def test_a_loss_that_returns_one_number_a_record_is_averaged():
    model = nn.Sequential(nn.Linear(12, 1))
    inputs, targets = data()
    clients = Clients(inputs, targets[:, None].float(), equal_shares(23, 5))
    each = Gradients(model, lambda o, t: mse_loss(o, t, reduction="none"))
    mean = Gradients(model, mse_loss)
    np.testing.assert_allclose(collected(each, clients, [0, 2]), collected(mean, clients, [0, 2]), rtol=1e-5)


def test_participants_of_different_sizes_keep_their_own_records():
    model = MLP()
    inputs, targets = data(6)
    clients = Clients(inputs, targets, by_id(np.array([5, 1, 5, 9, 5, 1])))  # sizes 2, 3, 1
    got = collected(Gradients(model, cross_entropy), clients, [0, 1, 2])
    np.testing.assert_allclose(got, loop(model, cross_entropy, clients, [2, 0, 1]), rtol=2e-5, atol=1e-6)


def test_local_steps_equal_a_loop_of_gradient_descent():
    torch.manual_seed(2)
    model = MLP()
    inputs, targets = data()
    clients = Clients(inputs, targets, equal_shares(23, 4))
    local = LocalSteps(steps=3, learning_rate=0.2, batch=2)
    got = collected(Gradients(model, cross_entropy, local=local), clients, [0, 3])
    for row, participant in zip(got, [0, 3], strict=True):
        copy = MLP()
        copy.load_state_dict(model.state_dict())
        optimizer = torch.optim.SGD(copy.parameters(), lr=0.2)
        held = clients.partition.records_of(participant)
        for batch in (held[:2], held[2:], held[:2]):
            optimizer.zero_grad()
            cross_entropy(copy(inputs[batch]), targets[batch]).backward()
            optimizer.step()
        start, end = (torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (model, copy))
        np.testing.assert_allclose(row, ((start - end) / 0.2).numpy(), rtol=1e-4, atol=1e-6)


def test_frozen_parameters_are_not_part_of_the_vector():
    model = MLP()
    model[0].weight.requires_grad_(False)
    clients = Clients(*data())
    gradients = Gradients(model, cross_entropy)
    assert gradients.dimension == 7 + 21 + 3
    np.testing.assert_allclose(
        collected(gradients, clients, [4]), loop(model, cross_entropy, clients, [4]), rtol=2e-5, atol=1e-6
    )


def test_batch_norm_in_training_mode_is_refused_with_the_remedy():
    model = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(InvalidInput, match="GroupNorm"):
        Gradients(model, cross_entropy)
    model[1].eval()
    assert collected(Gradients(model, cross_entropy), Clients(*data()), [1]).shape == (1, dimension(model))


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_micro_batches_bound_what_goes_through_the_model_and_change_nothing(size):
    clients = Clients(torch.randn(20, 1, 4, 4), torch.randint(0, 2, (20,)))
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    seen = []
    watched = Clients.batches

    def batches(self, participants, limit):
        for inputs, targets in watched(self, participants, limit):
            seen.append(len(inputs))
            yield inputs, targets

    whole = collected(Gradients(model, cross_entropy), clients, range(20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clients, "batches", batches)
        found = collected(Gradients(model, cross_entropy, micro_batch=size), clients, range(20))
    np.testing.assert_allclose(found, whole, rtol=1e-5, atol=1e-7)
    assert max(seen) == min(size, 20)
    with pytest.raises(InvalidInput, match="micro_batch"):
        Gradients(model, cross_entropy, micro_batch=0)


def test_dropout_layers_draw_for_each_participant_alone():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(12, 3))
    inputs = torch.ones(2, 12)
    clients = Clients(inputs, torch.zeros(2, dtype=torch.int64))
    torch.manual_seed(0)
    first, second = collected(Gradients(model, cross_entropy), clients, [0, 1])
    assert not np.allclose(first, second)


def test_nobody_gives_no_block():
    assert list(Gradients(MLP(), cross_entropy).blocks(Clients(*data()), np.arange(0))) == []


def test_a_vector_goes_back_into_the_parameters_in_the_same_order():
    model = MLP()
    clients = Clients(*data())
    (vector,) = collected(Gradients(model, cross_entropy), clients, [3])
    loop(model, cross_entropy, clients, [3])
    expected = {name: p.grad.clone() for name, p in trainable(model).items()}
    set_gradients(model, vector.astype(np.float64))
    for name, p in trainable(model).items():
        torch.testing.assert_close(p.grad, expected[name], rtol=2e-5, atol=1e-6)


def test_double_precision_models_and_empty_models_are_refused():
    with pytest.raises(InvalidInput, match="float32"):
        Gradients(MLP().double(), cross_entropy)
    with pytest.raises(InvalidInput, match="no trainable"):
        Gradients(nn.ReLU(), cross_entropy)


class Rescaling(nn.Module):
    """Rescales, in place, the rows of its table that a record looks up."""

    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Parameter(torch.ones(8, 4)), nn.Linear(4, 3)

    def forward(self, inputs):
        return self.layer(nn.functional.embedding(inputs[:, 0], self.table, max_norm=0.5))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_local_steps_never_change_the_public_weights():
    model = Rescaling()
    held = Clients(torch.tensor([[1], [2], [5]]), torch.zeros(3, dtype=torch.long))
    local = Gradients(model, cross_entropy, local=LocalSteps(steps=2, learning_rate=0.1))
    assert sum(len(block) for block in local.blocks(held, np.arange(3))) == 3
    assert torch.equal(model.table, torch.ones(8, 4))


@pytest.mark.parametrize("build", [MLP, DEEP])
def test_clipped_vectors_are_added_up_without_being_written_out(build):
    torch.manual_seed(0)
    inputs, targets = data()
    inputs[3] *= 100  # its vector is clipped
    inputs[5] = np.nan  # its vector counts as zero
    model, clients = build(), Clients(inputs, targets)
    chosen = np.array([0, 3, 5, 9, 21])
    vectors = loop(model, cross_entropy, clients, chosen[chosen != 5]).astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1)
    limit = float(np.median(norms))
    found = Gradients(model, cross_entropy, micro_batch=2).clipped_sum(clients, chosen, limit, 1e30)
    expected = (vectors * np.minimum(1, limit / norms)[:, None]).sum(0)
    np.testing.assert_allclose(found.total, expected, rtol=1e-4, atol=1e-6)
    assert (found.stats.participants, found.broken) == (5, 1)
    assert found.stats.clipped_rows == int((norms > limit).sum())
    assert found.stats.squared_norms == pytest.approx((norms**2).sum(), rel=1e-5)
    alone = Gradients(model, cross_entropy).clipped_sum(clients, np.array([3]), limit, 1e30)
    assert np.linalg.norm(alone.total) <= limit


def test_other_vectors_cannot_be_added_up_that_way():
    inputs, targets = data(24)
    everyone = np.arange(12)
    pairs = Clients(inputs, targets, equal_shares(24, 2))
    assert Gradients(MLP(), cross_entropy).clipped_sum(pairs, everyone, 1.0, 1e30) is None
    assert Gradients(CNN(), cross_entropy).clipped_sum(Clients(inputs, targets), everyone, 1.0, 1e30) is None


def test_long_vectors_count_as_zero_and_tiny_inputs_are_clipped_all_the_same():
    inputs, targets = data(4)
    inputs[1] *= 1e25  # squares of such numbers overflow in float32, those of the next vanish
    inputs[2:] *= 1e-25
    model, clients = nn.Sequential(nn.Linear(12, 3, bias=False)), Clients(inputs, targets.float())
    steep = Gradients(model, lambda outputs, targets: 1e10 * outputs.sum())
    assert steep.clipped_sum(clients, np.arange(4), 1.0, 1e30).broken == 1
    assert steep.clipped_sum(clients, np.arange(4), 1.0, 1e37).broken == 0
    tiny = steep.clipped_sum(clients, np.array([2]), 1e-17, 1e30)
    assert 0.99e-17 < np.linalg.norm(tiny.total) <= 1e-17
