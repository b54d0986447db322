"""A run from settings to report, on eighty made-up images."""

import csv
import json
import re
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import skelmix as sk
from helpers.idx_files import two_kinds_of_images
from skelmix.errors import InvalidInput
from skelmix.federated import checkpoint, runs
from skelmix.federated.clients import Clients
from skelmix.federated.recipes import build_model, try_out
from skelmix.federated.report import Spent


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return str(two_kinds_of_images(tmp_path_factory.mktemp("idx")))


def plan_for(prepared):
    return sk.plan(
        sk.PrivacyTarget(50.0, 1e-3),
        dimension=prepared.dimension,
        rounds=6,
        mechanism="gaussian",
        cohort=sk.Cohort(expected=prepared.population // 2, population=prepared.population),
    )


def finished(prepared, directory):
    trainer = prepared.trainer(plan_for(prepared), directory)
    return runs.finish(trainer, directory, prepared.settings, Spent(trainer.plan))


@pytest.mark.parametrize("seed", [None, 4])
def test_a_run_leaves_a_report_that_needs_no_network_and_says_whether_it_was_private(images, tmp_path, seed):
    settings = runs.RunSettings(dataset=images, seed=seed, evaluate_every=2, lr=0.05)
    prepared = runs.Prepared(settings)
    result, summary = finished(prepared, tmp_path)
    keys = {
        "accuracy",
        "epsilon",
        "delta",
        "rounds",
        "seconds",
        "seconds_per_round",
        "wrapped_fraction",
        "report",
    }
    assert keys <= set(summary)
    page = (tmp_path / "report.html").read_text()
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    rows = list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))
    assert [row["round"] for row in rows] == list("123456")
    assert {row["private"] for row in rows} == {str(seed is None)}
    assert json.loads((tmp_path / "config.json").read_text())["private"] == (seed is None)
    claimed = json.loads((tmp_path / "privacy.json").read_text())
    for text in (page, claimed["statement"]):
        assert ("NOT PRIVATE" in text) == (seed is not None)
    assert summary["private"] == claimed["private"] == result.private == (seed is None)


def test_a_private_run_leaves_no_diagnostics_behind(images, tmp_path):
    """Whoever takes the directory gets what the models show: no norm, no clipped fraction, no cohort size."""
    prepared = runs.Prepared(runs.RunSettings(dataset=images, evaluate_every=2))
    result, summary = finished(prepared, tmp_path)
    assert {name for record in result.history for name in record.to_dict()} == {"round", "opened", "accuracy"}
    assert summary["diagnostics"] == []
    stored = checkpoint.load(tmp_path / "checkpoint.pt")
    assert {name for record in stored.history for name in record} <= {"round", "opened", "accuracy"}
    assert not list(tmp_path.glob("diagnostics*"))
    assert "private,opened,accuracy,epsilon" in (tmp_path / "metrics.csv").read_text()
    page = (tmp_path / "report.html").read_text()
    assert "clipped" not in page.split("<body>")[1]


