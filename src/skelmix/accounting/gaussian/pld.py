"""(ε, δ) of many rounds from Gaussian certificates, by privacy-loss distributions.

A Poisson-sampled round is dominated by (1-q)·N(0,1) + q·N(mu,1) against N(0,1); dominating pairs compose,
adaptively too (Zhu, Dong and Wang 2022, Theorem 10). Only the law with the participant was moved, by slack·q
per round in total variation, so that

    δ(ε) <= δ_PLD(ε) + e^ε·Σ rounds·q·slack        (docs/explanation/gaussian-certificates.md, section 4).

Everything returned is on the private side: the distributions are discretised pessimistically, and a proved
bound on the rounding of the transforms is taken off δ (`transforms`). One number is assumed, not proved: that
the divergences of one round, evaluated in double precision, and the mass made of them, are right to 2^-50
together (`DIVERGENCE_ERROR`); tests compare with 60 digits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from scipy.special import log_ndtr

from skelmix.accounting.bisection import boundary
from skelmix.accounting.gaussian.certificate import GaussianCertificate
from skelmix.accounting.gaussian.losses import DIVERGENCE_ERROR, Losses, hockey_stick, sampled_gaussian
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.validation import non_negative, positive, probability, whole

Part = tuple[GaussianCertificate, float, int]
"""(certificate of one round, probability of being sampled, number of such rounds)."""

_Gaussians = tuple[tuple[float, float, int], ...]  # (mu, sampling probability, rounds)

_COARSEST = 4e-3  # first discretisation of the privacy loss
_FINEST_STEPS = 11  # the discretisation is halved at most so often
_CONVERGED = 1e-3  # ε may still fall by about a third of this (relative, or absolute above ε = 1)
_MOST_POINTS = 2e6  # of the finest grid


class _Profile(Protocol):
    def delta(self, epsilon: float) -> float: ...

    def epsilon(self, delta: float) -> float: ...


class _Gaussian:
    """Unsampled rounds as one Gaussian with mu² = Σ rounds·mu², in closed form.

    Balle and Wang 2018, Theorem 8.
    """

    def __init__(self, mu: float) -> None:
        self.mu = mu

    def delta(self, epsilon: float) -> float:
        if self.mu == 0:
            return 0.0
        near = float(log_ndtr(self.mu / 2 - epsilon / self.mu))
        rounding_error = 1e-15 * (1 + abs(near) + epsilon) * math.exp(near)  # matters where mu is small
        return float(hockey_stick(np.asarray(epsilon), self.mu)) * (1 + 1e-9) + rounding_error

    def epsilon(self, delta: float) -> float:
        if self.delta(0.0) <= delta:
            return 0.0
        highest = self.mu * (self.mu / 2 + math.sqrt(2 * math.log(1 / delta)) + 1)
        return boundary(lambda epsilon: self.delta(epsilon) <= delta, 0.0, highest)


class _Sampled:
    """The worse of both directions of a composition of rounds.

    `allowance` is taken off δ: what is assumed of each round's divergences, and what is proved of the
    transforms.
    """

    def __init__(self, directions: tuple[Losses, ...], rounds: int) -> None:
        self.directions = directions
        self.allowance = rounds * DIVERGENCE_ERROR + max(losses.rounding for losses in directions)

    def delta(self, epsilon: float) -> float:
        delta_on_grid = max(0.0, *(losses.delta(epsilon) for losses in self.directions))
        return delta_on_grid * (1 + 1e-9) + self.allowance  # a sum of up to millions of terms

    def epsilon(self, delta: float) -> float:
        if delta <= self.allowance:
            return math.inf
        epsilon, step = max(losses.epsilon(delta - self.allowance) for losses in self.directions), 1e-12
        while self.delta(epsilon) > delta and epsilon < math.inf:  # its sums lose digits that `delta` keeps
            epsilon, step = epsilon + step, 2 * step
        return epsilon


@functools.lru_cache(maxsize=16)
def _profile(parts: _Gaussians, interval: float) -> _Profile:
    """The composition with this discretisation.

    Unsampled rounds are one Gaussian, and exact when there are no others.
    """
    total = math.sqrt(sum(rounds * mu**2 for mu, q, rounds in parts if q == 1))
    sampled = [part for part in parts if part[1] < 1]
    if not sampled:
        return _Gaussian(total)
    directions: tuple[Losses, ...] = ()
    for mu, q, rounds in [*sampled, *([(total, 1.0, 1)] if total else [])]:
        composed = tuple(losses.repeated(rounds) for losses in sampled_gaussian(mu, q, interval))
        directions = (
            tuple(a + b for a, b in zip(directions, composed, strict=True)) if directions else composed
        )
    return _Sampled(directions, sum(rounds for _, _, rounds in sampled) + bool(total))


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
    if any(mu > 40 for mu, _, _ in parts):  # such an ε is of no use, and no discretisation fits into memory
        return math.inf, 0.0
    interval, before, step = _coarsest(parts), math.inf, 2.0
    for _ in range(_FINEST_STEPS):
        epsilon = min(before, _least_epsilon(_profile(parts, interval), delta, slack))
        # the error of the discretisation is about quadratic in the interval: so much is still to be gained
        excess = (before - epsilon) / (step**2 - 1) / (_CONVERGED / 3 * min(1.0, epsilon) or 1.0)
        settled = (excess <= 1 and interval <= 0.05 * epsilon) or math.isinf(epsilon)
        if settled or all(q == 1 for _, q, _ in parts) or interval / 2 < _finest(parts):
            break
        step = 4.0 if 4 < excess < math.inf and interval / 4 >= _finest(parts) else 2.0
        interval, before = interval / step, epsilon
    return epsilon, interval


def _coarsest(parts: _Gaussians) -> float:
    return max(_COARSEST, _finest(parts))


def _finest(parts: _Gaussians) -> float:
    widest = max((mu * (mu + 20) for mu, _, _ in parts), default=1.0)  # range of a round's privacy losses
    return widest / _MOST_POINTS


def composed_epsilon(parts: Sequence[Part], *, delta: float) -> float:
    """The ε at δ of all rounds together; infinity if slack exceeds δ.

    Certificates and sampling probabilities may differ between rounds.

    Poisson sampling (or none, q = 1). No parts: 0.
    """
    probability(delta=delta)
    return _epsilon(_gaussians(parts), float(delta), _total_slack(parts))[0]


def composed_delta(parts: Sequence[Part], *, epsilon: float) -> float:
    """The δ at ε of all rounds together, at most 1; see `composed_epsilon`."""
    non_negative(epsilon=epsilon)
    gaussians = tuple(part for part in _gaussians(parts) if part[0] > 0 and part[1] > 0)
    if any(mu > 40 for mu, _, _ in gaussians):
        return 1.0
    interval, before = _coarsest(gaussians), 1.0
    for _ in range(_FINEST_STEPS):
        refined = _profile(gaussians, interval).delta(epsilon)
        if (before - refined <= _CONVERGED * refined and before < 1) or interval / 2 < _finest(gaussians):
            break
        interval, before = interval / 2, min(refined, before)
    slack = math.exp(min(epsilon, 700.0)) * _total_slack(parts)
    return min(1.0, refined, before) + slack if min(refined, before) + slack < 1 else 1.0


def _gaussians(parts: Sequence[Part]) -> _Gaussians:
    for _, q, rounds in parts:
        whole(0, rounds=rounds)
        non_negative(sampling_probability=q)
        if q > 1:
            raise InvalidInput(f"sampling_probability = {q!r}: must be at most 1")
    return tuple((_rounded_up(c.mu), float(q), int(rounds)) for c, q, rounds in parts if rounds)


def _rounded_up(mu: float) -> float:
    """The number rounded up by 2^-40 (relative) at most: values that differ in their last bits become one."""
    fraction, exponent = math.frexp(mu)
    return math.ldexp(math.ceil(fraction * 2**41) / 2**41, exponent)


def _total_slack(parts: Sequence[Part]) -> float:
    return math.fsum(certificate.slack * q * rounds for certificate, q, rounds in parts) * (1 + 1e-12)


def _refuse_fixed(sampling: str) -> None:
    if sampling not in ("poisson", "fixed"):
        raise InvalidInput(f"sampling = {sampling!r}: must be 'poisson' or 'fixed'")
    if sampling == "fixed":
        raise InvalidInput(
            "sampling = 'fixed': privacy-loss distributions of fixed-size sampling are not available "
            "(dp-accounting has none either); "
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


def gaussian_pld_epsilon(
    noise_multiplier: float, sampling_probability: float, rounds: int, delta: float
) -> float:
    """ε of the central Gaussian mechanism by privacy-loss distributions, an upper bound.

    Example:

        >>> round(gaussian_pld_epsilon(0.6344, sampling_probability=0.004, rounds=1_000, delta=1e-5), 2)
        3.0
    """
    positive(noise_multiplier=noise_multiplier)
    probability(delta=delta)
    parts = ((_rounded_up(1 / float(noise_multiplier)), float(sampling_probability), int(rounds)),)
    return _epsilon(parts, float(delta), 0.0)[0]


def largest_mu(
    epsilon: float,
    delta: float,
    rounds: int,
    sampling_probability: float = 1.0,
    *,
    near: float | None = None,
) -> float:
    """The largest mu (to 1e-5) with which `rounds` Poisson-sampled Gaussian rounds are (ε, δ)-private.

    Guarantee: gaussian_pld_epsilon(1/mu, …) <= epsilon was evaluated. Take the slack's share off delta
    beforehand. near: the delta of an answer already known, to start from. Raises `PrivacyUnattainable` when
    even mu = 1e-6 is too large.
    """
    positive(epsilon=epsilon)
    probability(delta=delta)
    whole(1, rounds=rounds)
    if not 0 < sampling_probability <= 1:
        raise InvalidInput(f"sampling_probability = {sampling_probability!r}: must be in (0, 1]")
    q, rounds = float(sampling_probability), int(rounds)
    start = None if near is None else _largest_mu(float(epsilon), float(near), rounds, q, None)
    return _largest_mu(float(epsilon), float(delta), rounds, q, start)[0]


@functools.lru_cache(maxsize=256)
def _largest_mu(
    epsilon: float, delta: float, rounds: int, q: float, start: tuple[float, float] | None
) -> tuple[float, float]:
    """The largest mu, and the slope of log ε over log mu there.

    Coarsely, then as finely as it takes, on the private side.
    """

    def excess(log_mu: float, interval: float = _COARSEST) -> float:
        parts = ((_rounded_up(math.exp(log_mu)), q, rounds),)
        if log_mu > math.log(40):
            return 50.0
        reached = _profile(parts, max(interval, _finest(parts))).epsilon(delta)
        return math.log(max(reached, 1e-9) / epsilon) if reached < math.inf else 50.0

    if start is None:
        x, slope = _root(excess, _like_a_gaussian(epsilon, delta, rounds, q), 1.2, 1e-3)
    else:
        x, slope = math.log(start[0]), start[1]
    interval = _epsilon(((_rounded_up(math.exp(x)), q, rounds),), delta, 0.0)[1]
    x, slope = _root(lambda log_mu: excess(log_mu, interval), x, slope, 1e-5)
    for nudge in (0.0, 2e-6, 4e-6, 1e-5, 1e-4, 1e-3):  # the guarantee, by the function that makes claims
        mu = math.exp(x - nudge)
        if gaussian_pld_epsilon(1 / mu, q, rounds, delta) <= epsilon:
            return mu, slope
    raise PrivacyUnattainable(f"no mu found for epsilon = {epsilon}: the accountant is not monotone here")


def _like_a_gaussian(epsilon: float, delta: float, rounds: int, q: float) -> float:
    """A rough log mu: many rounds together are like one Gaussian with mu² = rounds·q²·(exp(mu²) - 1).

    Dong, Roth and Su 2022, Corollary 5.4.
    """
    largest = boundary(
        lambda log_mu: _Gaussian(math.exp(log_mu)).delta(epsilon) <= delta,
        math.log(1e4), math.log(1e-7), absolute=1e-3,
    )  # fmt: skip
    total = math.exp(2 * largest)
    return 0.5 * math.log(math.log1p(total / (rounds * q**2)) if q < 1 else total / rounds)


def _root(excess: Callable[[float], float], x: float, slope: float, within: float) -> tuple[float, float]:
    """A root of a function that grows smoothly: (x, slope) with -within <= excess(x) <= 0.

    By secants, kept in a bracket.
    """
    low, high = -math.inf, math.inf
    before: tuple[float, float] | None = None
    for _ in range(60):
        value = excess(x)
        if -within <= value <= 0:
            return x, slope
        low, high = (x, high) if value <= 0 else (low, x)
        if high < math.log(1e-6):
            raise PrivacyUnattainable(
                "no noise reaches this target; raise epsilon or delta, sample fewer participants or run "
                "fewer rounds"
            )
        if before is not None and value < 50 and before[1] < 50 and x != before[0]:
            slope = min(10.0, max(0.05, (value - before[1]) / (x - before[0])))
        before = x, value
        x -= min(1.0, max(-1.0, (value + within / 2) / slope))
        if not low < x < high:
            x = (low + high) / 2
        if high - low < 1e-9:  # steps of the accountant itself are wider than `within`
            return low, slope
    return low, slope
