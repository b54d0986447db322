"""What a certificate leaves out costs δ its slack and no more, in both directions: exact laws."""

import math

import numpy as np
import pytest
from scipy.special import ndtri

from helpers.profiles import convolved_profiles, gaussian_profile, hockey_stick, pair
from skelmix.accounting.gaussian.certificate import gdp_certificate, integer_gdp_certificate
from skelmix.accounting.gaussian.flat import flat_certificate
from skelmix.accounting.gaussian.participation import aggregator_epsilon
from skelmix.accounting.participations import Participations
from skelmix.noise.laws import Skellam

EPSILONS = np.concatenate([[1e-6, 0.1, 0.25], np.linspace(0.5, 40, 80)])


def covers(certificate, run, exact, epsilons=EPSILONS, coin=1.0):
    """Whether the ε that is stated at each δ is no smaller than the ε that has this very δ."""
    pairs = [(epsilon, delta) for epsilon, delta in zip(epsilons, exact, strict=True) if 0 < delta < 1]
    assert pairs
    return all(
        aggregator_epsilon(certificate, run, delta=float(delta), coin=coin) >= epsilon * (1 - 1e-12)
        for epsilon, delta in pairs
    )


def composed(laws, rounds):
    """Both laws of so many independent rounds, enumerated."""
    first, second = np.ones(1), np.ones(1)
    for _ in range(rounds):
        first, second = np.outer(first, laws[0]).ravel(), np.outer(second, laws[1]).ravel()
    return first, second


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("coin", [1.0, 0.3])
@pytest.mark.parametrize("x", [0.15, 1.0, 1.6, 3.0])
def test_enumerated_rounds_are_within_the_slack_at_every_epsilon(x, coin, rounds):
    law = Skellam(2.0)
    certificate = gdp_certificate(law, x, 1, 0.02)
    without, present = pair(law, x, 60)
    with_coin = (1 - coin) * without + coin * present
    forward = hockey_stick(*composed((with_coin, without), rounds), EPSILONS)
    reverse = hockey_stick(*composed((without, with_coin), rounds), EPSILONS)
    assert covers(certificate, Participations(rounds), forward, coin=coin)
    assert covers(certificate, Participations(rounds), reverse, coin=coin)


def mirrored(law, x, cut, reach=70):
    """(P_0 with its tails beyond the cut spread in proportion to P_x, P_0, P_x, mu, δ₁): the moved law is the
    one without the participant."""
    without, present = pair(law, x, reach)
    k = np.arange(-reach, reach + 1)
    moved = without.copy()
    for tail in (k > cut, k <= -cut):
        moved[tail] = present[tail] * (without[tail].sum() / present[tail].sum())
    beyond = np.array([law.pmf(np.arange(j + 1, reach)).sum() for j in range(cut + math.ceil(x) + 2)])
    scores = -ndtri(beyond)  # of levels 0, 1, …
    slopes = law.pmf(np.arange(cut + 1)) * np.exp(scores[: cut + 1] ** 2 / 2) * math.sqrt(2 * math.pi)
    steps = np.diff(scores[cut : cut + math.ceil(x) + 1])
    return moved, without, present, x * max(slopes.max(), steps.max(initial=0.0)), 2 * beyond[cut - 1]


def dominated(p, q, mu):
    epsilons = np.linspace(0, 30, 301)
    return all(
        (hockey_stick(*order, epsilons) <= gaussian_profile(epsilons, mu) + 1e-14).all()
        for order in ((p, q), (q, p))
    )


@pytest.mark.parametrize("rate", [0.7, 4.0, 20.0])
@pytest.mark.parametrize("x", [0.02, 0.15, 0.5, 0.9, 1.0, 1.6, 3.0, 4.3])
def test_moving_the_law_without_the_participant_costs_no_more(x, rate):
    """The mirror image of the certificate: same mu, same total variation |x|·δ₁."""
    for cut in (1, 2, 5, 9):
        moved, without, present, mu, tail = mirrored(Skellam(rate), x, cut)
        assert np.abs(moved - without).sum() / 2 <= x * tail * (1 + 1e-9)
        assert dominated(moved, present, mu)


def test_without_moving_a_law_a_gaussian_does_not_dominate():
    """So the slack is needed, in each direction."""
    moved, without, present, mu, _ = mirrored(Skellam(4.0), 0.15, 2)
    assert dominated(moved, present, mu)
    assert not dominated(without, present, mu)
    assert not dominated(moved, present, 0.8 * mu)


def test_random_participation_by_enumeration():
    """Two rounds, each with probability 0.3: the label of a round is seen in both worlds."""
    law, q = Skellam(3.0), 0.3
    certificate = integer_gdp_certificate(law, 2.0)
    without, present = pair(law, 2, 40)
    labelled = [np.concatenate([[1 - q], q * one]) for one in (present, without)]
    run = Participations(2, q)
    for order in (labelled, labelled[::-1]):
        exact = hockey_stick(*composed(order, 2), EPSILONS)
        assert covers(certificate, run, exact)
    assert aggregator_epsilon(certificate, run, delta=exact[3] / 0.8) < EPSILONS[3]  # so it is not idle


def test_integers():
    law = Skellam(3.0)
    certificate = integer_gdp_certificate(law, 2.0)
    without, present = pair(law, 2, 120)
    assert covers(certificate, Participations(1), hockey_stick(without, present, EPSILONS))


def test_flat_certificates_beyond_what_they_compare():
    """1600 coordinates of 0.4 at Λ = 61.8; ε* of this slack is about 4.6."""
    law, epsilons = Skellam(61.8), np.linspace(0.01, 9, 19)
    certificate = flat_certificate(law, 16.0, 0.4, 1600, 1e-5)
    assert gaussian_profile(9.0, certificate.mu) < certificate.slack / 100
    for exact in convolved_profiles(law, [(0.4, 1600)], epsilons, reach=130):
        assert covers(certificate, Participations(1), exact, epsilons)
