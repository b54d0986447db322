"""The records of one silo: what is refused, and that no record changes what another one adds."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from skelmix.errors import InvalidInput
from skelmix.federated.records import RecordGradients
from skelmix.federated.silo_clients import SiloClients
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


class Named:
    """Records as Hugging Face's data sets give them: a value per column."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        return {"img": self.x[place], "label": int(self.y[place])}


def test_a_record_may_be_a_mapping_of_input_and_target():
    x, y = data()
    silo = total(Named(x, y))
    assert (silo.records, silo.broken) == (12, 0)
    assert (units(silo) == units(total(x, y))).all()
    (held,) = SiloClients.of([Named(x, y)]).silos
    assert (held.inputs == x).all()
    assert (held.targets == y).all()


class Panic(BaseException):
    """What readers written in Rust raise: no `Exception`."""


class Ragged:
    """Records of several shapes, one of which cannot be read."""

    def __init__(self, x, y, broken):
        self.x, self.y, self.broken = x, y, broken

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        if place in self.broken:
            if isinstance(self.broken[place], BaseException):
                raise self.broken[place]
            return self.broken[place]
        return self.x[place], int(self.y[place])


def test_a_record_that_cannot_be_used_changes_no_other():
    x, y = data()
    broken = {
        0: Panic("unreadable"),
        1: (torch.zeros(7), 0),
        2: (torch.zeros(4), 9),
        3: "no pair",
        4: (torch.full((4,), np.nan), 0),
        5: OSError("unreadable"),
        6: SystemExit(1),
        11: Panic("unreadable"),
    }
    silo = total(Ragged(x, y, broken))
    assert silo.records == 12
    assert silo.broken == 8
    assert (units(silo) == units(total(x[7:11], y[7:11]))).all()


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


class Unknown:
    """As pandas' NA does, refuses to say whether it differs from anything."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("ambiguous")


@pytest.mark.parametrize("source", ["tensors", "data set"])
@pytest.mark.parametrize(
    "nobody",
    [None, float("nan"), np.float32("nan"), "", Unknown(), Decimal("sNaN"), np.zeros(2), 10**5000, "nan"],
    ids=lambda nobody: type(nobody).__name__,
)
def test_records_without_an_owner_add_nothing(source, nobody):
    """They could all be one person's, who would move the sum by a clip norm for each."""
    x, y = data()

    def of(places, owners):
        pairs = x[places], y[places]
        return total(*(pairs if source == "tensors" else (TensorDataset(*pairs),)), owners=owners)

    partly_owned = of(slice(None), ["a", nobody, "b"] * 4)
    kept = of(np.arange(12) % 3 != 1, ["a", "b"] * 4)
    assert partly_owned.records == kept.records == 2
    assert (units(partly_owned) == units(kept)).all()
    assert of(slice(None), [nobody] * 12).records == 0


def test_an_owner_is_one_whatever_the_type_of_its_number():
    owners = [1, 1.0, "1", np.int64(1), np.float32(1), torch.tensor(1)] * 2
    assert total(*data(), owners=owners).records == 1
    assert total(*data(), owners=torch.arange(12) // 2).records == 6


def test_no_records_at_all_are_fine():
    assert total(*data(0)).records == 0


class Squashed(nn.Linear):
    """No plain stack: evaluated by torch, one record at a time."""

    def forward(self, inputs):
        return super().forward(inputs).tanh()


def test_a_data_set_costs_one_gradient_per_record_and_a_trial(monkeypatch):
    tried = []
    original = RecordGradients._gradient
    monkeypatch.setattr(RecordGradients, "_gradient", lambda *a: tried.append(1) or original(*a))
    x, y = data()
    found = total(TensorDataset(x, y), model=Squashed(4, 2))
    assert len(tried) == 12 + 3
    assert (units(found) == units(total(x, y, model=Squashed(4, 2)))).all()


class Dropping(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
        self.drop = nn.Dropout(0.5)

    def forward(self, inputs):
        return self.drop(super().forward(inputs))


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
        (data(), {"model": Dropping()}, "random numbers"),
        ((TensorDataset(*data()),), {"model": Dropping()}, "random numbers"),
        (data(), {"model": nn.Linear(4, 2, bias=False)}, "no bias"),
    ],
)
def test_wrong_arguments_are_refused_before_any_draw(records, options, reason):
    with pytest.raises(InvalidInput, match=reason):
        total(*records, **options, entropy=None)


