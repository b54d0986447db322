"""Cumulants of large coordinates against brute force and ball arithmetic; certificates made of them."""

import math

import numpy as np
import pytest
from flint import acb, arb, ctx

from helpers.profiles import convolved_profiles, gaussian_profile, needed_mu
from skelmix.accounting.gaussian.contour_integrals import contour
from skelmix.accounting.gaussian.expansion import Expansion, ratios
from skelmix.accounting.gaussian.flat import flat_certificate
from skelmix.accounting.gaussian.noise_tables import noise_table
from skelmix.accounting.gaussian.pld import largest_mu, pld_epsilon
from skelmix.accounting.gaussian.tilted import TiltedExpansion
from skelmix.accounting.gaussian.tilted_kernels import POWERS, tilted_sums
from skelmix.noise.laws import DiscreteGaussianSum, Skellam

SLACK = 1e-10
LINES = np.array([-3.9, -1.4, 0.5, 2.4, 4.9])


def _values(law, linf):
    shift = math.ceil(linf) + 1
    return ratios(noise_table(law, 20 * math.sqrt(law.variance) + shift), shift)


def _distance(values, square, x, t):
    """|K_x(t)/x² - (t² - t)·square/2| from the sum over all levels."""
    moment = np.sum(values.mass * np.exp(t * np.log1p(values.lift(x))))
    return abs(np.log(moment * np.exp(-x * x * (t * t - t) * square / 2))) / x**2


LAWS = [
    (Skellam(58), 0.1, 3.75, 5.0),
    (Skellam(17), 0.05, 3.97, 3.0),
    (Skellam(3), 0.02, 0.4, 4.0),
    (Skellam(800), 1.5, 9.3, 5.0),
    (DiscreteGaussianSum(0.25, 240), 0.1, 2.6, 4.0),
]


@pytest.mark.parametrize(("law", "low", "high", "end"), LAWS)
def test_error_bounds_every_x_on_every_line(law, low, high, end):
    values = _values(law, high)
    tilted = TiltedExpansion(values, low, high, LINES, end)
    assert tilted.pieces[0].low == low
    assert tilted.pieces[-1].middle + tilted.pieces[-1].half == pytest.approx(high, rel=1e-14)
    omegas = np.array([0.0, 0.3, 1.0, 2.0, end])
    for u in LINES.tolist():
        bounds = tilted.error(u, omegas)
        assert (np.diff(bounds) >= 0).all()
        largest = np.zeros(len(omegas))
        for piece in tilted.pieces:
            square = piece.squares[tilted.lines.tolist().index(u)]
            assert square <= values.chi_square <= square + tilted.reduction(u) * (1 + 1e-12)
            for x in piece.middle + piece.half * np.linspace(-1, 1, 5):
                exact = [_distance(values, square, x, u + 1j * omega) for omega in omegas.tolist()]
                largest = np.maximum(largest, exact)
        assert (largest <= bounds).all()
        rounding = max(piece.rounding.max() / piece.low**2 for piece in tilted.pieces)
        assert bounds[0] <= 1.5 * largest[0] + 2 * rounding  # on the axis hardly anything is lost
    assert tilted.error(0.5, np.array([end * 1.01]))[0] == math.inf


def test_a_bound_half_as_large_would_be_caught():
    values = _values(Skellam(58), 3.75)
    tilted = TiltedExpansion(values, 0.1, 3.75, LINES, 5.0)
    t = 4.9 + 0.3j
    exact = max(
        _distance(values, piece.squares[-1], piece.middle + piece.half * side, t)
        for piece in tilted.pieces
        for side in (-1, 0, 1)
    )
    assert exact > tilted.error(4.9, np.array([0.3]))[0] / 2