def test_diagnostics_that_were_asked_for_say_that_they_are_not_private(images, tmp_path):
    prepared = runs.Prepared(runs.RunSettings(dataset=images, evaluate_every=2, diagnostics=True))
    result, _ = finished(prepared, tmp_path)
    assert all(record.diagnostics.to_dict()["private"] is False for record in result.history)
    with (tmp_path / "diagnostics-not-private.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["private"] for row in rows] == ["False"] * 6
    assert all(float(row["rms_norm"]) > 0 for row in rows)
    page = (tmp_path / "report.html").read_text()
    assert "Vectors clipped" in page
    assert "not private" in page
    assert "The guarantee does not cover them" in page
    assert '<th scope="row">diagnostics</th><td>cohort sizes, times, ' in page
    header = (tmp_path / "metrics.csv").read_text().splitlines()[0]
    assert header == "round,private,opened,accuracy,epsilon,clip_norm,within"


def test_a_finished_run_is_rebuilt_from_its_directory(images, tmp_path):
    settings = runs.RunSettings(dataset=images, records_per_participant=4, local_steps=2, seed=1)
    prepared = runs.Prepared(settings)
    assert prepared.population == 20
    first = prepared.trainer(plan_for(prepared), tmp_path).run()
    again = runs.Prepared(runs.read_settings(tmp_path))
    assert again.settings == settings
    result = again.trainer(None, tmp_path, resume=True).run()
    assert (result.rounds, result.accuracy) == (6, first.accuracy)
    with pytest.raises(InvalidInput, match=r"config\.json"):
        runs.read_settings(tmp_path / "elsewhere")


def test_epsilon_spent_rises_to_the_plans_and_is_never_understated(images):
    plan = plan_for(runs.Prepared(runs.RunSettings(dataset=images)))
    spent = Spent(plan)
    values = [spent.after(rounds) for rounds in range(plan.rounds + 1)]
    assert values[0] == 0
    assert values == sorted(values)
    assert values[-1] == plan.report.epsilon


def test_two_runs_with_one_seed_have_the_same_weights(images, tmp_path):
    weights = []
    for place in ("one", "two"):
        prepared = runs.Prepared(runs.RunSettings(dataset=images, seed=5, evaluate_every=6))
        plan = sk.plan(
            sk.PrivacyTarget(50.0, 1e-3), dimension=prepared.dimension, bits=12, rounds=3, bound="rdp",
            cohort=sk.Cohort(expected=40, population=80),
        )  # fmt: skip
        prepared.trainer(plan, tmp_path / place).run()
        weights.append(torch.cat([p.detach().flatten() for p in prepared.model.parameters()]))
    assert torch.equal(*weights)


def test_a_learning_rate_falls_to_zero_over_the_rounds_of_a_run_that_is_resumed(images, tmp_path):
    settings = runs.RunSettings(dataset=images, lr=0.4, lr_decay=4)
    prepared, seen = runs.Prepared(settings), []
    plan = sk.plan(
        sk.PrivacyTarget(50.0, 1e-3), dimension=prepared.dimension, bits=12, rounds=4, bound="rdp",
        cohort=sk.Cohort(expected=40, population=80),
    )  # fmt: skip

    def watch(trainer, record):
        seen.append(round(trainer.optimizer.param_groups[0]["lr"], 6))
        if len(seen) == 2:
            raise KeyboardInterrupt

    for resume in (False, True):
        trainer = runs.Prepared(runs.read_settings(tmp_path) if resume else settings).trainer(
            None if resume else plan, tmp_path, resume=resume
        )
        trainer.callbacks += (watch,)
        with suppress(KeyboardInterrupt):
            trainer.run()
        trainer.close()
    assert seen == [0.3, 0.2, 0.1, 0.0]


def broken():
    raise RuntimeError("no luck")


def with_an_argument(width):
    return torch.nn.Linear(width, 2)


def unflattened_images():
    return torch.nn.Sequential(torch.nn.Linear(999, 2))


def too_few_outputs():
    return torch.nn.Sequential(torch.nn.LazyLinear(1))


def not_a_model():
    return 3


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        (broken, "RuntimeError: no luck"),
        (with_an_argument, "without arguments"),
        (unflattened_images, "images come flattened"),
        (too_few_outputs, "1 outputs"),
        (not_a_model, "must return a torch.nn.Module"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_anything_is_spent(images, factory, says):
    name = f"{__name__}:{factory.__name__}"
    with pytest.raises(InvalidInput, match=re.escape(says)):
        runs.Prepared(runs.RunSettings(dataset=images, model=name))


def test_a_factory_is_found_in_the_current_directory(images, tmp_path, monkeypatch):
    (tmp_path / "width_beside.py").write_text("WIDTH = 4\n")
    (tmp_path / "my_model_here.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    from width_beside import WIDTH\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(9, WIDTH))\n"
    )
    monkeypatch.chdir(tmp_path)
    model = build_model("my_model_here:make", pixels=9, classes=2)
    assert isinstance(model, torch.nn.Sequential)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_trying_a_model_out_leaves_it_as_it_was():
    model = torch.nn.Sequential(
        torch.nn.utils.spectral_norm(torch.nn.Linear(5, 3)), torch.nn.BatchNorm1d(3).eval()
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    try_out(model, cross_entropy, Clients(torch.rand(4, 5), torch.tensor([0, 1, 2, 0])))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model] == [True, False]


def test_owners_stay_in_one_silo(tmp_path):
    owners = np.arange(40) % 10
    np.save(tmp_path / "owners.npy", owners)
    settings = runs.RunSettings(silos=3, owners=str(tmp_path / "owners.npy"))
    partition = settings._whole_owners(owners, 3)
    holders = [set(owners[partition.records_of(silo)].tolist()) for silo in range(3)]
    assert sorted(owner for held in holders for owner in held) == list(range(10))
    task = SimpleNamespace(labels=np.zeros(40), clients=None)
    with pytest.raises(InvalidInput, match="skew"):
        runs.RunSettings(silos=3, skew=0.5, owners=str(tmp_path / "owners.npy")).clients(task)


@pytest.mark.parametrize("silos", [1, 3, 25, 40])
def test_there_are_as_many_silos_as_asked_for_and_no_record_is_left_out(silos):
    data = Clients(torch.zeros(40, 2), torch.zeros(40, dtype=torch.int64))
    held = runs.RunSettings(silos=silos).clients(SimpleNamespace(clients=data, labels=np.zeros(40, np.int64)))
    assert (len(held), held.members) == (silos, 40)


def test_an_owner_stays_in_one_silo_however_its_name_is_written(tmp_path):
    """As text, 20 names; in truth 10 persons, each spelled in two ways."""
    file = tmp_path / "owners.npy"
    settings = runs.RunSettings(silos=5, owners=str(file))
    data = Clients(torch.zeros(40, 2), torch.zeros(40, dtype=torch.int64))
    task = SimpleNamespace(clients=data, labels=np.zeros(40, np.int64))
    np.save(file, np.array([f"p{i % 10}" + " " * (i % 20 < 10) for i in range(40)]))
    assert settings.clients(task).members == 10
    np.save(file, np.array([*range(39), np.nan]))
    with pytest.raises(InvalidInput, match="1 of 40 records have none"):
        settings.clients(task)
