"""From the error rates of a test to a lower bound on ε, with exact confidence.

A mechanism is (ε, δ)-private only if every test of "the participant sent its vector" against "it sent zero"
has TPR <= e^ε·FPR + δ and TNR <= e^ε·FNR + δ (Kairouz, Oh and Viswanath 2015). The rates are binomial
proportions; Clopper and Pearson's limits hold for them exactly, at any number of trials.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import beta

from skelmix.arrays import FloatArray
from skelmix.errors import InvalidInput
from skelmix.validation import probability

_CANDIDATES = 2_000


def rate_at_least(hits: Any, trials: int, error: float) -> FloatArray:
    """A Clopper-Pearson lower limit: the true rate is below it with probability at most `error`."""
    hits = np.asarray(hits)
    return np.where(hits == 0, 0.0, beta.ppf(error, np.maximum(hits, 1), trials - hits + 1))


def rate_at_most(hits: Any, trials: int, error: float) -> FloatArray:
    """A Clopper-Pearson upper limit: the true rate is above it with probability at most `error`."""
    hits = np.asarray(hits)
    return np.where(hits == trials, 1.0, beta.isf(error, hits + 1, np.maximum(trials - hits, 1)))


@dataclass(frozen=True)
class Bounded:
    """A lower bound on ε and the test that gave it: scores >= threshold say "sent its vector"."""

    epsilon: float
    threshold: float
    direction: str
    true_positives: float
    false_positives: float


def epsilon_at_least(
    with_vector: FloatArray, without: FloatArray, *, delta: float, confidence: float
) -> Bounded:
    """A lower bound `epsilon` on the ε of the mechanism, right with probability `confidence`.

    with_vector, without: scores of independent trials in the two worlds, as many in each; higher means more
    like the first. The thresholds, one per direction, are chosen on the first quarter of the trials and
    judged on the rest, so that the choice costs nothing; the four one-sided limits share the error. 0 when no
    test shows anything. NaN, infinite and too few scores raise `InvalidInput`.
    """
    probability(delta=delta, confidence=confidence)
    count = len(with_vector)
    if count != len(without) or count < 4:
        raise InvalidInput(f"{count} and {len(without)} scores: pass equally many per world, at least 4")
    if not (np.isfinite(with_vector).all() and np.isfinite(without).all()):
        raise InvalidInput("scores: NaN or infinity; a likelihood ratio must be cut off before it is passed")
    error = (1 - confidence) / 4
    chosen_on = count // 4
    bounds = [Bounded(0.0, math.inf, "none", 0.0, 0.0)]
    # "reverse" is the same question with the worlds' names and the sign of the score exchanged
    for direction, here, there in (("forward", with_vector, without), ("reverse", -without, -with_vector)):
        cuts = np.unique(
            np.quantile(np.concatenate([here[:chosen_on], there[:chosen_on]]), _steps(), method="lower")
        )
        threshold = cuts[int(np.argmax(_epsilons(here[:chosen_on], there[:chosen_on], cuts, delta, error)))]
        judged = _epsilons(here[chosen_on:], there[chosen_on:], np.array([threshold]), delta, error)[0]
        kept = float(threshold) if direction == "forward" else -float(threshold)
        bounds.append(
            Bounded(
                float(judged),
                kept,
                direction,
                float(np.mean(with_vector[chosen_on:] >= kept)),
                float(np.mean(without[chosen_on:] >= kept)),
            )
        )
    return max(bounds, key=lambda bound: bound.epsilon)


def _steps() -> FloatArray:
    """Quantiles to try as thresholds: dense in the upper tail, where the best one lies."""
    return np.concatenate([np.linspace(0, 1, _CANDIDATES), 1 - np.geomspace(1e-7, 1, _CANDIDATES)])


def _epsilons(
    here: FloatArray, there: FloatArray, cuts: FloatArray, delta: float, error: float
) -> FloatArray:
    """ln((hits in `one` - δ)/(hits in `other`)) for each threshold, by the limits, at least 0."""
    count = len(here)
    hits = count - np.searchsorted(np.sort(here), cuts)
    alarms = count - np.searchsorted(np.sort(there), cuts)
    low = rate_at_least(hits, count, error) - delta
    high = rate_at_most(alarms, count, error)
    return np.log(np.maximum(low / high, 1.0))
