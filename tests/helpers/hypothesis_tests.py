"""One statistical test for the whole suite.

A sampler is tested by events that are fixed before the samples are drawn: {X <= k} for a list of cuts k.
The number of samples in such an event is exactly binomial, so its tail is computed exactly, and the union
bound over the events gives a p-value that is a true bound, at any sample size and in any tail. The suite as
a whole may fail by bad luck with probability at most `BUDGET`; it is split over at most `MOST_TESTS` calls
of `follows` that expect True. Each use stands beside a negative control.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

BUDGET = 1e-6
MOST_TESTS = 200
SHARE = BUDGET / MOST_TESTS


def p_value(samples: np.ndarray, cdf: Callable[[int], float], cuts: Sequence[int]) -> float:
    """A bound on the probability, under the law with this CDF, of counts as extreme as those seen."""
    values = np.asarray(samples).reshape(-1)
    smallest = 1.0
    for cut in cuts:
        count = int(np.count_nonzero(values <= cut))
        law = stats.binom(values.size, cdf(cut))
        smallest = min(smallest, law.cdf(count), law.sf(count - 1))
    return min(1.0, 2 * len(cuts) * smallest)


def follows(samples: np.ndarray, cdf: Callable[[int], float], cuts: Sequence[int]) -> bool:
    """Whether the samples are compatible with the law; a right sampler fails with probability <= `SHARE`."""
    return p_value(samples, cdf, cuts) > SHARE
