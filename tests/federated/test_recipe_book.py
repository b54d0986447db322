"""Recipes: known data sets have one, options overrule it, and it learns what a line can tell."""

import numpy as np
import pytest
import torch

from helpers.idx_files import stripes
from skelmix.datasets.entries import ENTRIES
from skelmix.errors import InvalidInput
from skelmix.federated import Clients, Gradients, SiloClients
from skelmix.federated.feature_units import FeatureUnits, feature_model, in_float32
from skelmix.federated.gradients import set_gradients
from skelmix.federated.recipe_book import BEST, PAPER, recipe_for
from skelmix.federated.recipes import build_optimizer
from skelmix.federated.records import RecordGradients
from skelmix.federated.scattering_network import features

cross_entropy = torch.nn.functional.cross_entropy


def test_every_known_data_set_has_a_best_recipe_below_0_3_bits_per_weight_of_images():
    assert set(BEST) == set(ENTRIES)
    assert all(recipe.rate <= 0.3 for recipe in BEST.values() if recipe.model == "linear")


def test_the_papers_recipe_is_the_default_but_for_text():
    assert recipe_for(None, "mnist", 3.0) is PAPER
    assert recipe_for(None, "shakespeare", 4.0).model == "characters"
    with pytest.raises(InvalidInput, match="classifies images"):
        recipe_for("paper", "shakespeare", 4.0)
    with pytest.raises(InvalidInput, match="the recipe best is known for"):
        recipe_for("best", "some/directory", 3.0)
    with pytest.raises(InvalidInput, match="recipe"):
        recipe_for("good", "mnist", 3.0)


def test_small_budgets_take_smaller_steps_and_given_options_overrule():
    assert recipe_for("best", "mnist", 1.0).lr < recipe_for("best", "mnist", 3.0).lr
    changed = recipe_for("best", "mnist", 3.0).with_changes(rounds=7, lr=None)
    assert (changed.rounds, changed.lr) == (7, BEST["mnist"].lr)


@pytest.fixture(scope="module")
def striped():
    """Pixels average out, wavelets see it."""
    images, labels = stripes(80)
    return torch.from_numpy(features(images, 27)), torch.from_numpy(labels)


def test_stripes_are_told_apart_by_their_direction(striped):
    inputs, targets = striped
    model, people = feature_model(inputs.shape[1], 2), Clients(inputs, targets)
    optimizer, gradients = build_optimizer("momentum", model, 1.0), Gradients(model, cross_entropy)
    for _ in range(15):
        vectors = np.concatenate([block.copy() for block in gradients.blocks(people, np.arange(60))])
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        set_gradients(model, (vectors * np.minimum(1, 0.1 / norms)).mean(0))
        optimizer.step()
    held_out = model(inputs[60:]).argmax(1)
    assert (held_out == targets[60:]).float().mean() > 0.95


def test_integer_features_have_the_gradients_of_the_numbers_they_stand_for(striped):
    """Bit for bit, for participants and for records of a silo."""
    inputs, targets = striped
    inputs, targets = inputs[:12], targets[:12]
    units, plain = feature_model(inputs.shape[1], 2), torch.nn.Sequential(torch.nn.Linear(inputs.shape[1], 2))
    for model in (units, plain):
        torch.manual_seed(0)
        torch.nn.init.normal_(model[-1].weight, std=0.01)
        torch.nn.init.zeros_(model[-1].bias)
    numbers = torch.from_numpy(in_float32(inputs.numpy()))
    assert torch.equal(FeatureUnits()(inputs), numbers)
    everyone = np.arange(12)
    for kind in (Gradients, RecordGradients):
        one = kind(units, cross_entropy)
        assert one.short_passes, "the fast way takes integers too"
        seen = [block.copy() for block in one.blocks(Clients(inputs, targets), everyone)]
        expected = [
            block.copy() for block in kind(plain, cross_entropy).blocks(Clients(numbers, targets), everyone)
        ]
        assert np.array_equal(np.concatenate(seen), np.concatenate(expected))
        assert np.any(seen[0])


def test_silos_hold_integer_features_as_they_are(striped):
    inputs, targets = striped
    silos = SiloClients.of([(inputs[:40], targets[:40]), (inputs[40:], targets[40:])])
    assert {silo.inputs.dtype for silo in silos.silos} == {torch.int16}
