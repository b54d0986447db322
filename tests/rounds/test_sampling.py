"""Cohorts: exact probabilities, checked by feeding chosen bits, and uniform subsets."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from skelmix.errors import InvalidInput
from skelmix.noise.entropy import ReproducibleEntropy, system_entropy
from skelmix.rounds.sampling import draw_cohort, fixed_size, poisson


class Chosen:
    """An entropy that hands out what it is told."""

    def __init__(self, words, below=()):
        self.words, self.below = words, list(below)

    def fill(self, out):
        out[:] = self.words

    def integers_below(self, bound):
        value = self.below.pop(0)
        assert 0 <= value < bound
        return value


def test_a_word_below_the_probability_joins_and_a_tie_is_settled_exactly():
    third = Fraction(1, 3)
    cut = (1 << 64) // 3  # 2^64 = 3·cut + 1: a tie joins with probability 1/3
    words = np.array([0, cut - 1, cut, cut, cut, cut + 1], np.uint64)
    assert poisson(6, third, Chosen(words, below=[0, 1, 2])).tolist() == [0, 1, 2]


def test_probability_zero_and_one():
    assert poisson(5, Fraction(0), Chosen(np.zeros(5, np.uint64), below=[0] * 5)).tolist() == []
    assert poisson(5, Fraction(1), system_entropy()).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidInput):
        poisson(5, Fraction(3, 2), system_entropy())


def test_floyds_subsets_are_uniform():
    # each of the 3·4·5 equally likely outcomes of the draws leads to one of the 10 subsets, each 6 times
    counts = dict.fromkeys(combinations(range(5), 3), 0)
    for outcome in np.ndindex(3, 4, 5):
        counts[tuple(fixed_size(5, 3, Chosen(None, below=list(outcome))).tolist())] += 1
    assert set(counts.values()) == {6}


def test_each_way_of_sampling_gives_its_cohort():
    entropy = ReproducibleEntropy(1)
    assert len(draw_cohort("fixed", 50, 7, entropy)) == 7
    assert draw_cohort("none", 4, 4, entropy).tolist() == [0, 1, 2, 3]
    cohort = draw_cohort("poisson", 60_000, 240, entropy)
    assert 150 < len(cohort) < 330  # six standard deviations
    assert (np.diff(cohort) > 0).all()
