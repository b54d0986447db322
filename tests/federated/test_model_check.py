"""The validator names every layer that mixes examples, and a layer of the same size to use instead."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from helpers.federation import clients, small_plan
from skelmix.errors import InvalidInput
from skelmix.federated import validate
from skelmix.federated.trainer import Trainer


def network():
    return nn.Sequential(
        nn.Conv2d(1, 48, 3),
        nn.BatchNorm2d(48),
        nn.Sequential(nn.ReLU(), nn.InstanceNorm2d(48, track_running_stats=True)),
        nn.Flatten(),
        nn.Linear(196, 10),
        nn.BatchNorm1d(10),
    )


def test_all_offending_layers_are_named_with_their_remedy():
    with pytest.raises(InvalidInput) as refused:
        validate(network())
    text = str(refused.value)
    assert "3 layers mix examples" in text
    assert "'1' (BatchNorm2d), use torch.nn.GroupNorm(24, 48)" in text
    assert "'2.1' (InstanceNorm2d), use track_running_stats=False" in text
    assert "'5' (BatchNorm1d), use torch.nn.GroupNorm(10, 10)" in text
    assert ".eval()" in text


@pytest.mark.parametrize("norm", [nn.LayerNorm(10), nn.GroupNorm(5, 10), nn.InstanceNorm1d(10), nn.Dropout()])
def test_layers_that_treat_each_example_by_itself_pass(norm):
    validate(nn.Sequential(nn.Linear(4, 10), norm))


def test_frozen_statistics_pass():
    model = network()
    for layer in (model[1], model[2][1], model[5]):
        layer.eval()
    validate(model)


def test_batch_statistics_are_refused_in_either_mode():
    layer = nn.BatchNorm1d(10, track_running_stats=False).eval()
    mixed = layer(torch.arange(20.0).reshape(2, 10))[0]
    assert not torch.equal(mixed, layer(torch.arange(30.0).reshape(3, 10))[0])
    with pytest.raises(InvalidInput, match=r"'1' \(BatchNorm1d\), use torch.nn.GroupNorm\(10, 10\)"):
        validate(nn.Sequential(nn.Linear(4, 10), layer))


def test_freezing_is_advised_only_where_it_helps():
    for layer in (nn.BatchNorm1d(10, track_running_stats=False), nn.Embedding(4, 10, max_norm=1.0)):
        with pytest.raises(InvalidInput) as refused:
            validate(nn.Sequential(layer, nn.Linear(10, 2)))
        assert ".eval()" not in str(refused.value)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_embeddings_that_rescale_the_rows_in_use_are_refused(kind):
    with pytest.raises(InvalidInput, match=r"'0' \(Embedding.*use max_norm=None"):
        validate(nn.Sequential(kind(4, 10, max_norm=1.0).eval(), nn.Linear(10, 2)))


def test_the_trainer_refuses_them_all_before_anything_is_computed():
    model = nn.Sequential(nn.BatchNorm1d(196), nn.Linear(196, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(InvalidInput, match=r"2 layers .*'0' .*'2' "):
        Trainer(model, cross_entropy, clients(), small_plan(), optimizer)


def test_models_that_cannot_train_are_refused():
    with pytest.raises(InvalidInput, match="no trainable"):
        validate(nn.ReLU())
    with pytest.raises(InvalidInput, match=r"'weight' is torch.float64 on cpu, 'bias' is"):
        validate(nn.Linear(2, 2).double())
    with pytest.raises(InvalidInput, match=r"0.weight, 0.bias has no shape yet: call the model once"):
        validate(nn.Sequential(nn.LazyLinear(2)))
    with pytest.raises(InvalidInput, match=r"model is a function: pass a torch.nn.Module"):
        validate(lambda x: x)
