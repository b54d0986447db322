"""How the noise of a round is divided among its participants."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skelmix as sk
from skelmix.mechanisms import SkellamMixture

SMM = SkellamMixture(dimension=4, bits=12, scale=10.0, clip_norm=1.0, total_noise=50.0)


@given(st.integers(1, 10_000), st.sampled_from([0.0, 0.1, 0.34, 1 / 3, 0.5, 0.123456]), st.integers(0, 5))
def test_the_fewest_survivors_without_the_colluders_carry_all_of_the_noise(sampled, tolerance, colluding):
    cohort = sk.Cohort(10_000, 10_000, tolerance, colluding, sampling="none")
    shares, survivors = cohort.shares(sampled), cohort.min_survivors(sampled)
    assert survivors >= sampled * (1 - tolerance) - 1e-2
    if shares == 0:
        assert survivors <= colluding
        return
    assert (survivors - colluding) * SMM.participant_law(shares).rate >= 50


@pytest.mark.parametrize(("tolerance", "colluding"), [(0.1, 0), (1 / 3, 0), (0.0, 7)])
def test_the_noise_of_a_full_cohort_does_not_tell_its_size(tolerance, colluding):
    cohort = sk.Cohort(240, 60_000, tolerance, colluding)
    totals = {
        SMM.total_law(size - colluding, cohort.shares(size)).rate for size in (10, 11, 239, 240, 241, 999)
    }
    assert totals == {50 / (1 - Fraction(tolerance).limit_denominator(10**6))}


def test_a_cohort_of_whom_nobody_is_left_has_no_shares():
    with pytest.raises(sk.errors.InvalidInput, match="colluding = 9"):
        sk.Cohort(10, 10, dropout_tolerance=0.1, colluding=9, sampling="none")


@pytest.mark.parametrize(
    ("cohort", "edges"),
    [
        (sk.Cohort(6, 30), (0, 1, 2)),  # sums over one and two may or may not be opened
        (sk.Cohort(12, 30, dropout_tolerance=0.2, colluding=3), (3,)),
        (sk.Cohort(12, 30, dropout_tolerance=0.25, colluding=3), (4,)),
    ],
)
def test_the_chance_that_opening_tells_who_was_sampled(cohort, edges):
    q, others = cohort.sampling_probability, cohort.population - 1
    for short in edges:
        assert cohort.shares(short) == 0 or short in (1, 2)
        assert cohort.shares(short + 1) > 0
    likely = max(math.comb(others, k) * q**k * (1 - q) ** (others - k) for k in edges)
    assert cohort.membership_leak_probability(7) == pytest.approx(7 * q * likely, rel=2e-3)
    assert cohort.membership_leak_probability(7) > 7 * q * likely
    fewer = max(math.comb(19, k) * q**k * (1 - q) ** (19 - k) for k in edges)
    assert cohort.membership_leak_probability(7, nodes=20) == pytest.approx(7 * q * fewer, rel=2e-3)
    assert cohort.membership_leak_probability(7, least=6) >= cohort.membership_leak_probability(7)
    for sampling in ("fixed", "poisson"):
        expected = 30 if sampling == "poisson" else cohort.expected
        assert sk.Cohort(expected, 30, sampling=sampling).membership_leak_probability(7) == 0


def test_a_sum_over_one_of_several_is_not_opened():
    cohort = sk.Cohort(40, 1000, dropout_tolerance=0.9)
    assert [cohort.min_survivors(sampled) for sampled in (0, 1, 2, 3, 30)] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize("population", [10**5, 10**11, 10**16])
def test_membership_leak_probability_keeps_its_digits_in_large_populations(population):
    cohort = sk.Cohort(20, population)
    poisson = math.exp(-20) * 20**2 / 2  # of two others: what the binomial tends to
    assert cohort.membership_leak_probability(1) == pytest.approx(20 / population * poisson, rel=3e-3)
