"""The flat certificate against exact privacy profiles, brute force over x, and ball arithmetic."""

import itertools
import math

import numpy as np
import pytest
from flint import acb, arb, ctx

from helpers.profiles import convolved_profiles, gaussian_profile, needed_mu
from skelmix.accounting.gaussian.contour_integrals import Middle, contour
from skelmix.accounting.gaussian.expansion import Expansion, ratios
from skelmix.accounting.gaussian.flat import flat_certificate
from skelmix.accounting.gaussian.level_sums import tilted_modulus
from skelmix.accounting.gaussian.noise_tables import noise_table
from skelmix.accounting.gaussian.pld import largest_mu, pld_epsilon
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.noise.laws import DiscreteGaussianSum, Poisson, Skellam

pytestmark = pytest.mark.xdist_group("flat certificate")  # what is dear to set up is set up once

SLACK = 1e-10
EPSILONS = np.linspace(0, 5.5, 34)


def _values(law, linf):
    shift = math.ceil(linf) + 1
    return ratios(noise_table(law, 13 * math.sqrt(law.variance) + shift), shift)


def _cumulant(values, x, t):
    lift = values.lift(x)
    return np.log1p(np.sum(values.mass * (np.expm1(t * np.log1p(lift)) - t * lift)))


CASES = {
    "many equal": (Skellam(61.8), [(0.4, 1600)], 0.4),
    "equal, above one": (Skellam(981), [(2.5, 600)], 2.5),
    "mixed": (Skellam(61.8), [(0.4, 500), (0.05, 8000), (0.25, 900), (0.39, 300)], 0.4),
    "one large, many small": (Skellam(61.8), [(0.4, 1), (0.05, 30_000)], 0.4),
    "few levels": (Skellam(3.1), [(0.06, 1500), (0.03, 1000)], 0.06),
    "discrete Gaussians": (DiscreteGaussianSum(0.25, 240), [(0.23, 2000)], 0.23),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    law, coordinates, linf = CASES[request.param]
    radius = math.sqrt(sum(count * x * x for x, count in coordinates))
    reach = int(14 * math.sqrt(law.variance)) + 30
    profiles = convolved_profiles(law, coordinates, EPSILONS, reach)
    return request.param, profiles, flat_certificate(law, radius, linf, 65_536, SLACK)


def test_profiles_lie_under_the_certificate_both_ways(case):
    _, profiles, certificate = case
    allowed = gaussian_profile(EPSILONS, certificate.mu) + certificate.slack
    for profile in profiles:
        assert (profile <= allowed).all()


def test_certificate_is_not_far_from_what_is_needed(case):
    name, profiles, certificate = case
    needed = max(needed_mu(profile - certificate.slack, EPSILONS) for profile in profiles)
    assert needed <= certificate.mu <= needed * (1.05 if name == "few levels" else 1.015)


def test_without_eta_the_profile_is_above(case):
    _, profiles, certificate = case
    forged = gaussian_profile(EPSILONS, certificate.ideal) + certificate.slack
    assert any((profile > forged).any() for profile in profiles)


def test_variance_instead_of_chi_square_is_caught():
    """At few levels χ² is well above 1/variance: a Gaussian of the noise's own variance does not dominate,
    even with η on top.
    """
    law, coordinates, linf = CASES["few levels"]
    radius = math.sqrt(sum(count * x * x for x, count in coordinates))
    certificate = flat_certificate(law, radius, linf, 65_536, SLACK)
    forged = radius / math.sqrt(law.variance) * certificate.mu / certificate.ideal
    forward, _ = convolved_profiles(law, coordinates, EPSILONS, 60)
    assert (forward > gaussian_profile(EPSILONS, forged) + SLACK).any()


def test_both_lines_of_a_contour_are_paid_for():
    """The line left of zero serves the reverse direction; there |K_x - x²A| is the larger one, and forgetting
    it would show.
    """
    values = _values(Skellam(3.1), 0.06)
    expansion = Expansion(values, 0.06, -3.0, 4.0)
    line = contour(expansion, 2.5, 1.0, 2.0)
    brute = {u: _distance(values, expansion.chi2, 0.06, u + 1j * line.nodes[40]) for u in (2.5, -1.5)}
    assert brute[-1.5] > 1.2 * brute[2.5]
    assert line.error[39] >= 2.5**2 * brute[-1.5]


def _distance(values, chi2, x, t):
    return abs(_cumulant(values, x, t) / x**2 - (t * t - t) * chi2 / 2)


POINTS = [0.5 + 1j, 0.5 + 6j, 4 + 2j, -3 + 2j, 1 + 0.5j, 5.5 + 0j, -4.5 + 0j, 2 + 15j]


@pytest.mark.parametrize(
    ("law", "linf"),
    [
        (Skellam(825), 1.25),
        (Skellam(2.2), 0.0586),
        (Skellam(29), 0.234),
        (Skellam(700), 3.6),
        (Skellam(40), 1.0),
    ],
)
def test_error_bounds_every_x(law, linf):
    values = _values(law, linf)
    expansion = Expansion(values, linf, -5.0, 6.0)
    found = expansion.error(np.array(POINTS))
    xs = np.concatenate([np.linspace(0, linf, 301)[1:], np.geomspace(1e-3, 1, 20) * linf])
    for t, bound in zip(POINTS, found, strict=True):
        exact = max(_distance(values, expansion.chi2, x, t) for x in xs)
        assert exact <= bound
        if abs(t) * expansion.c < 0.3:
            assert bound < 4 * exact  # the triangle inequality over powers of t, no more


def test_one_sampled_x_is_not_the_supremum():
    values = _values(Skellam(40), 1.0)
    t = 0.5 + 4j
    at_end, inside = (_distance(values, values.chi_square, x, t) for x in (1.0, 0.5))
    assert inside > 1.5 * at_end
    assert Expansion(values, 1.0, -3.0, 4.0).error(np.array([t]))[0] >= inside


@pytest.mark.parametrize(("x", "t"), [(0.3, 2 + 3j), (1.7, -1.5 + 2j), (1.0, 0.5 + 5j)])
def test_cumulants_agree_with_ball_arithmetic(x, t):
    law, whole, part = Skellam(20), math.floor(x), x - math.floor(x)
    values = _values(law, 2.0)
    with ctx.workprec(160):
        balls = {k: law.pmf_ball(k, 160) for k in range(90)}
        total, square = acb(0), arb(0)
        for k in range(-85, 86):
            f = balls[abs(k)]
            shifted = (1 - arb(part)) * balls[abs(k - whole)] + arb(part) * balls[abs(k - whole - 1)]
            total += f * acb(shifted / f) ** acb(t.real, t.imag)
            square += balls[abs(k - 1)] ** 2 / f
        exact = complex(total.log())
        chi2 = float(square - 1)
    assert _cumulant(values, x, t) == pytest.approx(exact, rel=1e-11)
    assert values.chi_square == pytest.approx(chi2, rel=1e-12)
    bound = Expansion(values, 2.0, -2.0, 3.0).error(np.array([t]))[0]
    assert abs(exact / x**2 - (t * t - t) * chi2 / 2) <= bound


@pytest.mark.parametrize("offsets", [[0.0], [0.0, 0.4, 0.8, 1.2], [0.3, 0.9, 1.0, 4.0]])
def test_the_sums_of_a_piece_are_those_of_their_definition(offsets):
    values = _values(Skellam(300), 1.5)
    start, middle, end = (np.log1p(values.lift(x)) for x in (0.4, 0.5, 0.6))
    width = np.abs(np.exp(end) - np.exp(start))
    rows = np.stack([middle, np.minimum(start, end), np.maximum(start, end), width])
    found = tilted_modulus(values.mass, rows, np.array(offsets), 3.0, 0.7, 5)
    for i, u in enumerate([0.5 + one for one in offsets] + [0.5 - one for one in offsets]):
        weight = values.mass * np.exp(u * middle)
        moduli = [abs(np.sum(weight * np.exp(1j * omega * middle))) for omega in 3.0 + 0.7 * np.arange(5)]
        total = weight.sum()
        spread = np.sum(weight * np.abs(middle - (weight @ middle) / total))
        steep = np.sum(values.mass * np.maximum(np.exp((u - 1) * start), np.exp((u - 1) * end)) * width)
        for one, other in zip((row[i] for row in found), (moduli, spread, steep, total), strict=True):
            assert one == pytest.approx(other, rel=1e-11)


def test_middle_range_bounds_every_x_and_frequency():
    values, linf = _values(Skellam(100), 1.5), 1.5
    chi = math.sqrt(values.chi_square)
    start, end = 0.9 / (linf * chi), 3.0 / (linf * chi)
    middle = Middle(values, linf, start, end, 4.0)
    generator = np.random.default_rng(1)
    for segment in middle.segments:
        nodes = np.linspace(
            segment.low, segment.high, math.ceil((segment.high - segment.low) / segment.width) + 1
        )
        bounds = segment.log_bound(np.array([0.0, 3.5]), nodes[:-1], nodes[1:])
        assert np.isfinite(bounds).all()
        for u, bound in ((0.5, bounds[0]), (4.0, bounds[1]), (-3.0, bounds[1])):
            for omega in generator.uniform(segment.low, segment.high, 10):
                for x in generator.uniform(0.01, linf, 20):
                    value = np.sum(values.mass * np.exp((u + 1j * omega) * np.log1p(values.lift(x))))
                    cell = min(int(np.searchsorted(nodes, omega)) - 1, len(bound) - 1)
                    assert math.log(abs(value)) / x**2 <= bound[cell]


@pytest.mark.parametrize(
    ("scale", "epsilon", "bar"),
    [(64.0, 3.0, 0.637), (12.0, 3.0, 0.646), (3.0, 3.0, 0.70), (64.0, 1.0, 0.868)],
)
def test_noise_is_the_central_gaussians(scale, epsilon, bar):
    """240 of 60,000, 1000 rounds, δ = 1e-5, d = 65,536: standard deviation of the sum over the scale."""
    share = 0.02
    slack = share * 1e-5 / (math.exp(epsilon) * 1000 * 0.004)
    certificate = flat_certificate(Skellam((bar * scale) ** 2 / 2), scale, 5 * scale / 256, 65_536, slack)
    assert certificate.mu <= largest_mu(epsilon, 1e-5 * (1 - share), 1000, 0.004)
    assert pld_epsilon(certificate, delta=1e-5, rounds=1000, sampling_probability=0.004) <= epsilon


def test_approaches_the_gaussian_as_noise_grows():
    over = []
    for scale in (4.0, 16.0, 64.0, 256.0):
        law = Skellam(scale**2 / 2)
        over.append(flat_certificate(law, scale, 5 * scale / 256, 65_536, SLACK).mu - 1)
    assert over == sorted(over, reverse=True)
    assert 0 < over[-1] < 6e-4


def test_refusals_say_why():
    with pytest.raises(PrivacyUnattainable, match="linf"):
        flat_certificate(Skellam(800), 64.0, 64.0, 16, SLACK)
    with pytest.raises(PrivacyUnattainable):
        flat_certificate(Skellam(0.5), 1e4, 1.0, 65_536, SLACK)
    with pytest.raises(InvalidInput, match="law"):
        flat_certificate(Poisson(5.0), 1.0, 0.1, 65_536, SLACK)
    with pytest.raises(InvalidInput, match="slack"):
        flat_certificate(Skellam(5.0), 1.0, 0.1, 65_536, 0.0)
    assert flat_certificate(Skellam(5.0), 0.0, 0.1, 65_536, SLACK).mu == 0


def test_more_noise_is_never_much_worse():
    """An unlucky smoothing alone must not decide: noise is looked for by bisection."""
    found = [
        flat_certificate(Skellam(rate), 1.81, 5 * 1.81 / 256, 65_536, 2e-9).mu
        for rate in (0.81, 0.87, 0.94, 1.05)
    ]
    assert all(more < less * 1.003 for less, more in itertools.pairwise(found))