def test_there_is_no_update_outside_a_round():
    with pytest.raises(InvalidInput, match="outside a round"):
        silo_update(nn.Linear(4, 2), LOSS, *data())


class Shaken:
    """Adds noise to each record that it reads, from a generator that all records share."""

    def __init__(self, x, y, draw):
        self.x, self.y, self.draw = x, y, draw

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        return self.x[place] + float(self.draw()), self.y[place]


COMMON = [lambda: torch.rand(()), lambda: np.random.rand(), random.random]


@pytest.mark.parametrize("draw", COMMON, ids=["torch", "numpy", "python"])
def test_what_a_data_set_draws_for_a_record_does_not_depend_on_the_others(draw):
    x, y = data()
    for place in (0, 5, 11):
        others = torch.arange(12) != place
        alone = units(total(Shaken(x[place : place + 1], y[place : place + 1], draw)))
        rest = units(total(Shaken(x[others], y[others], draw)))
        assert (units(total(Shaken(x, y, draw))) - rest == alone).all()


@pytest.fixture
def modes():
    """What a broken record may leave behind, to be set right after the test."""
    before = torch.get_default_dtype(), np.geterr()
    yield
    torch.set_grad_enabled(True)
    torch.set_default_dtype(before[0])
    np.seterr(**before[1])


def switched():
    """As in code that would switch back if nothing failed on the way."""
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    np.seterr(all="raise")
    raise ValueError("a rare record")


class Switching(Ragged):
    def __getitem__(self, place):
        return switched() if place == 5 else super().__getitem__(place)


@pytest.mark.usefixtures("modes")
@pytest.mark.parametrize("layer", [nn.Linear, Squashed])
def test_a_record_that_fails_leaves_no_mode_behind(layer):
    x, y = data()
    others = torch.arange(12) != 5
    expected = units(total(x[others], y[others], model=layer(4, 2)))
    silo = total(Switching(x, y, {}), model=layer(4, 2))
    assert silo.broken == 1
    assert (units(silo) == expected).all()
    assert (torch.is_grad_enabled(), torch.get_default_dtype()) == (True, torch.float32)


@pytest.mark.usefixtures("modes")
@pytest.mark.parametrize("layer", [nn.Linear, Squashed])
def test_a_loss_that_fails_leaves_no_mode_behind(layer, monkeypatch):
    x, y = data()
    rare = torch.arange(12) == 5

    def loss(outputs, targets):
        return switched() if float(targets[0]) < 0 else nn.functional.mse_loss(outputs[:, 0], targets)

    monkeypatch.setattr(f"{__name__}.LOSS", loss)
    y = y.float()
    expected = units(total(x[~rare], y[~rare], model=layer(4, 2)))
    silo = total(x, torch.where(rare, -1.0, y), model=layer(4, 2))
    assert silo.broken == 1
    assert (units(silo) == expected).all()


def test_what_a_data_set_draws_differs_from_round_to_round():
    x, y = data()
    silos = [MECHANISM.silo_sum(round=round) for round in (0, 1)]
    for silo in silos:
        options = {"learning_rate": 1.0, "rate": Fraction(1), "entropy": ReproducibleEntropy(1)}
        add_drawn_records(silo, public(), nn.Linear(4, 2), LOSS, Shaken(x, y, COMMON[0]), **options)
    first, second = (silo.clipped_sum() for silo in silos)
    assert not np.allclose(first, second, atol=1e-3)


@pytest.mark.parametrize("readable", [True, False])
def test_a_data_set_with_a_generator_of_its_own_is_warned_of_and_adds_its_records(readable, caplog):
    """Whatever its first record is: a refusal that depends on it would show that record in what is sent."""
    own = np.random.default_rng(1)
    records = Shaken(*data(), own.random)
    if not readable:
        records.x = [None, *records.x[1:]]
    silo = total(records)
    assert (silo.records, silo.broken) == (12, 0 if readable else 1)
    assert ("another first record the second time" in caplog.text) == readable


def test_a_broken_first_record_is_no_reason_to_refuse():
    x, y = data()
    x[0] = torch.nan
    assert total(TensorDataset(x, y)).broken == 1
