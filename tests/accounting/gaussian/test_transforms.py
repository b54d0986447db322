"""Convolutions by Fourier transforms are within the bounds that their proof gives."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.fft import next_fast_len, rfft

from skelmix.accounting.gaussian import transforms
from skelmix.accounting.gaussian.losses import sampled_gaussian
from skelmix.accounting.gaussian.transforms import (
    convolution,
    convolution_mixture,
    convolution_power,
    forward_error,
)
from skelmix.accounting.participations import Participations

SIZES = [next_fast_len(n, real=True) for n in (5, 64, 243, 625, 1000, 6720, 46_000, 100_000, 2**18, 3**11)]


def exact_transform(place, size):
    """Of a unit mass at `place`, to eighteen digits: the angle is reduced in integers."""
    turns = (place * np.arange(size // 2 + 1, dtype=object)) % size
    angle = turns.astype(np.longdouble) * (2 * np.longdouble("3.14159265358979323846264338327950288") / size)
    return np.cos(angle) - 1j * np.sin(angle)


@pytest.mark.parametrize("size", SIZES)
def test_every_path_through_the_library_is_as_exact_as_the_proof_assumes(size):
    """The transform of a unit mass holds the products of twiddles and butterflies that step 1 bounds."""
    places = np.unique(np.linspace(1, size - 1, 12).astype(int))
    worst = 0.0
    for place in places:
        unit = np.zeros(size)
        unit[place] = 1.0
        worst = max(worst, float(np.abs(rfft(unit) - exact_transform(int(place), size)).max()))
    assert worst <= forward_error(size)


def random_mass(size, seed):
    mass = np.random.default_rng(seed).random(size) ** 8
    return mass / mass.sum()


def exact_product(first, second):
    """In rational numbers: floats are dyadic, and so are their convolutions."""
    result = [Fraction(0)] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            result[i + j] += a * b
    return result


def fractions(mass):
    return [Fraction(float(value)) for value in mass]


def l1_error(found, exact):
    return float(sum(abs(Fraction(float(a)) - b) for a, b in zip(found, exact, strict=False)))


@pytest.mark.parametrize("count", [2, 3, 8])
def test_powers_err_by_no_more_than_the_bound(count):
    mass = random_mass(24, count)
    exact = fractions(mass)
    for _ in range(count - 1):
        exact = exact_product(exact, fractions(mass))
    found, bound = convolution_power(mass, count, next_fast_len(len(exact), real=True))
    assert l1_error(found, exact) <= bound < 1e-12


def test_products_err_by_no_more_than_the_bound():
    first, second = random_mass(60, 1), random_mass(35, 2)
    exact = exact_product(fractions(first), fractions(second))
    found, bound = convolution(first, second, next_fast_len(len(exact), real=True))
    assert l1_error(found, exact) <= bound < 1e-12


def test_a_transform_in_single_precision_breaks_the_bound(monkeypatch):
    monkeypatch.setattr(transforms, "rfft", lambda x, n: rfft(x.astype(np.float32), n).astype(complex))
    mass = random_mass(24, 3)
    exact = exact_product(fractions(mass), fractions(mass))
    found, bound = convolution_power(mass, 2, 48)
    assert l1_error(found, exact) > bound


def test_many_rounds_err_by_less_than_the_bound_says():
    """A thousand rounds at once, and in two parts that are added: both within their bounds of the truth."""
    for losses in sampled_gaussian(1.5, 0.004, 4e-3):
        whole, parts = losses.repeated(1000), losses.repeated(400) + losses.repeated(600)
        for epsilon in (0.0, 1.0, 2.0, 3.0):
            apart = abs(whole.delta(epsilon) - parts.delta(epsilon))
            assert apart <= whole.rounding + parts.rounding + 5e-15
        assert 1e-12 < whole.rounding < 2e-10


def test_the_bound_grows_about_as_the_rounds():
    (losses, _) = sampled_gaussian(1.0, 0.01, 1e-3)
    bounds = [losses.repeated(rounds).rounding for rounds in (100, 1000, 10_000)]
    assert 2 < bounds[1] / bounds[0] < 12
    assert 2 < bounds[2] / bounds[1] < 12
    assert math.isfinite(bounds[2])


@pytest.mark.parametrize(
    "participations",
    [Participations(6), Participations(9, cap=4), Participations(12, 0.25), Participations(40, 0.25, cap=12)],
    ids=["fixed", "fixed-cap", "binomial", "binomial-cap"],
)
def test_a_random_number_of_copies_is_within_its_bound(participations):
    mass = np.array([0.25, 0.5, 0.25])
    counts, weights, above = participations.masses()
    size = next_fast_len(2 * participations.rounds + 3, real=True)
    exact = np.zeros(size, object)
    for count, weight in zip(
        (*counts.tolist(), participations.most), (*weights.tolist(), above), strict=True
    ):
        term = np.array([Fraction(1)], object)
        for _ in range(count):
            term = np.convolve(term, [Fraction(float(one)) for one in mass])
        exact[: len(term)] += Fraction(float(weight)) * term
    found, bound = convolution_mixture(mass, size, participations.generating)
    error = float(sum(abs(Fraction(float(one)) - other) for one, other in zip(found, exact, strict=True)))
    assert error <= bound < 1e-11
    unproved = convolution_mixture(mass, size, lambda z, error: (participations.generating(z)[0], 0 * abs(z)))
    assert unproved[1] < bound
