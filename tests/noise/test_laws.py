"""Facts about the laws: masses, sums, certified bounds."""

import dataclasses
import math
import time
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from skelmix.errors import InvalidInput
from skelmix.noise.certified import precision
from skelmix.noise.laws import Binomial, DiscreteGaussian, DiscreteGaussianSum, Poisson, Skellam

SKELLAMS = [
    Skellam(1e-6),
    Skellam(0.25),
    Skellam(Fraction(59, 10)),
    Skellam(16),
    Skellam(5000),
    Skellam(10**8),
]
BALL_LAWS = [*SKELLAMS[:4], Poisson(0.3), Poisson(40), DiscreteGaussian(0.2), DiscreteGaussian(30),
             Binomial(9, 0.25), Binomial(100, Fraction(1, 2), centred=True), DiscreteGaussianSum(0.7, 5),
             DiscreteGaussianSum(Fraction(7, 100), 16)]  # fmt: skip


@pytest.mark.parametrize("law", BALL_LAWS, ids=repr)
def test_float_masses_agree_with_balls(law):
    low, high = law.support_bound(-200.0)
    for k in np.linspace(low, high, 25).astype(int):
        exact = law.pmf_ball(int(k))
        if exact.is_zero():
            assert law.pmf(k) == 0
        else:
            assert float(law.log_pmf(k)) == pytest.approx(float(exact.log()), rel=1e-12, abs=1e-11)


def test_balls_of_a_sum_hold_the_mass_that_was_cut_off(monkeypatch):
    law, whole = DiscreteGaussianSum(2.0, 4), DiscreteGaussian.masses
    exact = [law.pmf_ball(k) for k in range(8)]
    monkeypatch.setattr(DiscreteGaussian, "masses", lambda self, bits: whole(self, 12))
    for k, mass in enumerate(exact):
        short = law.pmf_ball(k)
        assert short.contains(mass)
        assert float(short.rad()) > 1e-10  # it was cut, and the ball says so


@pytest.mark.parametrize("law", SKELLAMS[1:], ids=repr)
def test_skellam_log_masses_hold_far_beyond_the_range_of_floats(law):
    for sigmas in (0, 3, 30, 60):
        k = round(sigmas * math.sqrt(law.variance)) + 200 * (sigmas > 30)
        exact = float(law.pmf_ball(k, 256).log())
        assert float(law.log_pmf(k)) == pytest.approx(exact, rel=1e-12, abs=1e-10)


@pytest.mark.parametrize("law", BALL_LAWS, ids=repr)
def test_mean_and_variance_are_those_of_the_masses(law):
    low, high = law.support_bound(-80.0)
    k = np.arange(low, high + 1)
    mass = law.pmf(k)
    assert mass.sum() == pytest.approx(1, rel=1e-12)
    assert (mass * k).sum() == pytest.approx(law.mean, rel=1e-11, abs=1e-12)
    assert (mass * (k - law.mean) ** 2).sum() == pytest.approx(law.variance, rel=1e-10)


@pytest.mark.parametrize(
    "law", [Skellam(2), Poisson(1.5), Binomial(6, 0.3), DiscreteGaussian(0.4), DiscreteGaussianSum(0.4, 2)]
)
def test_the_law_of_a_sum_is_the_convolution(law):
    low, high = law.support_bound(-90.0)
    single = law.pmf(np.arange(low, high + 1))
    triple = np.convolve(np.convolve(single, single), single)
    inside = triple > 1e-25
    k = np.arange(3 * low, 3 * high + 1)
    np.testing.assert_allclose(law.sum_of(3).pmf(k)[inside], triple[inside], rtol=1e-10)


def test_sums_keep_rational_parameters_exactly():
    assert Skellam(0.1).sum_of(216) == Skellam(Fraction(0.1) * 216)
    assert Poisson(Fraction(1, 3)).sum_of(3) == Poisson(1)
    assert Binomial(10, 0.5).sum_of(4) == Binomial(40, 0.5)


def test_a_sum_of_narrow_discrete_gaussians_is_not_a_discrete_gaussian():
    narrow = DiscreteGaussianSum(0.1, 10)
    assert abs(narrow.pmf(0) / DiscreteGaussian(1).pmf(0) - 1) > 1e-3


def test_wide_sums_agree_on_both_sides_of_the_shortcut():
    k = np.arange(0, 60)
    by_convolution = DiscreteGaussianSum(Fraction(4999, 1000), 7).log_pmf(k)
    direct = DiscreteGaussian(Fraction(4999, 1000) * 7).log_pmf(k)
    np.testing.assert_allclose(by_convolution, direct, rtol=1e-11)


def test_masses_of_a_large_sum_take_little_time():
    start = time.perf_counter()
    DiscreteGaussianSum(0.8312, 240).pmf(np.arange(100))
    assert time.perf_counter() - start < 0.5  # about 10 ms; room for a busy machine


