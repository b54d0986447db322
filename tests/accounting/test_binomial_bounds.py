"""Binomial probabilities, against exact fractions and 60 digits: never below the truth, and hardly above."""

from fractions import Fraction
from math import comb

import mpmath
import pytest

from skelmix.accounting.binomial_bounds import binomial
from skelmix.errors import InvalidInput


def true_mass(n, p, k):
    with mpmath.workdps(60):
        p = mpmath.mpf(p)
        return mpmath.binomial(n, k) * p**k * (1 - p) ** (n - k)


@pytest.mark.parametrize(
    ("n", "p"),
    [(1, 0.3), (7, 0.5), (1_000, 0.004), (1_000, 0.9996), (59_999, 0.0036), (10**7, 1e-9), (10**8, 0.37)],
)
def test_masses_are_never_below_the_truth_and_within_a_billionth(n, p):
    law = binomial(n, p)
    for k in {law.first, law.last, *(law.first + i * (len(law.mass) - 1) // 9 for i in range(10))}:
        truth, listed = true_mass(n, p, k), law.mass[k - law.first]
        assert truth <= listed <= truth * (1 + 1e-9)
    assert 1 <= law.mass.sum() + law.below + law.above < 1 + 1e-9


@pytest.mark.parametrize(("n", "p"), [(9, Fraction(1, 4)), (30, Fraction(7, 8)), (200, Fraction(1, 64))])
def test_tails_are_exact_sums_from_above(n, p):
    law = binomial(n, float(p))
    masses = [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    for k in range(n + 1):
        lower, upper = sum(masses[: k + 1]), sum(masses[k:])
        assert lower <= Fraction(law.at_most(k)) <= lower * (1 + Fraction(1, 10**9))
        assert upper <= Fraction(law.at_least(k)) <= upper * (1 + Fraction(1, 10**9)) + Fraction(1, 10**270)


def test_what_is_not_listed_is_bounded_too():
    law = binomial(10**8, 0.37)
    with mpmath.workdps(60):
        next_mass = true_mass(10**8, 0.37, law.last + 1)
    assert next_mass <= law.above < 1e-270
    assert true_mass(10**8, 0.37, law.first - 1) <= law.below < 1e-270
    assert law.at_least(law.last + 1) == law.above
    assert law.at_most(law.first - 1) == law.below


def test_certain_events():
    assert (binomial(5, 0.0).first, binomial(5, 1.0).first, binomial(0, 0.5).first) == (0, 5, 0)
    assert binomial(5, 1.0).at_most(4) == 0
    assert binomial(5, 1.0).at_least(5) == 1


def test_bad_arguments_are_named():
    with pytest.raises(InvalidInput, match="probability"):
        binomial(5, 1.5)
    with pytest.raises(InvalidInput, match="trials"):
        binomial(-1, 0.5)
