"""(ε, δ) of many rounds from Gaussian certificates, by dp-accounting's privacy-loss distributions.

A Poisson-sampled round is dominated by (1-q)·N(0,1) + q·N(mu,1) against N(0,1); dominating pairs compose,
adaptively too (Zhu, Dong and Wang 2022, Theorem 10). Only the law with the participant was moved, by slack·q
a round in total variation, so that

    δ(ε) <= δ_PLD(ε) + e^ε·Σ rounds·q·slack        (docs/explanation/gaussian-certificates.md, section 4).

Everything returned is on the private side: the distributions are discretised pessimistically.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from skelmix.accounting.steps import GaussianCertificate
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.validation import non_negative, positive, probability, whole

Part = tuple[GaussianCertificate, float, int]
"""(certificate of one round, probability of being sampled, number of such rounds)."""

_Gaussians = tuple[tuple[float, float, int], ...]  # (mu, sampling probability, rounds)

_COARSEST = 4e-3  # first discretisation of the privacy loss
_FINEST_STEPS = 11  # it is halved at most so often
_CONVERGED = 1e-3  # ε may still fall by about a third of this (relative, or absolute above ε = 1)
_FFT_ERROR = 1e-12  # allowed for rounding in dp-accounting's convolutions, taken off δ
_MOST_POINTS = 2e6


class _Profile(Protocol):
    def delta(self, epsilon: float) -> float: ...

    def epsilon(self, delta: float) -> float: ...


class _Gaussian:
    """Unsampled rounds: one Gaussian with mu² = Σ rounds·mu², in closed form (Balle and Wang 2018, Theorem
    8).
    """

    def __init__(self, mu: float) -> None:
        self.mu = mu

    def delta(self, epsilon: float) -> float:
        if self.mu == 0:
            return 0.0
        near = log_ndtr(self.mu / 2 - epsilon / self.mu)
        far = log_ndtr(-self.mu / 2 - epsilon / self.mu)
        return float(np.exp(near) * -np.expm1(min(0.0, epsilon + far - near))) * (1 + 1e-9)

    def epsilon(self, delta: float) -> float:
        if self.delta(0.0) <= delta:
            return 0.0
        high = self.mu * (self.mu / 2 + math.sqrt(2 * math.log(1 / delta)) + 1)
        return float(brentq(lambda e: self.delta(e) - delta, 0.0, high, xtol=1e-12)) + 1e-9


class _Sampled:
    def __init__(self, pld: Any) -> None:
        self.pld = pld

    def delta(self, epsilon: float) -> float:
        return float(self.pld.get_delta_for_epsilon(epsilon)) + _FFT_ERROR

    def epsilon(self, delta: float) -> float:
        if delta <= _FFT_ERROR:
            return math.inf
        return max(0.0, float(self.pld.get_epsilon_for_delta(delta - _FFT_ERROR)))


@functools.lru_cache(maxsize=64)
def _profile(parts: _Gaussians, interval: float) -> _Profile:
    """The composition with this discretisation; unsampled rounds are one Gaussian, and exact when they are
    all there is.
    """
    from dp_accounting.pld import privacy_loss_distribution as distributions

    total = math.sqrt(sum(rounds * mu**2 for mu, q, rounds in parts if q == 1))
    sampled = [part for part in parts if part[1] < 1]
    if not sampled:
        return _Gaussian(total)
    composed = None
    for mu, q, rounds in [*sampled, *([(total, 1.0, 1)] if total else [])]:
        one = distributions.from_gaussian_mechanism(
            1 / mu, sampling_prob=q, value_discretization_interval=interval, pessimistic_estimate=True
        ).self_compose(rounds)
        composed = one if composed is None else composed.compose(one)
    return _Sampled(composed)


def _least_epsilon(profile: _Profile, delta: float, slack: float) -> float:
    """The least ε found with δ_PLD(ε) + e^ε·slack <= δ; infinity if there is none."""
    epsilon = profile.epsilon(delta)
    for _ in range(100):
        if epsilon > 700 or math.exp(epsilon) * slack >= delta:
            return math.inf
        following = profile.epsilon(delta - math.exp(epsilon) * slack)
        if following <= epsilon:
            return epsilon
        epsilon = following + 1e-9  # climbs to the least fixed point; the step ends the climb
    return math.inf


@functools.lru_cache(maxsize=512)
def _epsilon(parts: _Gaussians, delta: float, slack: float) -> tuple[float, float]:
    """(ε, discretisation at which it settled)."""
    parts = tuple(part for part in parts if part[0] > 0 and part[1] > 0)
    if any(
        mu > 40 for mu, _, _ in parts
    ):  # no guarantee of any use, and no discretisation that fits into memory
        return math.inf, 0.0
    interval, before = _coarsest(parts), math.inf
    for _ in range(_FINEST_STEPS):
        found = min(before, _least_epsilon(_profile(parts, interval), delta, slack))
        settled = before - found <= _CONVERGED * min(1.0, found) and interval <= 0.05 * found
        if settled or math.isinf(found) or all(q == 1 for _, q, _ in parts) or interval / 2 < _finest(parts):
            break
        interval, before = interval / 2, found
    return found, interval


def _coarsest(parts: _Gaussians) -> float:
    return max(_COARSEST, _finest(parts))


def _finest(parts: _Gaussians) -> float:
    widest = max((mu * (mu + 20) for mu, _, _ in parts), default=1.0)  # of the privacy losses of a round
    return widest / _MOST_POINTS


def composed_epsilon(parts: Sequence[Part], *, delta: float) -> float:
    """ε at δ of all rounds together, whatever their certificates and sampling probabilities; infinity if
    slack exceeds δ.

    Poisson sampling (or none, q = 1). No parts: 0.
    """
    probability(delta=delta)
    return _epsilon(_gaussians(parts), float(delta), _total_slack(parts))[0]


def composed_delta(parts: Sequence[Part], *, epsilon: float) -> float:
    """δ at ε of all rounds together, at most 1. See `composed_epsilon`."""
    non_negative(epsilon=epsilon)
    gaussians = tuple(part for part in _gaussians(parts) if part[0] > 0 and part[1] > 0)
    if any(mu > 40 for mu, _, _ in gaussians):
        return 1.0
    interval, before = _coarsest(gaussians), 1.0
    for _ in range(_FINEST_STEPS):
        found = _profile(gaussians, interval).delta(epsilon)
        if (before - found <= _CONVERGED * found and before < 1) or interval / 2 < _finest(gaussians):
            break
        interval, before = interval / 2, min(found, before)
    slack = math.exp(min(epsilon, 700.0)) * _total_slack(parts)
    return min(1.0, found, before) + slack if min(found, before) + slack < 1 else 1.0


def _gaussians(parts: Sequence[Part]) -> _Gaussians:
    for _, q, rounds in parts:
        whole(0, rounds=rounds)
        non_negative(sampling_probability=q)
        if q > 1:
            raise InvalidInput(f"sampling_probability = {q!r}: must be at most 1")
    return tuple((c.mu, float(q), int(rounds)) for c, q, rounds in parts if rounds)


def _total_slack(parts: Sequence[Part]) -> float:
    return math.fsum(certificate.slack * q * rounds for certificate, q, rounds in parts) * (1 + 1e-12)


def _refuse_fixed(sampling: str) -> None:
    if sampling not in ("poisson", "fixed"):
        raise InvalidInput(f"sampling = {sampling!r}: must be 'poisson' or 'fixed'")
    if sampling == "fixed":
        raise InvalidInput(
            "sampling = 'fixed': privacy-loss distributions of fixed-size sampling are not available "
            "(dp-accounting has none); "
            "sample by Poisson, or account with bound='rdp', which has a theorem for fixed cohorts"
        )


def pld_epsilon(
    certificate: GaussianCertificate,
    *,
    delta: float,
    rounds: int = 1,
    sampling_probability: float = 1.0,
    sampling: str = "poisson",
) -> float:
    """ε at δ of `rounds` rounds, each Poisson-sampled with this probability (1: everyone takes part).

    An upper bound, within about 1e-3 of what privacy-loss distributions give in the limit. Infinity where the
    certificate's slack exceeds δ.
    """
    _refuse_fixed(sampling)
    return composed_epsilon([(certificate, sampling_probability, rounds)], delta=delta)


def pld_delta(
    certificate: GaussianCertificate,
    *,
    epsilon: float,
    rounds: int = 1,
    sampling_probability: float = 1.0,
    sampling: str = "poisson",
) -> float:
    """δ at ε, an upper bound; see `pld_epsilon`."""
    _refuse_fixed(sampling)
    return composed_delta([(certificate, sampling_probability, rounds)], epsilon=epsilon)


def gaussian_pld_epsilon(
    noise_multiplier: float, sampling_probability: float, rounds: int, delta: float
) -> float:
    """ε of the central Gaussian mechanism by privacy-loss distributions, an upper bound."""
    positive(noise_multiplier=noise_multiplier)
    probability(delta=delta)
    parts = ((1 / float(noise_multiplier), float(sampling_probability), int(rounds)),)
    return _epsilon(parts, float(delta), 0.0)[0]


@functools.lru_cache(maxsize=256)
def largest_mu(epsilon: float, delta: float, rounds: int, sampling_probability: float = 1.0) -> float:
    """The largest mu (to 1e-5) for which `rounds` Poisson-sampled Gaussian rounds are (epsilon,
    delta)-private.

    Guarantee: gaussian_pld_epsilon(1/mu, …) <= epsilon was evaluated. Take the slack's share off delta
    beforehand. Raises `PrivacyUnattainable` when even mu = 1e-6 does not do it.
    """
    positive(epsilon=epsilon)
    probability(delta=delta)
    whole(1, rounds=rounds)
    if not 0 < sampling_probability <= 1:
        raise InvalidInput(f"sampling_probability = {sampling_probability!r}: must be in (0, 1]")

    def excess(log_mu: float, interval: float = _COARSEST) -> float:
        parts = ((math.exp(log_mu), float(sampling_probability), int(rounds)),)
        if log_mu > math.log(40):
            return 50.0
        found = _profile(parts, max(interval, _finest(parts))).epsilon(delta)
        return math.log(max(found, 1e-9) / epsilon) if found < math.inf else 50.0

    low, high = _bracket(excess)
    near = float(brentq(excess, low, high, xtol=1e-4))  # cheap, then once more as finely as it takes
    interval = _epsilon(((math.exp(near), float(sampling_probability), int(rounds)),), float(delta), 0.0)[1]

    def fine(log_mu: float) -> float:
        return excess(log_mu, interval)

    low = high = near
    for width in (0.01, 0.05, 0.2, 1.0):
        low, high = (low - width if fine(low) > 0 else low), (high + width if fine(high) <= 0 else high)
    root = float(brentq(fine, low, high, xtol=2e-6)) if fine(high) > 0 >= fine(low) else low
    for nudge in (0.0, 2e-6, 4e-6, 1e-5, 1e-4, 1e-3):  # onto the private side
        mu = math.exp(root - nudge)
        if gaussian_pld_epsilon(1 / mu, sampling_probability, rounds, delta) <= epsilon:
            return mu
    raise PrivacyUnattainable(f"no mu found for epsilon = {epsilon}: the accountant is not monotone here")


def _bracket(excess: Callable[[float], float]) -> tuple[float, float]:
    low = high = 0.0
    while excess(low) > 0:
        high, low = low, low - 1.0
        if low < math.log(1e-6):
            raise PrivacyUnattainable(
                "no noise reaches this target; raise epsilon or delta, sample fewer participants or run "
                "fewer rounds"
            )
    while high <= low or excess(high) <= 0:
        low, high = (high, high + 1.0) if high > low else (low, low + 1.0)
        if high > math.log(1e6):
            raise PrivacyUnattainable("this target needs no noise at all: lower epsilon or delta")
    return low, high


def central_noise_multiplier(epsilon: float, delta: float, sampling_probability: float, rounds: int) -> float:
    """The least noise multiplier of the central Gaussian for the target, by privacy-loss distributions, on
    the private side.
    """
    return 1 / largest_mu(epsilon, delta, rounds, sampling_probability)
