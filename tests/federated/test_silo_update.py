"""The records of one silo: what is refused, and that no record changes what another one adds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from skelmix.errors import InvalidInput
from skelmix.federated.silo_update import PublicModel, add_drawn_records
from skelmix.flower import silo_update
from skelmix.mechanisms import SkellamMixture
from skelmix.noise.entropy import ReproducibleEntropy

LOSS = nn.functional.cross_entropy
MECHANISM = SkellamMixture(dimension=10, bits=20, scale=1000.0, clip_norm=0.5, total_noise=50.0)


def public():
    torch.manual_seed(3)
    layer = nn.Linear(4, 2)
    arrays = {name: value.detach().numpy() for name, value in layer.named_parameters()}
    return PublicModel(arrays, {"bias": 0, "weight": 2}, 10)


def data(count=12):
    source = torch.Generator().manual_seed(5)
    return torch.randn(count, 4, generator=source), torch.randint(0, 2, (count,), generator=source)


def total(*records, model=None, rate=Fraction(1), **options):
    silo = MECHANISM.silo_sum(round=0)
    options = {"learning_rate": 1.0, "rate": rate, "entropy": ReproducibleEntropy(1)} | options
    add_drawn_records(silo, public(), model or nn.Linear(4, 2), LOSS, *records, **options)
    return silo


def units(silo):
    return silo._total().copy()


def test_a_data_set_adds_what_its_tensors_add():
    x, y = data()
    for rate in (Fraction(1), Fraction(1, 3)):
        assert (units(total(x, y, rate=rate)) == units(total(TensorDataset(x, y), rate=rate))).all()


class Ragged:
    """Records of several shapes, one of which cannot be read."""

    def __init__(self, x, y, broken):
        self.x, self.y, self.broken = x, y, broken

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        if place in self.broken:
            if self.broken[place] is None:
                raise OSError("unreadable")
            return self.broken[place]
        return self.x[place], int(self.y[place])


def test_a_record_that_cannot_be_used_changes_no_other():
    x, y = data()
    broken = {
        0: None,
        1: (torch.zeros(7), 0),
        2: (torch.zeros(4), 9),
        3: "no pair",
        4: (torch.full((4,), np.nan), 0),
    }
    silo = total(Ragged(x, y, broken))
    assert silo.records == 12
    assert silo.broken == 5
    assert (units(silo) == units(total(x[5:], y[5:]))).all()


def test_removing_a_record_changes_the_exact_sum_by_that_record_alone():
    x, y = data()
    for place in range(12):
        others = torch.arange(12) != place
        alone = units(total(x[place : place + 1], y[place : place + 1]))
        assert (units(total(x, y)) - units(total(x[others], y[others])) == alone).all()


@pytest.mark.parametrize("source", ["tensors", "data set"])
def test_the_records_of_an_owner_are_clipped_together(source):
    x, y = data()
    owners = ["a", "b", "a"] * 4
    records = (x, y) if source == "tensors" else (TensorDataset(x, y),)
    silo = total(*records, owners=owners, learning_rate=100.0)
    assert silo.records == 2
    norms = [np.linalg.norm(total(x[m], y[m], owners=[0] * int(m.sum()), learning_rate=100.0).clipped_sum())
             for m in (torch.tensor([o == n for o in owners]) for n in "ab")]  # fmt: skip
    assert norms == pytest.approx([0.5, 0.5], rel=1e-3)


def test_no_records_at_all_are_fine():
    assert total(*data(0)).records == 0


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = self.other = nn.Linear(4, 2)


@pytest.mark.parametrize(
    ("records", "options", "reason"),
    [
        ((DataLoader(TensorDataset(*data())),), {}, "loader.dataset"),
        ((data()[0],), {}, "two tensors"),
        ((TensorDataset(*data()), data()[1]), {}, "two tensors"),
        ((iter([]),), {}, "map-style"),
        (data(), {"owners": [1, 2]}, "one per record"),
        (data(), {"learning_rate": -1.0}, "learning_rate"),
        (data(), {"model": nn.Sequential(nn.Linear(4, 2))}, r"no 0\.weight"),
        (data(), {"model": Tied()}, "untie"),
        (data(), {"model": nn.Linear(4, 2, bias=False)}, "no bias"),
    ],
)
def test_wrong_arguments_are_refused_before_any_draw(records, options, reason):
    with pytest.raises(InvalidInput, match=reason):
        total(*records, **options, entropy=None)


def test_there_is_no_update_outside_a_round():
    with pytest.raises(InvalidInput, match="outside a round"):
        silo_update(nn.Linear(4, 2), LOSS, *data())
