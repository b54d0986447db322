"""The next-character model: it looks back only, fits user-level training, and learns."""

import math

import numpy as np
import torch

from skelmix.datasets.text import ALPHABET, character_windows
from skelmix.federated.characters import CharacterModel, Perplexity, character_clients, character_loss
from skelmix.federated.gradients import Gradients, LocalSteps, dimension
from skelmix.federated.recipes import try_out

WINDOWS = character_windows({"ann": "To be, or not to be. " * 20, "bob": "Ay, but to die. " * 11}, length=16)


def test_a_prediction_depends_on_the_characters_before_it_only():
    model, codes = CharacterModel(context=3), torch.from_numpy(WINDOWS.inputs[:1]).long()
    changed = codes.clone()
    changed[0, 8] = (changed[0, 8] + 1) % len(ALPHABET)
    same = (model(codes) == model(changed)).all(2)[0]
    assert same.nonzero()[:, 0].tolist() == [place for place in range(16) if place not in (8, 9, 10)]


def test_it_has_as_many_weights_as_it_says():
    assert dimension(CharacterModel()) == 9600


def test_people_are_participants_and_local_steps_lower_their_loss():
    clients, model = character_clients(WINDOWS), CharacterModel()
    try_out(model, character_loss, clients)
    assert len(clients) == 2
    local = LocalSteps(steps=3, learning_rate=0.5, batch=4)
    vectors = np.concatenate(
        [
            block.copy()
            for block in Gradients(model, character_loss, local=local).blocks(clients, np.arange(2))
        ]
    )
    assert vectors.shape == (2, dimension(model))
    before = Perplexity(WINDOWS)(model)
    step = torch.from_numpy(vectors.mean(0)) * 0.5
    with torch.no_grad():
        for value in model.parameters():
            value -= step[: value.numel()].view(value.shape)
            step = step[value.numel() :]
    assert Perplexity(WINDOWS)(model) < 0.95 * before


def test_a_model_that_knows_nothing_has_the_perplexity_of_the_alphabet():
    model = CharacterModel()
    with torch.no_grad():
        for value in model.parameters():
            value.zero_()
    assert math.isclose(Perplexity(WINDOWS)(model), 64, rel_tol=1e-5)
