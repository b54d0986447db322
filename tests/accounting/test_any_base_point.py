"""All certified bounds hold for a record on top of any sum: exact divergences at base points everywhere in
[0, 1), in either orientation."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtri

from helpers.profiles import convolved_profiles, gaussian_profile, hockey_stick, silo_pair
from skelmix.accounting.gaussian.certificate import gdp_certificate
from skelmix.accounting.gaussian.flat import flat_certificate
from skelmix.accounting.rdp.mixture_constant import kappa
from skelmix.noise.laws import DiscreteGaussianSum, Skellam

LAWS = [Skellam(0.9), Skellam(4.3), Skellam(30.0), DiscreteGaussianSum(0.4, 15)]
SHIFTS = [0.08, 0.3, 0.77, 1.0, 1.6, 3.25]
ORDERS = (2, 5, 16)
SLACK = 1e-9


def _breaks(x):
    """Base points in [0, 1] between which the pair is affine: the base, or base + x, is an integer."""
    return sorted({0.0, 1.0 - (x - math.floor(x)), 1.0})


def _bases(x):
    return sorted({*np.linspace(0, 1, 21).tolist(), *_breaks(x)})


def _reach(law):
    return int(14 * math.sqrt(law.variance)) + 12


def _renyi(p, q, order):
    inside = (p > 1e-250) & (q > 1e-250)
    p, q = p[inside], q[inside]
    return math.log(np.sum(q * np.exp(order * np.log(p / q)))) / (order - 1)


def _both(law, base, x, order):
    without, record = silo_pair(law, base, x, _reach(law) + math.ceil(4 * order * x))
    return max(_renyi(record, without, order), _renyi(without, record, order))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("x", SHIFTS)
def test_renyi_divergences_are_largest_at_the_breaks_and_below_kappa(law, x):
    bounds = kappa(law, x, ORDERS)
    for order, bound in zip(ORDERS, bounds, strict=True):
        at_zero = _both(law, 0.0, x, order)
        found = [_both(law, base, x, order) for base in _bases(x)]
        assert max(found) <= at_zero * (1 + 1e-10)
        assert max(found) <= bound * x * x


def test_one_direction_alone_is_exceeded():
    """D(P_0‖P_x) is the smaller one here; a reversed coordinate puts the larger one in its place."""
    law, x, order = Skellam(0.9), 0.3, 16
    without, record = silo_pair(law, 0.0, x, _reach(law))
    smaller = _renyi(without, record, order)
    without, record = silo_pair(law, -x, x, _reach(law))
    assert _renyi(without, record, order) > 1.2 * smaller


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("x", SHIFTS)
def test_hockey_stick_divergences_are_largest_at_the_breaks(law, x):
    epsilons = np.linspace(0, 4, 9)

    def profile(base):
        without, record = silo_pair(law, base, x, _reach(law))
        return np.maximum(hockey_stick(record, without, epsilons), hockey_stick(without, record, epsilons))

    ends = np.maximum.reduce([profile(base) for base in _breaks(x)])
    for base in _bases(x):
        assert (profile(base) <= ends + 1e-13).all()


# The moved law of the gdp certificate


def _tails(law, reach):
    """S(k) = P(X > k) for k = 0..reach - 1."""
    return np.cumsum(law.pmf(np.arange(reach + 1))[:0:-1])[::-1]


def _largest_step(law, cut, x):
    """m of the certificate: fractional steps up to the cut, whole ones beyond."""
    beyond = _tails(law, _reach(law) + 40)
    z = -ndtri(beyond)
    slopes = law.pmf(np.arange(cut + 1)) * np.exp(z[: cut + 1] ** 2 / 2) * math.sqrt(2 * math.pi)
    return max(slopes.max(), np.diff(z[cut : cut + math.ceil(x) + 1]).max(initial=0.0))


def _moved(first, second, low, high, reach):
    """`first` with its mass at or below `low`, and above `high`, spread in proportion to `second`."""
    k, moved = np.arange(-reach, reach + 1), first.copy()
    for tail in (k <= low, k > high):
        moved[tail] = first[tail].sum() * second[tail] / second[tail].sum()
    return moved


def _ends(law, x, cut):
    """For each break: (base, law without, law with, the latter moved)."""
    reach = _reach(law) + 20
    found = []
    for base in _breaks(x):
        without, record = silo_pair(law, base, x, reach)
        if base == math.floor(base):  # P_x against P_0, moved by base
            low, high = base + math.floor(x) - cut, base + math.floor(x) + cut
        else:  # reversed: P_0 has the record, at base + x, and P_x reflected lies to its left
            centre = round(base + x)
            low, high = centre - cut - 1, centre + cut - 1
        found.append((base, without, record, _moved(record, without, low, high, reach)))
    return found


def _dominated(p, q, mu):
    epsilons = np.linspace(0, mu * (mu / 2 + 8), 40)
    allowed = gaussian_profile(epsilons, mu) + 1e-13
    return (hockey_stick(p, q, epsilons) <= allowed).all() and (hockey_stick(q, p, epsilons) <= allowed).all()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("x", SHIFTS)
@pytest.mark.parametrize("deviations", [1.5, 3.0])
def test_moved_laws_are_dominated_and_near(law, x, deviations):
    cut = max(1, round(deviations * math.sqrt(law.variance)))
    mu = x * _largest_step(law, cut, x)
    allowed = x * 2 * _tails(law, _reach(law))[cut - 1]
    ends = _ends(law, x, cut)
    assert len(ends) == (2 if x == math.floor(x) else 3)
    for (low, *first), (high, *second) in itertools.pairwise(ends):
        for share in (0.0, 0.3, 0.5, 0.9, 1.0):
            without, record, moved = ((1 - share) * a + share * b for a, b in zip(first, second, strict=True))
            exact = silo_pair(law, (1 - share) * low + share * high, x, _reach(law) + 20)
            np.testing.assert_allclose(exact, (without, record), atol=1e-15)
            assert np.abs(moved - record).sum() / 2 <= allowed * (1 + 1e-9)
            assert _dominated(without, moved, mu * (1 + 1e-9))


def test_a_reversed_law_that_is_not_moved_is_not_dominated():
    law, x, cut = Skellam(4.3), 0.05, 3
    mu = x * _largest_step(law, cut, x)
    _, without, record, moved = _ends(law, x, cut)[1]
    assert _dominated(without, moved, mu * (1 + 1e-9))
    assert not _dominated(without, record, mu)


def test_the_forward_cut_would_cost_a_reversed_coordinate_too_much():
    """Tails counted from P_x's middle, as in the forward orientation, hold more of P_0 than is paid for."""
    law, x, cut, reach = Skellam(4.3), 8.5, 12, 80
    record, without = silo_pair(law, 0.0, x, reach)  # P_0 has the record
    allowed = x * 2 * _tails(law, reach)[cut - 1]
    right, wrong = (_moved(record, without, low - cut, low + cut, reach) for low in (0, 8))
    assert np.abs(right - record).sum() / 2 <= allowed
    assert np.abs(wrong - record).sum() / 2 > 10 * allowed