@pytest.mark.parametrize(
    ("x", "t"), [(0.63, -1.4 + 2j), (1.7, 4.9 + 1j), (3.2, -3.9 + 0.5j), (2.0, 0.5 + 3j)]
)
def test_error_covers_ball_arithmetic(x, t):
    law, whole, part = Skellam(20), math.floor(x), x - math.floor(x)
    values = _values(law, 3.5)
    tilted = TiltedExpansion(values, 0.1, 3.5, LINES, 3.0)
    piece = next(one for one in tilted.pieces if abs(x - one.middle) <= one.half)
    square = float(piece.squares[LINES.tolist().index(t.real)])
    with ctx.workprec(200):
        balls = {k: law.pmf_ball(k, 200) for k in range(140)}
        total, chi2 = acb(0), arb(-1)
        for k in range(-130, 131):
            f = balls[abs(k)]
            shifted = (1 - arb(part)) * balls[abs(k - whole)] + arb(part) * balls[abs(k - whole - 1)]
            total += f * acb(shifted / f) ** acb(t.real, t.imag)
            chi2 += balls[abs(k - 1)] ** 2 / f
        point = acb(t.real, t.imag)
        gaussian = (point * point - point) * arb(square) / 2 * arb(x) ** 2
        exact = abs(complex((total * (-gaussian).exp()).log())) / x**2
    assert square <= float(chi2) * (1 + 1e-12)
    alone = TiltedExpansion(values, piece.low, piece.middle + piece.half, LINES, 3.0)
    found = alone.error(t.real, np.array([t.imag]))[0]
    assert exact <= found


def test_sums_are_those_of_their_definition():
    values, middle, half, count, end = _values(Skellam(40), 2.0), 1.4, 0.1, 12, 2.0
    lift = values.lift(middle)
    logs, slope = np.log1p(lift), (values.lift(2.0) - values.lift(1.0)) * half / (1 + lift)
    squares = np.array([0.9, 1.0]) * values.chi_square
    lines = np.array([-2.0, 3.5])
    sums, (weights, highest, wide), outer = tilted_sums(
        values.mass, logs, slope, lines, squares, middle, count, end
    )
    assert outer.max() < 1e-20
    for i, (u, square) in enumerate(zip(lines, squares, strict=True)):
        scale = middle * math.sqrt(square)
        weight = values.mass * np.exp(u * logs - scale**2 * (u * u - u) / 2)
        z = (logs - scale**2 * (u - 0.5)) / scale
        for j in range(POWERS):
            terms = weight * slope**j
            expected = [np.sum(terms * z**n) / math.factorial(n) for n in range(count)]
            np.testing.assert_allclose(sums[i, j], expected, rtol=1e-10, atol=1e-14)
            assert weights[i, j] == pytest.approx(np.sum(np.abs(terms)), rel=1e-12)
            assert highest[i, j] == pytest.approx(
                np.sum(np.abs(terms) * z**count) / math.factorial(count), rel=1e-11
            )
            assert wide[i, j] == pytest.approx(
                np.sum(np.abs(terms) * np.exp(end * scale * np.abs(z))), rel=1e-11
            )
        power = np.maximum((1 + np.abs(slope)) ** (u - POWERS), (1 - np.abs(slope)) ** (u - POWERS))
        last = np.sum(weight * np.abs(slope) ** POWERS * np.maximum(1, power))
        assert weights[i, POWERS] == pytest.approx(last, rel=1e-12)


def test_both_lines_of_a_contour_are_paid_for():
    """A vector whose coordinates count in either orientation needs the larger error of the lines Re t = u and
    Re t = 1 - u, and the larger reduction."""
    values = _values(Skellam(58), 3.75)
    lines = np.array([0.5 - 4.4, 0.5 + 4.4])
    tilted = TiltedExpansion(values, 0.1, 3.75, lines, 4.0)
    expansion = Expansion(values, 0.1, -3.9, 4.9)
    line = contour(expansion, 17.0, 17.0 * math.sqrt(values.chi_square), 4.4, tilted)
    nodes = line.nodes[1:]
    for u in lines.tolist():
        assert (line.error >= 17.0**2 * tilted.error(u, nodes)).all()
        assert line.reduction >= 17.0**2 * tilted.reduction(u)
    assert tilted.reduction(lines[0]) > 1.5 * tilted.reduction(lines[1])  # one line alone would not do


