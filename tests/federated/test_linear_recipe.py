"""The linear recipe: known data sets have one, and it learns what a line can tell."""

import numpy as np
import pytest
import torch

from skelmix.datasets.entries import ENTRIES
from skelmix.errors import InvalidInput
from skelmix.federated.gradients import set_gradients
from skelmix.federated.linear_recipe import RECIPES, LinearRecipe, recipe_for
from skelmix.federated.scattering import CHANNELS, features
from skelmix.federated.softmax_regression import clipped_gradient_sum, softmax_model


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_fits_its_data_set(name):
    colours = 3 if name == "cifar-10" else 1
    assert name in ENTRIES
    assert CHANNELS * colours % recipe_for(name).groups == 0


def test_others_have_none():
    with pytest.raises(InvalidInput, match="there is no recipe"):
        recipe_for("shakespeare")
    with pytest.raises(InvalidInput, match="momentum"):
        LinearRecipe(27, 10, 10, 1.0, momentum=1.0)


def test_stripes_are_told_apart_by_their_direction():
    """Horizontal against vertical stripes of random phase, in noise: pixels average out, wavelets see it."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, 80)
    waves = 127 + 90 * np.sin(np.arange(16) * 1.2 + rng.uniform(0, 6.28, (80, 1)))
    images = np.where(labels[:, None, None] == 0, waves[:, :, None], waves[:, None, :])
    images = (images + rng.normal(0, 12, (80, 16, 16))).clip(0, 255).astype(np.uint8)
    recipe = LinearRecipe(groups=27, batch=60, rounds=15, learning_rate=1.0)
    inputs, targets = torch.from_numpy(features(images, recipe.groups)), torch.from_numpy(labels)
    model = softmax_model(inputs.shape[1], 2)
    optimizer = recipe.optimizer(model)
    for _ in range(recipe.rounds):
        total, _ = clipped_gradient_sum(model, inputs[:60], targets[:60], recipe.clip_norm)
        set_gradients(model, (total / recipe.batch).numpy())
        optimizer.step()
    held_out = model(inputs[60:].float() / 1024).argmax(1)
    assert (held_out == targets[60:]).float().mean() > 0.95
