"""The printed algorithms, by exact enumeration of their random choices."""

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

from helpers.hypothesis_tests import follows
from skelmix.errors import InvalidInput
from skelmix.noise import paper
from skelmix.noise.entropy import ReproducibleEntropy
from skelmix.noise.laws import DiscreteGaussian, Skellam
from skelmix.noise.table import sampler


class _Choice(Exception):
    def __init__(self, width):
        self.width = width


def _enumerate(draw, least):
    """Exact masses by value over all paths of probability at least `least`, and the mass not followed."""
    masses, open_mass = defaultdict(Fraction), Fraction(0)
    paths = [((), Fraction(1))]
    while paths:
        path, mass = paths.pop()
        if mass < least:
            open_mass += mass
            continue
        try:
            masses[draw(_replay(path))] += mass
        except _Choice as choice:
            paths += [((*path, i), mass / choice.width) for i in range(1, choice.width + 1)]
    return masses, open_mass


def _replay(path):
    """A randint that repeats the choices of a path and raises at the first one beyond."""
    rest = list(path)

    def randint(n):
        if not rest:
            raise _Choice(n)
        return rest.pop(0)

    return randint


def _agrees(draw, mass_of, least=Fraction(1, 3000)):
    masses, open_mass = _enumerate(draw, least)
    assert open_mass < Fraction(1, 2)
    assert sum(masses.values()) + open_mass == 1
    for value, mass in masses.items():
        assert float(mass) <= mass_of(value) + 1e-12
        assert mass_of(value) - float(mass) <= float(open_mass) + 1e-12
    return masses


def _poisson_mass(rate):
    return lambda k: math.exp(-rate) * rate**k / math.factorial(k)


def test_algorithm_7_gives_poisson_one():
    masses = _agrees(paper.poisson_one, _poisson_mass(1), Fraction(1, 10**5))
    assert float(masses[0]) == pytest.approx(math.exp(-1), abs=1e-2)


def test_algorithm_8_gives_poisson_below_one():
    _agrees(lambda r: paper.poisson_below_one(1, 2, r), _poisson_mass(0.5), Fraction(1, 20_000))


@pytest.mark.parametrize(("p", "q"), [(0, 3), (3, 7), (7, 7)])
def test_algorithm_9_is_an_exact_bernoulli(p, q):
    masses, open_mass = _enumerate(lambda r: paper.bernoulli(p, q, r), Fraction(0))
    assert open_mass == 0
    assert masses[1] == Fraction(p, q)


def test_algorithm_10_gives_poisson():
    assert paper.poisson(0, 1, lambda n: 1 / 0) == 0
    _agrees(lambda r: paper.poisson(1, 1, r), _poisson_mass(1))
    _agrees(lambda r: paper.poisson(3, 2, r), _poisson_mass(1.5), Fraction(1, 30_000))


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 2), Fraction(1), Fraction(5, 2)])
def test_bernoulli_of_an_exponential_is_exact(gamma):
    masses, open_mass = _enumerate(lambda r: paper.bernoulli_exp(gamma, r), Fraction(1, 10**5))
    assert abs(float(masses[1]) - math.exp(-gamma)) <= float(open_mass) + 1e-12
    assert open_mass < Fraction(1, 100)


def test_the_discrete_laplace_and_gaussian_are_exact():
    weight = math.exp(-1)
    _agrees(lambda r: paper.discrete_laplace(1, r), lambda k: (1 - weight) / (1 + weight) * weight ** abs(k))
    law = DiscreteGaussian(Fraction(1, 2))
    _agrees(
        lambda r: paper.discrete_gaussian(Fraction(1, 2), r), lambda k: float(law.pmf(k)), Fraction(1, 10**4)
    )


@pytest.mark.parametrize(
    ("law", "draw"),
    [
        (Skellam(Fraction(7, 4)), lambda r: paper.skellam(Fraction(7, 4), r)),
        (DiscreteGaussian(3), lambda r: paper.discrete_gaussian(3, r)),
    ],
    ids=["Algorithm 10", "CKS"],
)
def test_slow_references_and_fast_tables_follow_the_same_law(law, draw):
    randint = paper.randint_from(ReproducibleEntropy(21))
    slow = np.array([draw(randint) for _ in range(20_000)])
    fast = sampler(law).sample(10**6, entropy=ReproducibleEntropy(22))
    cuts = range(-5, 6)

    def cdf(k):
        return float(law.cdf_ball(k).mid())

    assert follows(slow, cdf, cuts)
    assert follows(fast, cdf, cuts)
    assert not follows(slow + 1, cdf, cuts)


def test_randint_stays_in_range_and_reaches_both_ends():
    randint = paper.randint_from()
    for n in (1, 2, 5, 256, 257):
        drawn = {randint(n) for _ in range(40 * n)}
        assert min(drawn) == 1
        assert max(drawn) <= n
    assert {randint(2) for _ in range(100)} == {1, 2}
    assert 1 <= randint(1 << 40_000) <= 1 << 40_000


def test_bad_parameters_are_refused():
    randint = paper.randint_from()
    for call in (
        lambda: paper.poisson(-1, 1, randint),
        lambda: paper.poisson(1, 0, randint),
        lambda: paper.poisson_below_one(2, 2, randint),
        lambda: paper.bernoulli(3, 2, randint),
        lambda: paper.bernoulli_exp(Fraction(-1), randint),
        lambda: paper.discrete_gaussian(0, randint),
        lambda: paper.skellam(float("nan"), randint),
    ):
        with pytest.raises(InvalidInput):
            call()
