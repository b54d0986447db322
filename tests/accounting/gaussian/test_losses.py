"""Each direction by itself, against 60 digits: never below the truth."""

import math

import mpmath
import numpy as np
import pytest

from skelmix.accounting.gaussian.losses import sampled_gaussian
from skelmix.accounting.gaussian.pld import _Gaussian, _Sampled

ROUNDING = 1e-15


def _normal(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def _pair(loss, mu):
    """H_l(N(mu,1)‖N(0,1))."""
    return _normal(mu / 2 - loss / mu) - mpmath.exp(loss) * _normal(-mu / 2 - loss / mu)


def true_delta(epsilon, mu, q, swapped):
    with mpmath.workdps(60):
        epsilon, mu, q = (mpmath.mpf(float(value)) for value in (epsilon, mu, q))
        if swapped:
            inner = 1 + mpmath.expm1(-epsilon) / q  # e^-l
            if inner <= 0:
                return 0.0
            return float(q * mpmath.exp(epsilon) * inner * _pair(-mpmath.log(inner), mu))
        inner = 1 + mpmath.expm1(epsilon) / q
        if inner <= 0:
            return float(-mpmath.expm1(epsilon))
        return float(q * _pair(mpmath.log(inner), mu))


CASES = [
    (mu, q, interval)
    for mu in (1e-3, 0.3, 1.5, 5.0, 8.0)
    for q in (1e-9, 1e-3, 0.3, 0.5, 0.9, 1 - 1e-6, 1 - 1e-12, 1.0)
    for interval in (4e-3, 0.05)
]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("mu", "q", "interval"), CASES)
def test_a_round_is_never_below_the_truth_in_either_direction(mu, q, interval, swapped):
    losses = sampled_gaussian(mu, q, interval)[swapped]
    last = losses.first + len(losses.mass) - 1
    steps = np.unique(np.linspace(losses.first - 2, last + 2, 40).round())
    on_grid, between = steps * interval, (steps + 0.37) * interval
    for epsilon in (*on_grid, *between):
        truth = true_delta(epsilon, mu, q, swapped)
        assert truth <= losses.delta(epsilon) + ROUNDING * (1 + 10 * truth)  # a sum of thousands of terms
    middle = losses.first + np.searchsorted(np.cumsum(losses.mass), 0.5)
    if losses.first < middle < last:  # and the truth itself on the grid, but for what clipping adds
        truth = true_delta(middle * interval, mu, q, swapped)
        assert losses.delta(middle * interval) == pytest.approx(truth, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("mu", "q", "interval"), [case for case in CASES if case[2] == 4e-3])
def test_epsilon_inverts_delta(mu, q, interval):
    for losses in sampled_gaussian(mu, q, interval):
        for delta in (1e-12, 1e-6, 0.1):
            epsilon = losses.epsilon(delta)
            assert losses.delta(epsilon) <= delta * (1 + 1e-9) + ROUNDING
            assert epsilon == 0 or losses.delta(epsilon * (1 - 1e-6) - 1e-9) > delta * (1 - 1e-9) - ROUNDING


def test_a_round_with_hardly_any_loss_is_a_distribution_all_the_same():
    for losses in sampled_gaussian(1e-9, 1e-9, 1.0):
        assert losses.mass.sum() + losses.infinite >= 1 - 1e-15
        assert losses.delta(0.0) + ROUNDING >= true_delta(0.0, 1e-9, 1e-9, False)


@pytest.mark.parametrize("rounds", [2, 3, 50])
def test_unsampled_rounds_compose_as_the_closed_form_says(rounds):
    """Composition, wrap-around and cut included: mu·√rounds."""
    for losses in sampled_gaussian(0.7, 1.0, 2e-3):
        repeated, added = losses.repeated(rounds), losses
        for _ in range(rounds - 1):
            added = added + losses
        for epsilon in (0.0, 0.5, 2.0, 6.0):
            truth = true_delta(epsilon, 0.7 * math.sqrt(rounds), 1.0, False)
            for found in (repeated, added):
                assert truth <= found.delta(epsilon) + 1e-12
                assert found.delta(epsilon) == pytest.approx(truth, rel=2e-4, abs=1e-12)
        assert len(added.mass) < rounds * len(losses.mass) or rounds < 50


@pytest.mark.parametrize("mu", [1e-9, 1e-7, 1e-5, 1e-3, 1.0, 6.0])
def test_the_closed_form_is_never_below_the_truth(mu):
    for epsilon in np.linspace(0, mu * (mu + 8), 30):
        assert true_delta(epsilon, mu, 1.0, False) <= _Gaussian(mu).delta(float(epsilon))


def test_one_round_needs_no_allowance_for_transforms():
    both = sampled_gaussian(1.0, 0.01, 4e-3)
    twice = tuple(losses.repeated(2) for losses in both)
    assert both[0].rounding == 0 < twice[0].rounding
    assert _Sampled(both, 1).epsilon(1e-13) < _Sampled(twice, 2).epsilon(1e-13) == math.inf
