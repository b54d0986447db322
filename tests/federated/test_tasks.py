"""A task is a data set with a model, a loss and a score."""

import numpy as np
import pytest
import torch

from helpers.idx_files import striped_images
from skelmix.errors import InvalidInput
from skelmix.federated import runs, tasks
from skelmix.federated.gradients import dimension


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return str(striped_images(tmp_path_factory.mktemp("idx")))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SKELMIX_CACHE", str(tmp_path))


def test_a_linear_model_learns_from_features_that_are_kept_in_the_cache(images, tmp_path):
    heard = []
    task = tasks.task_of(images, "linear", heard.append)
    assert "100%" in heard[-1]
    assert task.clients.inputs.dtype == torch.int16
    assert len(list((tmp_path / "features").iterdir())) == 2
    model = task.new_model(None)
    assert dimension(model) == 2 * (task.clients.inputs.shape[1] + 1)
    assert 0 <= task.evaluate(model) <= 1
    heard.clear()
    tasks.task_of(images, "linear", heard.append)
    assert heard == []


@pytest.mark.parametrize("silos", [None, 4])
def test_a_run_on_features_is_planned_and_trained_like_any_other(images, tmp_path, silos):
    import skelmix as sk

    settings = runs.RunSettings(dataset=images, model="linear", optimizer="momentum", lr=1.0, silos=silos)
    prepared = runs.Prepared(settings)
    cohort = sk.Cohort(40, 80) if silos is None else sk.Silos(4, 80, 40)
    plan = sk.plan(
        sk.PrivacyTarget(50.0, 1e-3), dimension=prepared.dimension, rounds=4, clip_norm=0.1, bits=16,
        keep=0.25, bound="rdp", scale=2000.0, cohort=cohort,
    )  # fmt: skip
    result = prepared.trainer(plan, tmp_path / "run").run()
    assert result.rounds == 4
    assert result.accuracy > 0.8


def test_text_brings_its_people_and_goes_with_its_own_model(images, monkeypatch):
    with pytest.raises(InvalidInput, match="go together"):
        tasks.task_of(images, "characters")
    with pytest.raises(InvalidInput, match="go together"):
        tasks.task_of("shakespeare", "mlp")
    words = {f"play/{person}": "To be, or not to be: that is the question. " * 3 for person in range(60)}
    monkeypatch.setattr(tasks, "load_speakers", lambda: words)
    task = tasks.task_of("shakespeare", "characters")
    assert task.labels is None
    assert 40 < len(task.clients) < 60
    assert task.perplexity(task.new_model(0)) == pytest.approx(64, rel=0.2)
    first, again = (task.new_model(3).output.weight for _ in range(2))
    assert torch.equal(first, again)
    with pytest.raises(InvalidInput, match="belong to people already"):
        runs.RunSettings(dataset="shakespeare", model="characters", silos=3).clients(task)
    assert np.array_equal(
        runs.RunSettings(model="characters").clients(task).partition.records, task.clients.partition.records
    )
