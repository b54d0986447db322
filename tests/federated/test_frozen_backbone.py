"""A head on a pretrained module: only the head is counted, trained and sent; the backbone stays as it is."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import skelmix as sk
from helpers.federation import POPULATION, records
from skelmix.errors import InvalidInput
from skelmix.federated.clients import Clients
from skelmix.federated.silo_clients import SiloClients
from skelmix.federated.trainer import Trainer


class Counted(torch.autograd.Function):
    """The identity, which counts how often a gradient is computed through it."""

    calls = 0
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(context, inputs, output):
        pass

    @staticmethod
    def backward(context, slope):
        Counted.calls += 1
        return slope


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(196, 12), nn.BatchNorm1d(12)

    def forward(self, x):
        return self.norm(Counted.apply(self.layer(x)))


def headed():
    torch.manual_seed(0)
    backbone = Backbone()
    with torch.no_grad():
        backbone(torch.randn(50, 196))  # "pretrained": its statistics are not the initial ones
    backbone.eval().requires_grad_(False)
    return nn.Sequential(backbone, nn.Linear(12, 10))


def plan_for(model, silos):
    cohort = sk.Silos(count=2, records=POPULATION, batch=40) if silos else sk.Cohort(40, POPULATION)
    return sk.Plan.for_model(
        model, sk.PrivacyTarget(50.0, 1e-5), cohort=cohort, rounds=3, bits=16, scale=200.0, bound="rdp"
    )


@pytest.mark.parametrize("silos", [False, True])
def test_only_the_head_is_counted_and_changes(silos):
    model = headed()
    plan = plan_for(model, silos)
    assert plan.dimension == 12 * 10 + 10
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, targets = records()
    people = SiloClients.of([(inputs[:150], targets[:150]), (inputs[150:], targets[150:])])
    Counted.calls = 0
    head = [p for p in model.parameters() if p.requires_grad]
    Trainer(
        model,
        cross_entropy,
        people if silos else Clients(inputs, targets),
        plan,
        torch.optim.SGD(head, lr=0.5),
    ).run()
    after = model.state_dict()
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed == {"1.weight", "1.bias"}, "weights and statistics of the backbone stay bit for bit"
    assert Counted.calls == 0, "no gradient is computed through the backbone"
    assert [module.training for module in model.modules()] == [True, False, False, False, True]
    assert all(p.grad is None for p in model[0].parameters())


def trained(model, silos, **options):
    inputs, targets = records()
    people = SiloClients.of([(inputs[:150], targets[:150]), (inputs[150:], targets[150:])])
    people = people if silos else Clients(inputs, targets)
    head = [p for p in model.parameters() if p.requires_grad]
    Trainer(
        model, cross_entropy, people, plan_for(model, silos), torch.optim.SGD(head, lr=0.5), evaluate_every=1,
        **options,
    ).run()  # fmt: skip


@pytest.mark.parametrize("silos", [False, True])
@pytest.mark.parametrize("last", [nn.Module.train, nn.Module.eval])
def test_an_evaluation_leaves_every_layer_in_its_mode(silos, last):
    """The usual evaluation ends with `model.train()`, which would wake the frozen statistics."""
    model, seen = headed(), []
    statistics = model[0].norm.running_mean.clone()

    def evaluate(model):
        seen.append([module.training for module in model.modules()])
        model.eval()
        last(model)
        return 0.5

    trained(model, silos, evaluate=evaluate)
    assert seen == [[True, False, False, False, True]] * 4, "once beforehand, then after each round"
    assert torch.equal(model[0].norm.running_mean, statistics)


@pytest.mark.parametrize("silos", [False, True])
def test_a_callback_that_wakes_frozen_statistics_is_told_which_layer(silos):
    with pytest.raises(InvalidInput, match=r"'0\.norm' \(BatchNorm1d\)"):
        trained(headed(), silos, callbacks=[lambda trainer, _: trainer.model.train()])


def test_the_control_sees_gradients_through_a_backbone_that_trains():
    model = headed()
    model[0].layer.requires_grad_(True)
    Counted.calls = 0
    cross_entropy(model(records()[0][:4]), records()[1][:4]).backward()
    assert Counted.calls == 1