#: law, coordinates (x, how many), linf: 512 coordinates with b = 5·17/√512 at the noise of the planner's job
CASES = {
    "512 alike": (Skellam(59.2), [(17 / math.sqrt(512), 512)], 3.756),
    "spiky": (Skellam(59.2), [(3.756, 20)], 3.756),
    "halves": (Skellam(59.2), [(0.5, 1156)], 3.756),
    "mixed": (Skellam(59.2), [(3.5, 6), (1.5, 50), (0.5, 300), (0.25, 400)], 3.756),
    "half of them reversed": (Skellam(59.2), [(0.5, 578), (0.5, 578, -0.5)], 3.756),
    "all reversed": (Skellam(59.2), [(0.75, 512, -0.75)], 3.756),
    "in between": (Skellam(59.2), [(0.6, 400, 0.7), (1.3, 80, 0.2)], 3.756),
    "128 alike": (Skellam(17.3), [(9 / math.sqrt(128), 128)], 3.977),
    "few reversed, 128": (Skellam(17.3), [(2.5, 6, -2.5), (0.4, 270)], 3.977),
    "discrete Gaussians": (DiscreteGaussianSum(0.5, 240), [(1.5, 64), (0.5, 300)], 3.7),
}
EPSILONS = np.linspace(0, 8.5, 35)


@pytest.mark.parametrize("name", CASES)
def test_profiles_lie_under_the_certificate(name):
    law, coordinates, linf = CASES[name]
    radius = math.sqrt(sum(count * x * x for x, count, *_ in coordinates))
    certificate = flat_certificate(law, radius, linf, 512, SLACK)
    profiles = convolved_profiles(
        law, coordinates, EPSILONS, int(16 * math.sqrt(law.variance)) + 20, cells=2**17
    )
    allowed = gaussian_profile(EPSILONS, certificate.mu) + certificate.slack
    for profile in profiles:
        assert (profile <= allowed).all()
    needed = max(needed_mu(profile - certificate.slack, EPSILONS) for profile in profiles)
    assert needed <= certificate.mu <= 1.035 * needed


def test_without_eta_the_profile_is_above():
    law, coordinates, linf = CASES["halves"]
    radius = math.sqrt(sum(count * x * x for x, count in coordinates))
    ideal = flat_certificate(law, radius, linf, 512, SLACK).ideal
    profiles = convolved_profiles(law, coordinates, EPSILONS, 200, cells=2**17)
    forged = gaussian_profile(EPSILONS, ideal) + SLACK
    assert any((profile > forged).any() for profile in profiles)


@pytest.mark.parametrize(
    ("coordinates", "radius", "over"),
    [(4096, 34.0, 0.005), (1024, 22.0, 0.007), (512, 17.0, 0.01), (256, 12.0, 0.02), (128, 9.0, 0.03)],
)
def test_small_dimensions_need_hardly_more_noise_than_the_central_gaussian(coordinates, radius, over):
    """240 of 60,000, 1000 rounds, ε = 3, δ = 1e-5, linf = 5·radius/√coordinates."""
    central = 1 / largest_mu(3.0, 1e-5, 1000, 0.004)
    assert central == pytest.approx(0.6344, abs=2e-4)
    slack = 0.02 * 1e-5 / (math.exp(3) * 4)
    law = Skellam((central * (1 + over) * radius) ** 2 / 2)
    certificate = flat_certificate(law, radius, 5 * radius / math.sqrt(coordinates), coordinates, slack)
    assert certificate.mu <= largest_mu(3.0, 0.98e-5, 1000, 0.004)
    assert pld_epsilon(certificate, delta=1e-5, rounds=1000, sampling_probability=0.004) <= 3.0


def test_contours_keep_off_the_poles():
    """At mu = 2 every other contour would run through t = 1."""
    law = Skellam(32.0)
    radius = 2.0 * math.sqrt(64.0)
    certificates = [
        flat_certificate(law, radius * share, 3.0, 256, SLACK) for share in (0.97, 0.998, 1.0, 1.03)
    ]
    found = [certificate.mu / certificate.ideal - 1 for certificate in certificates]
    assert max(found) < 1.2 * min(found) < 0.02
