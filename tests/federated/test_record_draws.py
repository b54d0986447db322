"""Random numbers drawn for one record are a function of the round, not of the records before it."""

import random

import numpy as np
import pytest
import torch

from skelmix.federated import Clients
from skelmix.federated.record_draws import draw_states, fixed_draws
from skelmix.federated.records import RecordGradients


def draws():
    return float(torch.rand(())), float(np.random.rand()), random.random()


def test_each_start_gives_the_same_draws():
    with fixed_draws(3) as start_again:
        first = draws()
        assert draws() != first
        start_again()
        assert draws() == first
    with fixed_draws(4):
        assert all(one != other for one, other in zip(draws(), first, strict=True))


def test_outside_nothing_was_drawn():
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    expected = draws()
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    with fixed_draws():
        draws()
    assert draws() == expected


@pytest.mark.parametrize("draw", [lambda: torch.rand(()), np.random.rand, random.random])
def test_a_draw_shows_in_the_states(draw):
    before = draw_states()
    assert draw_states() == before
    draw()
    assert draw_states() != before


def test_a_draw_by_another_thread_does_not_refuse_the_model():
    """Flower's heartbeat draws from Python's generator now and then, in the process that trains."""
    passing = iter([random.random])

    def loss(outputs, targets):
        next(passing, float)()
        return torch.nn.functional.mse_loss(outputs, targets) + 0 * outputs.sum().exp()

    people = Clients(torch.ones(2, 3), torch.zeros(2, 1))
    gradients = RecordGradients(torch.nn.Linear(3, 1), loss)
    assert sum(len(block) for block in gradients.blocks(people, np.arange(2))) == 2
