"""When a sum opens, what that reveals, and how its noise is divided, by enumeration."""

from fractions import Fraction
from itertools import combinations, product
from math import comb, prod

import numpy as np
import pytest
from scipy import stats

from skelmix.accounting.openings import (
    FixedSizeDropouts,
    NoisePieces,
    PoissonDropouts,
    choose_least_survivors,
    likely_survivors,
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


NEGLIGIBLE = Fraction(1, 2**42)


def fewer(sampled, count, drop):
    """P(fewer than `count` of `sampled` survive), exactly."""
    return sum(
        comb(sampled, s) * (1 - drop) ** s * drop ** (sampled - s) for s in range(min(count, sampled + 1))
    )


@pytest.mark.parametrize("drop", [Fraction(1, 20), Fraction(1, 5), Fraction(3, 10)])
@pytest.mark.parametrize("begins", [0, 100])
def test_the_survivors_that_are_likely_hardly_ever_depend_on_one_participant(drop, begins):
    """Of `others` in the cohort some survive; the rule is asked with one participant more, and without.

    It may begin at any size: below 100 participants there is no sparse graph, and no such rule.
    """
    rule = lambda sampled: likely_survivors(sampled, float(drop)) if sampled >= begins else 0  # noqa: E731
    for others in (40, 99, 100, 160, 240):
        need = max(rule(others), rule(others + 1))  # in all other cases it opens, with and without
        assert fewer(others, need, drop) <= NEGLIGIBLE
        if need > 0:
            assert fewer(others, need + 3, drop) > NEGLIGIBLE  # and it is not far below what is allowed


POPULATION, SIZE = 7, 4
RATES = [Fraction(part, 16) for part in (2, 0, 4, 1, 4, 2, 0)]


@pytest.mark.parametrize(("least", "colluding"), [(2, 0), (3, 0), (4, 0), (2, 1)])
@pytest.mark.parametrize("malicious", [True, False])
def test_a_cohort_of_fixed_size_reveals_nobody_more_often_than_is_paid_for(least, colluding, malicious):
    """Everyone has a dropout probability of its own; whoever is not drawn is replaced by somebody else."""
    need = survivors_to_open(least, SIZE, colluding, malicious=malicious)
    differs = Fraction(0)
    others = range(1, POPULATION)
    places = [(rest, j) for rest in combinations(others, SIZE - 1) for j in others if j not in rest]
    for stays in product((0, 1), repeat=POPULATION):
        mass = prod((1 - p) if stay else p for stay, p in zip(stays, RATES, strict=True))
        for rest, j in places:
            survivors = sum(stays[k] for k in rest)
            if (survivors + stays[0] >= need) != (survivors + stays[j] >= need):
                differs += mass / len(places)
    paid = opening_delta(
        FixedSizeDropouts(POPULATION, SIZE, 0.25), 1, least, colluding=colluding, malicious=malicious,
        graph_failure=0.0,
    )  # fmt: skip
    assert 0 < Fraction(SIZE, POPULATION) * differs <= Fraction(paid)


@pytest.mark.parametrize(("count", "colluding"), [(0, 0), (7, 0), (12, 3), (19, 5), (20, 0), (21, 1)])
def test_the_survivors_among_the_others_of_a_fixed_cohort_are_summed_exactly(count, colluding):
    cohorts, drop = FixedSizeDropouts(60, 20, 0.25), Fraction(1, 4)
    majority = survivors_to_open(1, 20, colluding)
    for found, truth in (
        (cohorts.fewer_survivors_than(count), fewer(19, count, drop)),
        (cohorts.no_majority(colluding), fewer(19, majority, drop)),
    ):
        assert truth <= Fraction(found) <= truth * (1 + Fraction(1, 10**9))


def test_cohorts_of_fixed_size_need_fewer_survivors_than_are_tolerated():
    cohorts = FixedSizeDropouts(60_000, 240, 0.1)
    least = choose_least_survivors(cohorts, 1_000, 1e-7)
    assert opening_delta(cohorts, 1_000, least) <= 1e-7 < opening_delta(cohorts, 1_000, least + 1)
    assert 170 < least < 216  # the size does not vary, so more than with Poisson cohorts: 141
    assert opening_delta(FixedSizeDropouts(240, 240, 0.1), 1_000, 216) == 0
    with pytest.raises(PrivacyUnattainable):
        choose_least_survivors(FixedSizeDropouts(60, 6, 0.3), 100, 1e-7)


def hockey_stick(first, second, epsilon):
    return max(
        float(np.maximum(a - np.exp(epsilon) * b, 0).sum()) for a, b in ((first, second), (second, first))
    )


NOISE = stats.skellam(4.0, 4.0).pmf(np.arange(-40, 41))  # the same for every cohort that opens


def opened(total):
    """The law of an opened sum: its last place is for rounds that fail."""
    return np.append(np.roll(NOISE, total), 0.0)


@pytest.mark.parametrize(("sampling", "drop", "least"), [("poisson", 0.3, 1), ("fixed", 0.9, 1)])
def test_what_an_observer_sees_is_as_private_as_the_sampled_mechanism_up_to_what_is_paid(
    sampling, drop, least
):
    """All of a small round's law: who is drawn, who drops out, whether it opens, and the noisy sum.

    So few are drawn that rounds open mostly because of a participant that never drops out.
    """
    vectors, rates, people = (3, -1, 1, 0, 1), (0.0, drop, drop, drop / 2, drop), range(5)
    if sampling == "fixed":
        law = FixedSizeDropouts(5, 2, drop)
        drawn = [(set(cohort), 1 / 10) for cohort in combinations(people, 2)]
    else:
        law = PoissonDropouts(5, 0.1, drop)
        cohorts = [set(cohort) for size in range(6) for cohort in combinations(people, size)]
        drawn = [(cohort, 0.1 ** len(cohort) * 0.9 ** (5 - len(cohort))) for cohort in cohorts]
    failed = np.append(np.zeros_like(NOISE), 1.0)

    def world(mine, *, always_opens):
        seen, mechanism = np.zeros_like(failed), {}
        own = (mine, *vectors[1:])
        for stays in product((False, True), repeat=5):
            mass = np.prod([1 - p if stay else p for stay, p in zip(stays, rates, strict=True)])
            for cohort, chance in drawn:
                present = [person for person in cohort if stays[person]]
                opens = always_opens or len(present) >= least
                law_of_round = opened(sum(own[person] for person in present)) if opens else failed
                seen += mass * chance * law_of_round
                mechanism[stays] = mechanism.get(stays, 0) + chance * law_of_round
        return seen, mechanism

    paid = opening_delta(law, 1, least, malicious=False, graph_failure=0.0)
    real, unreal = world(3, always_opens=False)[0], world(0, always_opens=False)[0]
    sampled, unsampled = world(3, always_opens=True)[1], world(0, always_opens=True)[1]
    beyond = []
    for epsilon in (0.0, 0.2, 0.5, 1.0, 1.5, 2.0):
        proved = max(hockey_stick(sampled[stays], unsampled[stays], epsilon) for stays in sampled)
        found = hockey_stick(real, unreal, epsilon)
        assert found <= proved + paid
        beyond.append(found - proved)
    assert max(beyond) > 0.005  # so that something has to be paid
    assert paid < 0.4
