"""The thresholds of sampling tables are exact: mpmath and enumerated bits agree with every one."""

import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from helpers.precise import mp
from skelmix.noise.certified import resolve, thresholds
from skelmix.noise.laws import Binomial, DiscreteGaussian, DiscreteGaussianSum, Poisson, Skellam
from skelmix.noise.table import ExactSampler

ONES = (1 << 64) - 1


def _mpmath_floors(mass, first, count, below):
    """floor(F(k)·2^64) by mpmath alone: masses summed up with 120 digits."""
    with mpmath.workdps(120):
        total, floors = below(), []
        for k in range(first, first + count):
            total += mass(k)
            floors.append(int(mpmath.floor(total * 2**64)))
        return floors


@pytest.mark.parametrize("rate", [1e-6, 0.25, 1, 5.95, Fraction(59, 7), 16])
def test_every_skellam_threshold_is_the_floor_that_mpmath_finds(rate):
    first, steps = thresholds(Skellam(rate), 64)

    def mass(k):
        return mpmath.exp(-2 * mp(rate)) * mpmath.besseli(abs(k), 2 * mp(rate))

    assert steps == _mpmath_floors(
        mass, first, len(steps), lambda: sum(mass(k) for k in range(first - 60, first))
    )


@pytest.mark.parametrize("rate", [0.3, 7, 123.456])
def test_every_poisson_threshold_is_the_floor_that_mpmath_finds(rate):
    first, steps = thresholds(Poisson(rate), 64)

    def mass(k):
        return mpmath.exp(-mp(rate)) * mp(rate) ** k / mpmath.factorial(k)

    assert steps == _mpmath_floors(
        mass, first, len(steps), lambda: sum((mass(k) for k in range(first)), mpmath.mpf(0))
    )


@pytest.mark.parametrize("variance", [0.2, 3, Fraction(100, 3)])
def test_every_discrete_gaussian_threshold_is_the_floor_that_mpmath_finds(variance):
    first, steps = thresholds(DiscreteGaussian(variance), 64)

    def mass(k):
        norm = mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * mp(variance))))
        return mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mp(variance))) / norm

    assert steps == _mpmath_floors(
        mass, first, len(steps), lambda: sum(mass(k) for k in range(first - 80, first))
    )


@pytest.mark.parametrize(("variance", "copies"), [(0.2, 2), (3, 3), (Fraction(7, 10), 5)])
def test_every_threshold_of_summed_discrete_gaussians_is_the_floor_that_mpmath_finds(variance, copies):
    reach = 40  # e^-260 beyond it
    with mpmath.workdps(120):
        norm = mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * mp(variance))))
        weights = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mp(variance))) for k in range(-reach, reach + 1)]
        single = [weight / norm for weight in weights]
        summed = [mpmath.mpf(1)]
        for _ in range(copies):
            longer = [mpmath.mpf(0)] * (len(summed) + 2 * reach)
            for i, a in enumerate(summed):
                for j, b in enumerate(single):
                    longer[i + j] += a * b
            summed = longer

    def mass(k):
        return summed[k + copies * reach]

    first, steps = thresholds(DiscreteGaussianSum(variance, copies), 64)
    assert steps == _mpmath_floors(
        mass, first, len(steps), lambda: sum(mass(k) for k in range(-copies * reach, first))
    )


@pytest.mark.parametrize(
    "law",
    [
        Binomial(1, 0.3),
        Binomial(11, 0.5),
        Binomial(64, 0.5),
        Binomial(200, Fraction(1, 3)),
        Binomial(40, 0.5, centred=True),
    ],
)
def test_every_binomial_threshold_is_the_exact_floor(law):
    first, steps = thresholds(law, 64)
    p, n = Fraction(law.probability), law.trials
    shift = n // 2 if law.centred else 0
    total, exact = Fraction(0), {}
    for k in range(n + 1):
        total += math.comb(n, k) * p**k * (1 - p) ** (n - k)
        exact[k - shift] = (total.numerator << 64) // total.denominator
    kept = {k: floor for k, floor in exact.items() if first <= k < first + len(steps)}
    assert steps == list(kept.values())
    assert all(floor == 0 for k, floor in exact.items() if k < first)
    assert all(floor >= ONES for k, floor in exact.items() if k >= first + len(steps))


@pytest.mark.parametrize("rate", [10**6, 10**8])
def test_steps_of_wide_tables_agree_with_single_masses(rate):
    law = Skellam(rate)
    first, steps = thresholds(law, 64)
    for index in np.linspace(1, len(steps) - 1, 12).astype(int):
        mass = law.pmf_ball(first + int(index), 128) * 2**64
        assert abs(steps[index] - steps[index - 1] - float(mass.mid())) <= 1 + 1e-15 * float(mass.mid())


@pytest.mark.parametrize(
    "law", [Skellam(0.25), Skellam(5000), Skellam(10**7), Binomial(11, 0.5), Poisson(2)], ids=repr
)
def test_a_first_level_entry_holds_a_value_only_if_its_whole_interval_lies_in_one_step(law):
    exact = ExactSampler(law)
    steps = [0, *(int(t) for t in exact.steps), ONES]
    for index in [
        *range(0, 1 << 16, 97),
        0,
        0xFFFF,
        *(t >> 48 for t in steps[1:-1][:: max(1, len(steps) // 200)]),
    ]:
        value = int(exact.values[index])
        start, end = index << 48, (index << 48) | ((1 << 48) - 1)
        holds_threshold = np.any((exact.steps >= np.uint64(start)) & (exact.steps <= np.uint64(end)))
        if value == int(exact.sentinel):
            assert holds_threshold or index in (0, 0xFFFF)
        else:
            place = value - exact.first + 1  # steps[place - 1] < interval < steps[place]
            assert steps[place - 1] < start
            assert end < steps[place]


@pytest.mark.parametrize(
    "law",
    [Binomial(3, 0.5), Binomial(2, Fraction(1, 3)), Poisson(0.5), Skellam(0.5), DiscreteGaussian(0.7)],
    ids=repr,
)
@pytest.mark.parametrize("bits", [4, 8, 12])
def test_enumerated_bits_give_each_value_its_exact_share(law, bits):
    def undecided():
        raise LookupError

    decided: Counter[int] = Counter()
    open_cells = 0
    for drawn in range(1 << bits):
        try:
            decided[resolve(law, drawn, bits, undecided)] += 1
        except LookupError:
            open_cells += 1
    assert open_cells <= len(thresholds(law, bits)[1]) + 2
    low, high = law.support_bound(-60.0)
    for k in range(low, high + 1):
        mass = Fraction(float(law.pmf(k)))
        share = Fraction(decided[k], 1 << bits)
        assert share <= mass + Fraction(1, 10**12)  # what is decided never exceeds the mass
        assert mass - share <= Fraction(2, 1 << bits) + Fraction(
            1, 10**12
        )  # what is open is at most both end cells
