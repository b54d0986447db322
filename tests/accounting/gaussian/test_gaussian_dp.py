"""μ-GDP of integer noise, against exact trade-offs in one to three dimensions, mpmath and ball arithmetic."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.profiles import gaussian_profile, hockey_stick, pair, product_pair
from skelmix.accounting.gaussian import gaussian_certificate, gdp_certificate, integer_gdp_certificate
from skelmix.accounting.gaussian.noise_tables import noise_table
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.noise.laws import DiscreteGaussian, DiscreteGaussianSum, Poisson, Skellam

SLACK = 1e-9


def _normal_quantile(p):
    return -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(p))


def _dominated(p, q, mu, slack):
    epsilons = np.linspace(0, mu * (mu / 2 + 7), 40)
    allowed = gaussian_profile(epsilons, mu) + slack + 1e-13
    return (hockey_stick(p, q, epsilons) <= allowed).all() and (hockey_stick(q, p, epsilons) <= allowed).all()


@pytest.mark.parametrize("rate", [0.5, 4.3, 62.0, 981.0, 15_697.0])
def test_integer_step_is_the_central_one(rate):
    law = Skellam(rate)
    with mpmath.workdps(40):
        at_zero = mpmath.besseli(0, 2 * rate) * mpmath.exp(-2 * rate)
        central = 2 * _normal_quantile((1 + at_zero) / 2)
    found = integer_gdp_certificate(law, 1.0).mu
    assert float(central) <= found <= float(central) * (1 + 1e-7)
    assert integer_gdp_certificate(law, 3.5).mu == pytest.approx(3.5 * found)


@pytest.mark.parametrize(
    "law", [Skellam(0.7), Skellam(4.3), Skellam(60), DiscreteGaussian(3.0), DiscreteGaussianSum(0.3, 20)]
)
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_integer_shifts_are_dominated(law, shift):
    certificate = integer_gdp_certificate(law, float(shift))
    p, q = pair(law, shift, 150)
    assert _dominated(p, q, certificate.mu, certificate.slack)
    if shift == 1:  # larger shifts add up steps, of which only one is the largest
        assert not _dominated(p, q, 0.98 * certificate.mu, certificate.slack)


def test_variance_instead_of_the_step_is_caught():
    law = Skellam(0.7)
    p, q = pair(law, 1, 60)
    assert integer_gdp_certificate(law, 1.0).mu > 1 / math.sqrt(law.variance)
    assert not _dominated(p, q, 1 / math.sqrt(law.variance), 1e-12)


def _certified(law, xs, slack=SLACK):
    return gdp_certificate(law, float(np.linalg.norm(xs)), len(xs), slack)


@pytest.mark.parametrize("law", [Skellam(4.3), Skellam(40), DiscreteGaussianSum(0.4, 15)])
@pytest.mark.parametrize("xs", [(0.3,), (0.05,), (1.5,), (3.0,), (0.5, 1.2), (0.1, 0.2, 0.9)])
def test_fractional_values_are_dominated(law, xs):
    certificate = _certified(law, xs)
    reach = {1: 120, 2: 90, 3: 35 if law.variance < 20 else 50}[len(xs)]
    p, q = product_pair(law, xs, reach)
    assert _dominated(p, q, certificate.mu, certificate.slack)
    assert certificate.slack <= SLACK


def test_without_eta_the_tail_is_above():
    law, x = Skellam(4.3), 0.3
    certificate = _certified(law, (x,))
    p, q = pair(law, x, 120)
    assert certificate.mu > 1.5 * certificate.ideal
    assert not _dominated(p, q, certificate.ideal, certificate.slack)


@settings(max_examples=30, deadline=None)
@given(
    rate=st.floats(0.6, 300),
    x=st.floats(1e-3, 4),
    slack=st.sampled_from([1e-3, 1e-6, 1e-10]),
)
def test_any_single_value_is_dominated(rate, x, slack):
    law = Skellam(rate)
    try:
        certificate = gdp_certificate(law, x, 1, slack)
    except PrivacyUnattainable:
        return
    assert certificate.slack <= slack
    p, q = pair(law, x, int(14 * math.sqrt(law.variance)) + 40)
    assert _dominated(p, q, certificate.mu, certificate.slack)


def test_smaller_slack_costs_more():
    found = [gdp_certificate(Skellam(1000), 60.0, 65_536, slack).mu for slack in (1e-6, 1e-9, 1e-12)]
    assert found == sorted(found)
    assert found[0] < found[2]


def test_approaches_the_gaussian_as_noise_grows():
    over = [gdp_certificate(Skellam(v / 2), math.sqrt(v), 65_536, 1e-8).mu - 1 for v in (1e3, 1e4, 1e5, 1e6)]
    assert over == sorted(over, reverse=True)
    assert 0 < over[-1] < 5e-3


@pytest.mark.parametrize("law", [Skellam(3), Skellam(500), DiscreteGaussian(6.5)])
def test_table_agrees_with_ball_arithmetic(law):
    table = noise_table(law, 8 * math.sqrt(law.variance))
    for k in (0, 1, 7, int(8 * math.sqrt(law.variance))):
        exact, before = law.pmf_ball(k), law.pmf_ball(k - 1)
        assert table.mass[k] == pytest.approx(float(exact), rel=2 * table.error + 1e-15)
        if k:
            assert table.lift[k - 1] == pytest.approx(float(before / exact - 1), rel=2 * table.error + 1e-15)


def test_sum_of_discrete_gaussians_switches_without_a_jump():
    below, above = (noise_table(DiscreteGaussianSum(v, 30), 60.0) for v in (5 - 1e-12, 5.0))
    shared = min(below.reach, above.reach)
    np.testing.assert_allclose(below.mass[:shared], above.mass[:shared], rtol=1e-9)
    np.testing.assert_allclose(below.lift[: shared - 1], above.lift[: shared - 1], atol=1e-9)


def test_zero_radius_and_refusals():
    assert gdp_certificate(Skellam(5.0), 0.0, 4, SLACK).mu == 0
    assert integer_gdp_certificate(Skellam(5.0), 0.5).mu == 0
    assert gaussian_certificate(2.0).mu == 0.5
    with pytest.raises(InvalidInput, match="law"):
        gdp_certificate(Poisson(5.0), 1.0, 4, SLACK)
    with pytest.raises(PrivacyUnattainable, match="too small"):
        gdp_certificate(Skellam(0.5), 1e4, 65_536, SLACK)
    with pytest.raises(InvalidInput, match="slack"):
        gdp_certificate(Skellam(5.0), 1.0, 4, 1.5)
    with pytest.raises(InvalidInput, match="radius"):
        gdp_certificate(Skellam(5.0), math.nan, 4, SLACK)
