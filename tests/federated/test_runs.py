"""A run from settings to report, on eighty made-up images."""

import csv
import json
import re

import pytest

import skelmix as sk
from idx_helper import two_kinds_of_images
from skelmix.errors import InvalidInput
from skelmix.federated import runs
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


def test_a_finished_run_is_rebuilt_from_its_directory(images, tmp_path):
    settings = runs.RunSettings(dataset=images, records=4, local_steps=2, seed=1)
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
