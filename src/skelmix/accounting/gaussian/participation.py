"""ε against an aggregator who sees when a participant takes part, from Gaussian certificates.

Which rounds a participant is in has the same law whether its vector is there or zero. So give it to the
adversary at once: given that there are K contributions, K rounds compose, and

    δ(ε) <= Σ_k P(K = k)·δ_k(ε)       (docs/explanation/aggregator.md, section 1).

Without a coin δ_k belongs to one Gaussian with mu·√k, in closed form: the sum is exact, without transforms.
With a coin (the participant secretly sends its vector with probability c, else zero) every contribution is a
c-sampled Gaussian round, put on a grid and composed as `losses` does it.

Slack is paid without the factor e^ε (section 3 of that page): in each direction the *first* law of the pair
is moved. Everything returned is an upper bound.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.optimize import brentq

from skelmix.accounting.gaussian.certificate import GaussianCertificate
from skelmix.accounting.gaussian.random_rounds import directions, gaussian_deltas
from skelmix.accounting.participations import Participations
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.validation import positive, probability

_COARSEST = 4e-3  # first discretisation of the privacy loss
_FINEST_STEPS = 9  # the discretisation is halved at most so often
_CONVERGED = 1e-3  # ε may still fall by about a third of this: relative below 1, absolute up to 20
_MOST_POINTS = 2e6  # most grid points of one round
_LARGEST_MU = 40.0  # largest mu of one round: with a larger one, ε is too large to be of use


def _intervals(mu: float, coin: float) -> Iterator[float]:
    finest = _finest(mu)
    interval = max(_COARSEST, finest)
    yield interval
    for _ in range(_FINEST_STEPS if coin < 1 else 0):
        interval /= 2
        if interval < finest:
            return
        yield interval


def _finest(mu: float) -> float:
    return mu * (mu + 20) / _MOST_POINTS


@functools.lru_cache(maxsize=512)
def _epsilon(
    mu: float, slack: float, coin: float, participations: Participations, delta: float
) -> tuple[float, float]:
    """(ε, discretisation at which it settled)."""
    if coin < 1 and mu > _LARGEST_MU:
        return math.inf, _COARSEST
    paid = participations.expected * slack * (1 + 1e-12)
    if paid >= delta:
        return math.inf, _COARSEST
    best = math.inf
    for interval in _intervals(mu, coin):
        forward, reverse = directions(mu, coin, participations, interval)
        refined = min(best, max(forward.epsilon(delta - coin * paid), reverse.epsilon(delta - paid)))
        enough = _CONVERGED * max(min(1.0, refined), 0.05 * refined)
        settled = best - refined <= enough and interval <= 0.05 * refined
        best = refined
        if settled or math.isinf(best):
            break
    return best, interval


def aggregator_epsilon(
    certificate: GaussianCertificate, participations: Participations, *, delta: float, coin: float = 1.0
) -> float:
    """An upper bound on ε at δ against whoever sees in which rounds the participant takes part.

    participations: how often that happens; `Participations(rounds, q)` for cohorts drawn as agreed,
    `Participations(rounds)` for a participant in every round, `Participations(rounds, cap=k)` for an
    aggregator that picks cohorts at will and a participant that contributes at most k times. coin: the
    probability with which a participant in a cohort secretly sends its vector rather than zero.

    Exact without a coin, within about 1e-3 of the limit with one. Infinity where the certificate's slack
    times the expected contributions exceeds δ; with a coin also for δ near the rounding of the transforms
    (about 1e-11), or a mu above 40.

    Example:

        >>> from skelmix.accounting import gaussian_certificate
        >>> run = Participations(rounds=1_000, sampling_probability=0.004)
        >>> round(aggregator_epsilon(gaussian_certificate(0.6344), run, delta=1e-5), 2)
        28.86
    """
    probability(delta=delta)
    _check_coin(coin)
    if certificate.mu == 0 and certificate.slack == 0:
        return 0.0
    mu = max(certificate.mu, 1e-12)
    return _epsilon(mu, certificate.slack, float(coin), participations, float(delta))[0]


def largest_mu_against_aggregator(
    epsilon: float, delta: float, participations: Participations, *, coin: float = 1.0
) -> float:
    """The largest mu of a round, to 1e-4, with which a run is private against the aggregator.

    Guarantee: `aggregator_epsilon` of that mu without slack is at most epsilon at delta; take the slack's
    share off delta beforehand. At most 40. Raises `PrivacyUnattainable` when even mu = 1e-6 is too large.

    Example:

        >>> run = Participations(rounds=1_000, sampling_probability=0.04)
        >>> round(1 / largest_mu_against_aggregator(8.0, 1e-5, run, coin=0.1), 3)  # a noise multiplier
        0.776
    """
    positive(epsilon=epsilon)
    probability(delta=delta)
    _check_coin(coin)
    coin = float(coin)

    def excess(log_mu: float, interval: float) -> float:
        mu = math.exp(log_mu)
        profiles = directions(mu, coin, participations, max(interval, _finest(mu)))
        return math.log(max(1e-300, *(profile.delta(epsilon) for profile in profiles)) / delta)

    x = _root(
        lambda log_mu: excess(log_mu, _COARSEST), _rough_log_mu(epsilon, delta, participations, coin), 0.2
    )
    if coin < 1:
        interval = _epsilon(math.exp(x), 0.0, coin, participations, float(delta))[1]
        x = _root(lambda log_mu: excess(log_mu, interval), x, 0.01)
    for nudge in (0.0, 1e-5, 1e-4, 1e-3, 1e-2):  # the guarantee, by the function that makes claims
        if _epsilon(math.exp(x - nudge), 0.0, coin, participations, float(delta))[0] <= epsilon:
            return math.exp(x - nudge)
    raise _unattainable()


def _rough_log_mu(epsilon: float, delta: float, participations: Participations, coin: float) -> float:
    """A rough ln mu: m contributions with a coin c are like one Gaussian with mu² = m·c²·(exp(mu²) - 1)."""

    def excess(log_mu: float) -> float:
        return math.log(max(1e-300, float(gaussian_deltas(epsilon, np.exp([log_mu]))[0])) / delta)

    total = math.exp(2 * _root(excess, 0.0, 1.0)) / participations.expected
    return 0.5 * math.log(math.log1p(total / coin**2) if coin < 1 else total)


def _root(excess: Callable[[float], float], x: float, step: float) -> float:
    """The root of a rising function of ln mu, to 5e-6, or the largest useful ln mu."""
    lowest, highest = math.log(1e-6), math.log(_LARGEST_MU)
    low = high = min(highest, max(lowest, x))
    while excess(low) > 0:
        if low == lowest:
            raise _unattainable()
        low, high = max(lowest, low - step), low
    while excess(high) <= 0:
        if high == highest:
            return highest
        low, high = high, min(highest, high + step)
    return float(brentq(excess, low, high, xtol=5e-6))


def _unattainable() -> PrivacyUnattainable:
    return PrivacyUnattainable(
        "no noise reaches this target against the aggregator; raise epsilon or delta, or run fewer rounds"
    )


def _check_coin(coin: float) -> None:
    positive(coin=coin)
    if coin > 1:
        raise InvalidInput(f"coin = {coin!r}: must be a probability in (0, 1]; 1 for no coin")
