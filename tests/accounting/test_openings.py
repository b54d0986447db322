"""When a sum opens, what that reveals, and how its noise is divided, by enumeration."""

from fractions import Fraction
from itertools import product
from math import comb

import pytest

from skelmix.accounting.openings import (
    NoisePieces,
    PoissonDropouts,
    choose_least_survivors,
    opening_delta,
    survivors_to_open,
    total_noise,
)
from skelmix.errors import InvalidInput, PrivacyUnattainable

COHORTS = PoissonDropouts(population=60_000, sampling_probability=0.004, dropout_rate=0.1)


def trinomial(others, q, drop):
    """(survivors, dropouts, probability) among the others, exactly."""
    for s, d in product(range(others + 1), repeat=2):
        if s + d <= others:
            ways = comb(others, s) * comb(others - s, d)
            yield s, d, ways * (q * (1 - drop)) ** s * (q * drop) ** d * (1 - q) ** (others - s - d)


def test_the_known_threshold_of_the_reference_job():
    assert choose_least_survivors(COHORTS, 1_000, 1e-7) == 141
    assert opening_delta(COHORTS, 1_000, 141) <= 1e-7 < opening_delta(COHORTS, 1_000, 142)
    assert opening_delta(COHORTS, 1_000, 141) == pytest.approx(8.164e-8, rel=1e-3)


@pytest.mark.parametrize(("least", "colluding"), [(1, 0), (3, 0), (4, 1), (3, 2)])
@pytest.mark.parametrize("malicious", [True, False])
@pytest.mark.parametrize(("q", "drop"), [(Fraction(3, 4), Fraction(1, 8)), (Fraction(1, 2), Fraction(1, 4))])
def test_a_round_reveals_a_participant_no_more_often_than_is_paid_for(least, colluding, malicious, q, drop):
    """With the participant in the cohort, surviving or not, a round opens exactly when it does without."""
    opens = lambda s, b: s >= survivors_to_open(least, b, colluding, malicious=malicious)  # noqa: E731
    differs = {True: Fraction(0), False: Fraction(0)}
    for s, d, mass in trinomial(9, q, drop):
        for survives in (True, False):
            if opens(s, s + d) != opens(s + survives, s + d + 1):
                differs[survives] += mass
    either = (1 - drop) * differs[True] + drop * differs[False]
    paid = opening_delta(
        PoissonDropouts(10, float(q), float(drop)),
        1,
        least,
        colluding=colluding,
        malicious=malicious,
        graph_failure=0.0,
    )
    assert q * either <= Fraction(paid)
    assert either > 0  # there is something to pay for


@pytest.mark.parametrize("colluding", [0, 3])
def test_the_majority_boundary_is_summed_exactly(colluding):
    q, drop = Fraction(1, 2), Fraction(1, 4)
    truth = sum(mass for s, d, mass in trinomial(30, q, drop) if s - d <= colluding + 1)
    found = PoissonDropouts(31, 0.5, 0.25).no_majority(colluding)
    assert truth <= Fraction(found) <= truth * (1 + Fraction(1, 10**9))


def test_the_chernoff_bound_is_one():
    for drop in (0.0, 0.05, 0.25, 0.5):
        cohorts = PoissonDropouts(31, 0.5, drop)
        truth = sum(mass for s, d, mass in trinomial(30, Fraction(1, 2), Fraction(drop)) if s - d <= 2)
        assert truth <= Fraction(cohorts._chernoff(2))


def test_lower_dropout_rates_cost_no_more():
    costs = [opening_delta(PoissonDropouts(1_000, 0.1, drop), 10, 50) for drop in (0.0, 0.1, 0.2, 0.3)]
    assert costs == sorted(costs)


def test_thresholds_that_cannot_be_paid_for_are_refused():
    with pytest.raises(PrivacyUnattainable, match="expect more participants"):
        choose_least_survivors(PoissonDropouts(1_000, 0.01, 0.3), 1_000, 1e-7)
    with pytest.raises(InvalidInput, match="dropout tolerance"):
        choose_least_survivors(PoissonDropouts(100, 1.0, 0.1), 10, 1e-7)
    assert opening_delta(PoissonDropouts(100, 1.0, 0.1), 10, 90) == 0


def test_malicious_majorities_share_an_honest_participant():
    for sampled, colluding in product(range(1, 40), range(4)):
        answers = survivors_to_open(1, sampled, colluding)
        assert 2 * answers - sampled > colluding  # two sets of answers overlap by more than the colluders
        assert survivors_to_open(1, sampled, colluding, malicious=False) == 1


@pytest.mark.parametrize(("least", "colluding"), [(30, 0), (30, 1), (30, 10), (141, 24)])
def test_the_honest_part_of_the_noise_is_enough_for_every_cohort(least, colluding):
    total = Fraction(total_noise(100.0, least, colluding))
    short_by_the_naive_formula = False
    for sampled in (least, least + 1, least + 7, 2 * least, 5 * least + 3):
        for survivors in {least, least + 1, (least + sampled) // 2, sampled}:
            if not least <= survivors <= sampled:
                continue
            pieces = NoisePieces(sampled, least)
            known = sum(pieces.kept(survivors, rank) for rank in range(colluding))  # first in the roster
            assert total * (1 - Fraction(known, pieces.units)) >= 100
            naive = 100 * Fraction(least, least - colluding)
            short_by_the_naive_formula |= naive * (1 - Fraction(known, pieces.units)) < 100
    assert short_by_the_naive_formula == (colluding > 0)


def test_too_many_colluders_leave_no_noise():
    with pytest.raises(InvalidInput, match="colluders"):
        total_noise(10.0, 32, 32)
    assert total_noise(10.0, 33, 31) > 10 * 33 / 2


@pytest.mark.parametrize(("sampled", "fewest"), [(1, 1), (5, 2), (50, 35), (240, 141), (240, 216), (97, 13)])
def test_survivors_keep_all_units_between_them_in_pieces_that_they_have(sampled, fewest):
    pieces = NoisePieces(sampled, fewest)
    for survivors in range(fewest, sampled + 1):
        kept = [pieces.kept(survivors, rank) for rank in range(survivors)]
        assert sum(kept) == pieces.units == 32 * sampled
        assert all(pieces.base <= units <= pieces.base + sum(pieces.sizes) for units in kept)
    most = pieces.kept(fewest, 0) - pieces.base
    assert sum(pieces.sizes[:-1]) < most or not pieces.sizes  # and no piece is idle


def test_pieces_are_few():
    assert NoisePieces(240, 141).sizes == (1, 2, 4, 8, 16)
    assert NoisePieces(240, 216).sizes == (1, 2, 4)
    assert NoisePieces(10, 10).sizes == ()