@pytest.mark.parametrize("law", BALL_LAWS, ids=repr)
def test_the_mass_outside_the_support_bound_is_as_small_as_it_says(law):
    for log_tail in (-1.0, -20.0, -100.0):
        low, high = law.support_bound(log_tail)
        with mpmath.workdps(80):
            outside = sum(mpmath.mpf(str(law.pmf_ball(k, 256).mid().str(60, radius=False)))
                          for k in [*range(low - 60, low), *range(high + 1, high + 61)])  # fmt: skip
            assert outside < mpmath.exp(log_tail)
    with pytest.raises(InvalidInput, match="log_tail"):
        law.support_bound(0.0)


@pytest.mark.parametrize("law", BALL_LAWS, ids=repr)
def test_cdf_balls_are_narrow_and_hold_the_sum_of_the_mass_balls(law):
    low, high = law.support_bound(-90.0)
    with precision(250):
        total = law.pmf_ball(low - 60, 200)
        for k in range(low - 59, high + 1):
            total = total + law.pmf_ball(k, 200)
            if k % 7 == 0:
                certified = law.cdf_ball(k, 100)
                assert float(certified.rad()) < 2.0**-99
                assert abs(float((certified - total).mid())) < 1e-29


def test_symmetry_is_what_it_says():
    for law in BALL_LAWS:
        low, high = law.support_bound(-30.0)
        k = np.arange(-max(-low, high), max(-low, high) + 1)
        assert law.symmetric == np.allclose(law.pmf(k), law.pmf(-k), rtol=1e-9)


def test_masses_match_scipy():
    k = np.arange(-5, 30)
    np.testing.assert_allclose(Poisson(3.5).pmf(k), stats.poisson(3.5).pmf(k), rtol=1e-12)
    np.testing.assert_allclose(Binomial(20, 0.3).pmf(k), stats.binom(20, 0.3).pmf(k), rtol=1e-11)
    np.testing.assert_allclose(Skellam(4).pmf(k), stats.skellam(4, 4).pmf(k), rtol=1e-9)


def test_equal_parameters_make_equal_laws_and_laws_do_not_change():
    assert Skellam(0.5) == Skellam(Fraction(1, 2))
    assert hash(Skellam(0.5)) == hash(Skellam(Fraction(1, 2)))
    assert Skellam(1) != Poisson(1)
    assert DiscreteGaussian(variance=2).parameter == 2
    for law, name in (
        (Skellam(1), "rate"),
        (DiscreteGaussian(1), "parameter"),
        (DiscreteGaussianSum(1, 2), "copies"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(law, name, 5)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), "1", None, True])
def test_bad_parameters_are_refused(bad):
    for make in (
        Poisson,
        Skellam,
        DiscreteGaussian,
        lambda v: DiscreteGaussianSum(v, 3),
        lambda v: Binomial(10, v),
    ):
        with pytest.raises(InvalidInput):
            make(bad)


def test_other_bad_inputs_are_refused():
    with pytest.raises(InvalidInput, match="integer mean"):
        Binomial(11, 0.5, centred=True)
    with pytest.raises(InvalidInput, match="probability"):
        Binomial(11, 1.0)
    with pytest.raises(InvalidInput, match="trials"):
        Binomial(0, 0.5)
    with pytest.raises(InvalidInput, match="dtype"):
        Skellam(1).pmf(0.5)
    with pytest.raises(InvalidInput, match="n ="):
        Skellam(1).sum_of(0)


@pytest.mark.parametrize(
    ("numpy_law", "plain"),
    [
        (lambda: Skellam(np.int64(3)), Skellam(3)),
        (lambda: Skellam(np.uint8(3)), Skellam(3)),
        (lambda: Poisson(np.float32(0.1)), Poisson(Fraction(13421773, 2**27))),
        (lambda: Poisson(np.float64(0.1)), Poisson(0.1)),
        (lambda: DiscreteGaussian(np.float16(2)), DiscreteGaussian(2)),
        (lambda: DiscreteGaussianSum(np.float32(0.5), np.int32(4)), DiscreteGaussianSum(0.5, 4)),
        (lambda: Binomial(np.int16(300), np.float32(0.5), True), Binomial(300, 0.5, True)),
        (lambda: Skellam(np.longdouble(2) ** -1), Skellam(0.5)),
    ],
)
def test_numpy_scalars_stand_for_the_number_they_hold(numpy_law, plain):
    law = numpy_law()
    assert law == plain
    assert hash(law) == hash(plain)
    assert "np." not in repr(law)
    assert law.sum_of(np.int64(2)) == plain.sum_of(2)
    np.testing.assert_array_equal(law.pmf(np.arange(5)), plain.pmf(np.arange(5)))
    if hasattr(plain, "cdf_ball"):
        assert law.cdf_ball(1).overlaps(plain.cdf_ball(1))


def test_a_long_double_keeps_the_bits_that_a_float_has_no_room_for():
    rate = np.longdouble(1) + np.finfo(np.longdouble).eps
    law = Skellam(rate)
    assert Fraction(law.rate) == Fraction(*map(int, rate.as_integer_ratio()))


@pytest.mark.parametrize("value", [np.float32("nan"), np.int64(0), np.float64("inf"), np.bool_(True)])
def test_numpy_scalars_that_are_no_rate_are_refused(value):
    with pytest.raises(InvalidInput, match="rate = "):
        Skellam(value)
