"""Random numbers, and modes of torch and NumPy, that are the same for every record.

A record's vector must be a function of that record and the public model. Code of the user's that runs on a
record (a data set that crops or flips, a loss, a layer) may draw random numbers; the state of a generator
then carries what earlier records did with it into the next one. So does a mode that is switched and, because
a record fails, not switched back: without gradients, all later records would fail. So common generators and
modes are set to the same state before each record, and given back as they were in the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def fixed_draws(number: int = 0) -> Iterator[Callable[[], None]]:
    """Within the block, calling what it gives sets torch's, NumPy's and Python's generators by `number`.

    It sets torch's grad mode and default dtype, and what NumPy does about overflow, as they were. Afterwards
    all go on as if nothing had been drawn or set. A data set's own generators are out of reach.
    """
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    gradients, dtype, errors = torch.is_grad_enabled(), torch.get_default_dtype(), np.geterr()

    def modes_as_before() -> None:
        torch.set_grad_enabled(gradients)
        torch.set_default_dtype(dtype)
        np.seterr(**errors)

    def start_again() -> None:
        modes_as_before()
        torch.default_generator.manual_seed(number)
        np.random.seed(number % 2**32)
        random.seed(number)

    start_again()
    try:
        yield start_again
    finally:
        modes_as_before()
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])


def draw_states() -> tuple[object, ...]:
    """The states of the three generators, to compare: equal where nothing was drawn in between."""
    numpy = np.random.get_state(legacy=False)
    words, place = numpy["state"]["key"].tobytes(), numpy["state"]["pos"]
    return torch.get_rng_state().numpy().tobytes(), words, place, numpy["has_gauss"], random.getstate()
