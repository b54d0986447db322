"""Softmax regression's clipped sum: right, exact, and each record's share is its own."""

from fractions import Fraction

import pytest
import torch
from torch import nn

from skelmix.errors import InvalidInput
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import Gradients
from skelmix.federated.softmax_regression import clipped_gradient_sum, gradient_norms, softmax_model


def batch(records=40, features=30, classes=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(-3000, 3000, (records, features), generator=generator).short()
    targets = torch.randint(0, classes, (records,), generator=generator)
    model = softmax_model(features, classes)
    with torch.no_grad():
        model.weight.copy_(torch.randn(classes, features, generator=generator) / 4)
        model.bias.copy_(torch.randn(classes, generator=generator))
    return model, inputs, targets


def written_out(model, inputs, targets):
    """Each record's gradient as a vector, by the general road."""
    clients = Clients(inputs.float() / 1024, targets)
    blocks = Gradients(nn.Sequential(model), nn.functional.cross_entropy).blocks(
        clients, torch.arange(len(inputs)).numpy()
    )
    return torch.cat([torch.from_numpy(block.copy()) for block in blocks]).double()


@pytest.mark.parametrize("clip", [0.3, 2.0, 1e3])
def test_it_is_the_sum_of_clipped_gradients(clip):
    model, inputs, targets = batch()
    vectors = written_out(model, inputs, targets)
    norms = vectors.norm(dim=1)
    expected = (vectors * (clip / norms).clamp(max=1)[:, None]).sum(0)
    total, within = clipped_gradient_sum(model, inputs, targets, clip)
    assert torch.allclose(total, expected, rtol=1e-3, atol=1e-4 * clip)
    assert (within == (norms <= clip)).all()


def test_norms_are_those_of_the_vectors():
    model, inputs, targets = batch()
    units = torch.cat([inputs.double(), torch.full((len(inputs), 1), 1024.0)], 1)
    slopes = torch.softmax(model(inputs.float() / 1024).double(), 1) - nn.functional.one_hot(targets, 5)
    assert torch.allclose(
        gradient_norms(slopes, units), written_out(model, inputs, targets).norm(dim=1), rtol=1e-4
    )


@pytest.mark.parametrize("clip", [1e-6, 0.1, 0.3, 3.0])
def test_each_record_is_within_the_clip_exactly(clip):
    model, inputs, targets = batch()
    for row in range(len(inputs)):
        share, _ = clipped_gradient_sum(model, inputs[row : row + 1], targets[row : row + 1], clip)
        assert sum(Fraction(float(value)) ** 2 for value in share) <= Fraction(clip) ** 2


def test_a_clipped_record_keeps_nearly_all_of_the_clip():
    model, inputs, targets = batch()
    for row in range(len(inputs)):
        share, within = clipped_gradient_sum(model, inputs[row : row + 1], targets[row : row + 1], 0.1)
        assert within[0] or share.norm() > 0.1 * (1 - 1e-3)


def test_removing_a_record_takes_away_exactly_its_share():
    model, inputs, targets = batch(records=1100)
    whole, within = clipped_gradient_sum(model, inputs, targets, 0.3)
    assert 0 < within.sum() < len(within)
    for row in (0, 511, 512, 777, 1099):
        rest = torch.arange(1100) != row
        without, _ = clipped_gradient_sum(model, inputs[rest], targets[rest], 0.3)
        share, _ = clipped_gradient_sum(model, inputs[row : row + 1], targets[row : row + 1], 0.3)
        assert (whole - without == share).all()
        assert share.any()


def test_the_order_and_the_grouping_of_records_change_no_bit():
    model, inputs, targets = batch(records=700, features=300)
    whole, within = clipped_gradient_sum(model, inputs, targets, 0.3)
    order = torch.randperm(700, generator=torch.Generator().manual_seed(1))
    shuffled, shuffled_within = clipped_gradient_sum(model, inputs[order], targets[order], 0.3)
    assert (shuffled == whole).all()
    assert (shuffled_within == within[order]).all()
    parts = [clipped_gradient_sum(model, inputs[k::7], targets[k::7], 0.3)[0] for k in range(7)]
    assert (sum(parts) == whole).all()


def test_extreme_inputs_and_weights_stay_within_the_clip():
    model, inputs, targets = batch(records=8)
    inputs[0], inputs[1], inputs[2] = -32768, 32767, 0
    with torch.no_grad():
        model.weight.fill_(1e30)
        model.weight[0] = -1e30
    total, _ = clipped_gradient_sum(model, inputs, targets, 1.0)
    assert torch.isfinite(total).all()
    assert total.norm() <= 8.0


def test_an_empty_batch_makes_zeros():
    model, inputs, targets = batch()
    total, within = clipped_gradient_sum(model, inputs[:0], targets[:0], 0.3)
    assert total.shape == (5 * 30 + 5,)
    assert not total.any()
    assert len(within) == 0


def test_bad_input_is_refused():
    model, inputs, targets = batch()
    broken = softmax_model(30, 5)
    with torch.no_grad():
        broken.bias[0] = torch.nan
    for call in (
        lambda: clipped_gradient_sum(model, inputs.float(), targets, 1.0),
        lambda: clipped_gradient_sum(model, inputs[:, 1:], targets, 1.0),
        lambda: clipped_gradient_sum(model, inputs, targets[1:], 1.0),
        lambda: clipped_gradient_sum(model, inputs, targets, 0.0),
        lambda: clipped_gradient_sum(broken, inputs, targets, 1.0),
        lambda: clipped_gradient_sum(nn.Linear(30, 5, bias=False), inputs, targets, 1.0),
        lambda: clipped_gradient_sum(model, inputs.repeat(1700, 1), targets.repeat(1700), 1.0),
    ):
        with pytest.raises(InvalidInput):
            call()
