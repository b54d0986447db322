"""Bisection ends where the condition holds, as near as asked to where it does not."""

import math

import pytest

from skelmix.accounting.bisection import boundary


@pytest.mark.parametrize(("fails", "works"), [(0.0, 2.0), (-5.0, 1e9)])
def test_rising_conditions(fails, works):
    root = boundary(lambda x: x > 0 and x * x >= 2, fails, works, absolute=1e-6)
    assert math.sqrt(2) <= root <= math.sqrt(2) + 1e-6


def test_falling_conditions_and_relative_tolerance():
    calls = []

    def holds(x: float) -> bool:
        calls.append(x)
        return x <= 1e-9

    root = boundary(holds, 1.0, 0.0, relative=1e-3)
    assert 1e-9 * (1 - 1e-3) <= root <= 1e-9
    assert len(calls) < 60


def test_without_a_tolerance_it_ends_at_neighbouring_floats():
    root = boundary(lambda x: x >= 1 / 3, 0.0, 1.0, relative=0.0)
    assert root == 1 / 3


def test_nothing_nearer_holds():
    assert boundary(lambda x: False, 0.0, 1.0, absolute=1e-9) == 1.0
    assert boundary(lambda x: True, 0.0, 1.0, absolute=1e-9) <= 1e-9