@pytest.mark.parametrize("law", LAWS[:3])
@pytest.mark.parametrize("xs", [(0.3,), (1.6,), (0.7, 1.1)])
def test_gdp_certificate_holds_at_every_base_point(law, xs):
    certificate = gdp_certificate(law, math.hypot(*xs), len(xs), SLACK)
    reach = _reach(law) if len(xs) == 1 else min(_reach(law), 60)
    epsilons = np.linspace(0, min(certificate.mu * (certificate.mu / 2 + 7), 12.0), 30)
    bases = np.linspace(0, 1, 11 if len(xs) == 1 else 4)
    for point in itertools.product(bases, repeat=len(xs)):
        without, record = np.ones(1), np.ones(1)
        for base, x in zip(point, xs, strict=True):
            p, q = silo_pair(law, base, x, reach)
            without, record = np.outer(without, p).ravel(), np.outer(record, q).ravel()
        allowed = gaussian_profile(epsilons, certificate.mu)
        assert (hockey_stick(record, without, epsilons) <= allowed + certificate.slack + 1e-13).all()
        other = hockey_stick(without, record, epsilons)
        assert (other <= allowed + np.exp(epsilons) * certificate.slack + 1e-13).all()


def test_gdp_certificate_pays_for_the_lemma():
    """Its mu and slack are at least those of its own cut, for both orientations."""
    law, radius, dimension = Skellam(30.0), 4.0, 64
    certificate = gdp_certificate(law, radius, dimension, 1e-6)
    beyond = _tails(law, 200)
    cut = int(np.argmax(beyond <= certificate.slack / (2 * math.sqrt(dimension) * radius))) + 1
    assert certificate.mu >= radius * _largest_step(law, cut, radius)
    forward = beyond[cut - 1] + beyond[cut]
    for reverse in (2 * beyond[cut - 1], beyond[cut] + beyond[cut - 1]):  # |x| < 1 and |x| >= 1
        assert certificate.slack >= math.sqrt(dimension) * radius * max(forward, reverse)


EPSILONS = np.linspace(0, 5.5, 23)


@pytest.mark.parametrize("reverse", [0, 400, 800, 1200, 1600])
def test_flat_certificate_holds_with_any_part_reversed(reverse):
    law, x = Skellam(61.8), 0.4
    certificate = flat_certificate(law, 16.0, x, 1600, 1e-10)
    coordinates = [(x, 1600 - reverse), (x, reverse, -x)]
    allowed = gaussian_profile(EPSILONS, certificate.mu) + certificate.slack
    for profile in convolved_profiles(law, coordinates, EPSILONS, 190, cells=2**17):
        assert (profile <= allowed).all()


@pytest.mark.parametrize("law", [Skellam(3.1), Skellam(29.0)])
def test_flat_certificate_holds_at_every_base_point(law):
    x = 0.06 if law.variance < 10 else 0.25
    count = round((1.5 * math.sqrt(law.variance) / x) ** 2)
    certificate = flat_certificate(law, x * math.sqrt(count), x, count, 1e-10)
    allowed = gaussian_profile(EPSILONS, certificate.mu) + certificate.slack
    worst = np.zeros(len(EPSILONS))
    for base in (*np.arange(0, 1, 0.125), 1 - x, 1 - x / 2):
        coordinates = [(x, count // 2, float(base)), (x, count - count // 2, 0.0)]
        for profile in convolved_profiles(law, coordinates, EPSILONS, _reach(law), cells=2**17):
            assert (profile <= allowed).all()
            worst = np.maximum(worst, profile)
    assert (worst > gaussian_profile(EPSILONS, certificate.ideal) + certificate.slack).any()
