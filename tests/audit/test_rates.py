"""Lower bounds on ε from error rates: exact, never above the truth, and close to it."""

import numpy as np
import pytest
from scipy import stats

from skelmix.audit.rates import epsilon_at_least, rate_at_least, rate_at_most
from skelmix.errors import InvalidInput


def test_clopper_pearson_inverts_the_binomial_tail_exactly():
    for trials, hits in [(10, 3), (1000, 1), (1000, 999), (50, 25)]:
        low, high = rate_at_least(hits, trials, 1e-3), rate_at_most(hits, trials, 1e-3)
        assert stats.binom.sf(hits - 1, trials, low) == pytest.approx(1e-3, rel=1e-6)
        assert stats.binom.cdf(hits, trials, high) == pytest.approx(1e-3, rel=1e-6)


def test_clopper_pearson_at_the_ends():
    assert rate_at_least(0, 100, 1e-3) == 0
    assert rate_at_most(100, 100, 1e-3) == 1
    assert rate_at_most(0, 100, 1e-3) == pytest.approx(1 - 1e-3 ** (1 / 100))


def randomised_response(epsilon, trials, rng):
    """Scores of a mechanism that is exactly (ε, 0)-private: it tells the truth with odds e^ε."""
    truth = rng.random(trials) < 1 / (1 + np.exp(-epsilon))
    lie = rng.random(trials) < 1 / (1 + np.exp(epsilon))
    return truth.astype(float), lie.astype(float)


def test_the_bound_finds_a_known_epsilon_and_does_not_exceed_it():
    rng = np.random.default_rng(5)
    for epsilon in (0.5, 2.0):
        scores = randomised_response(epsilon, 200_000, rng)
        found = epsilon_at_least(*scores, delta=1e-9, confidence=1 - 1e-6).epsilon
        assert 0.9 * epsilon < found <= epsilon


def test_confidence_is_what_it_says():
    """At confidence 1/2 a bound may exceed the truth in half of the runs, and no more."""
    rng = np.random.default_rng(6)
    runs, failures = 60, 0
    for _ in range(runs):
        scores = randomised_response(1.0, 400, rng)
        failures += epsilon_at_least(*scores, delta=1e-9, confidence=0.5).epsilon > 1.0
    assert 0 < failures <= runs / 2


def test_both_directions_are_tried():
    """Only "it was not there" can be told for sure: the forward direction alone would see little."""
    rng = np.random.default_rng(7)
    with_vector = np.ones(20_000)
    without = (rng.random(20_000) < 0.5).astype(float)
    found = epsilon_at_least(with_vector, without, delta=1e-6, confidence=0.999)
    assert found.direction == "reverse"
    assert found.epsilon > 5


def test_equal_worlds_show_nothing():
    scores = np.random.default_rng(8).normal(size=(2, 50_000))
    assert epsilon_at_least(scores[0], scores[1], delta=1e-6, confidence=1 - 1e-6).epsilon < 0.05


@pytest.mark.parametrize("bad", [[np.nan] * 8, [np.inf] * 8, [0.0] * 3, [0.0] * 9])
def test_scores_that_mean_nothing_are_refused(bad):
    with pytest.raises(InvalidInput):
        epsilon_at_least(np.array(bad), np.zeros(8), delta=1e-6, confidence=0.9)
