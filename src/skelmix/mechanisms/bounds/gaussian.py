"""Gaussian certificates: a Gaussian pair that dominates one round, by privacy-loss distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from skelmix.accounting import calibration, gaussian
from skelmix.accounting.gaussian.participation import aggregator_epsilon
from skelmix.errors import PrivacyUnattainable
from skelmix.mechanisms.bounds.bound import SLACK_SHARE, Bound, ProvedEpsilon, slack_budget
from skelmix.mechanisms.bounds.renyi import gaussian_curve, known_participation_epsilon, rdp_epsilon

if TYPE_CHECKING:
    from skelmix.accounting.participations import Participations
    from skelmix.accounting.schedule import Schedule
    from skelmix.mechanisms.base import Mechanism

#: ε above which privacy-loss distributions are not used: what a certificate leaves out costs e^ε
LARGEST_CERTIFIED = 50.0

#: δ down to which privacy-loss distributions of sampled rounds are used: below, rounding takes too much of it
LEAST_DELTA = 1e-9

_LITTLE_NOISE = 100.0  # Λ or variance: with less, a flat certificate may be out of reach altogether


class GaussianBound(Bound):
    """What the Gaussian-DP, flat and central certificates share."""

    states_gdp = True
    quick_certificate = True
    assumed = (
        "the divergences of one sampled round, evaluated in double precision, are right to 2^-50, which is "
        "taken off δ once per round; the rounding of the Fourier transforms is bounded by proof"
    )

    #: the search gives up beyond this many times the noise of an equal Gaussian
    most_noise = 1e8

    def serves(self, schedule: Schedule, delta: float) -> bool:
        return not schedule.amplified or (schedule.independent and delta >= LEAST_DELTA)

    def epsilon(
        self, mechanism: Mechanism, schedule: Schedule, delta: float, slack: float | None = None
    ) -> ProvedEpsilon:
        if slack is None:
            slack = good_slack(mechanism, schedule, delta)
        try:
            certificate = mechanism.certificate(self.name, slack)
            epsilon = gaussian.pld_epsilon(
                certificate,
                delta=delta,
                rounds=schedule.rounds,
                sampling_probability=schedule.rate,
                sampling="poisson" if schedule.independent else "fixed",
            )
        except PrivacyUnattainable:
            return ProvedEpsilon(math.inf, self)
        return ProvedEpsilon(epsilon, self, certificate=certificate)

    def epsilon_aggregator(
        self,
        proved: ProvedEpsilon,
        mechanism: Mechanism,
        participations: Participations,
        contribute: float,
        delta: float,
    ) -> float:
        renyi = known_participation_epsilon(mechanism, participations, contribute, delta)
        if proved.certificate is None:
            return renyi
        by_certificate = aggregator_epsilon(proved.certificate, participations, delta=delta, coin=contribute)
        return min(renyi, by_certificate)

    def least_noise(
        self,
        build: Callable[[float], Mechanism],
        schedule: Schedule,
        epsilon: float,
        delta: float,
        *,
        multiplier: float,
        below: float = math.inf,
    ) -> float | None:
        if epsilon > LARGEST_CERTIFIED:
            raise PrivacyUnattainable(
                f"epsilon = {epsilon:g}: Gaussian certificates are for at most {LARGEST_CERTIFIED:g}; "
                "use bound='rdp'"
            )
        any_noise = build(1.0)
        share = SLACK_SHARE if any_noise.certificate_leaves_slack else 0.0
        rounds, rate = schedule.rounds, schedule.rate
        goal = gaussian.largest_mu(epsilon, delta * (1 - share), rounds, rate, near=delta)
        slack = slack_budget(epsilon, delta, schedule)
        refusals: list[PrivacyUnattainable] = []

        def mu(noise: float) -> float:
            try:
                return build(noise).certificate(self.name, slack).mu
            except PrivacyUnattainable as refusal:  # too little noise for a certificate
                refusals.append(refusal)
                return math.inf

        if below < math.inf and mu(below * (1 - 1e-4)) > goal:
            return None
        start = any_noise.starting_noise(1 / goal)
        quick = _by_scaling(mu, goal, start)
        if quick is None:
            return self._searched(mu, goal, start, refusals)
        used = build(quick).certificate(self.name, slack).slack / slack
        if share == 0 or used > 0.9:
            return quick
        # part of δ's share was not needed: return it to the noise, and check again
        full = gaussian.largest_mu(epsilon, delta, rounds, rate)
        less = _by_scaling(mu, goal + 0.98 * (1 - used) * (full - goal), quick)
        if less is not None and self.epsilon(build(less), schedule, delta, slack).epsilon <= epsilon:
            return less
        return quick

    def _searched(
        self, mu: Callable[[float], float], goal: float, start: float, refusals: list[PrivacyUnattainable]
    ) -> float:
        return self._searched_up_to(max(start, 1.0) * self.most_noise, mu, goal, start, refusals)

    def _searched_up_to(
        self,
        most: float,
        mu: Callable[[float], float],
        goal: float,
        start: float,
        refusals: list[PrivacyUnattainable],
    ) -> float:
        try:
            return calibration.least_noise(mu, goal, start * 1e-4, most, guess=start, step=1.01)
        except PrivacyUnattainable as error:
            raise refusals[0] if refusals else error from None


class GdpBound(GaussianBound):
    """Gaussian differential privacy of integer noise (docs/explanation/gaussian-certificates.md)."""

    name = "gdp"
    statement = "certified Gaussian-DP pair, privacy-loss distributions"


class FlatBound(GaussianBound):
    """The central Gaussian's own accounting for small coordinates (the same page)."""

    name = "flat"
    statement = "certified flat Gaussian pair, privacy-loss distributions"
    quick_certificate = False

    def _searched(
        self, mu: Callable[[float], float], goal: float, start: float, refusals: list[PrivacyUnattainable]
    ) -> float:
        most = start * 1.3  # a flat certificate that needs much more noise than this gains nothing
        if start < _LITTLE_NOISE and mu(most) > goal:  # refuse at once rather than at the end of the search
            raise (
                refusals[0]
                if refusals
                else PrivacyUnattainable(
                    f"no noise up to {most:.6g} gives a flat certificate for this target"
                )
            )
        return self._searched_up_to(most, mu, goal, start, refusals)


class CentralBound(GaussianBound):
    """The central Gaussian mechanism itself."""

    name = "pld"
    statement = "the Gaussian itself, privacy-loss distributions"


def good_slack(mechanism: Mechanism, schedule: Schedule, delta: float) -> float:
    """A good slack for a certificate: the budget at the ε of a Gaussian of the same variance."""
    near, _ = rdp_epsilon(gaussian_curve(mechanism), schedule, delta)
    return slack_budget(min(max(near, 1e-3), 50.0), delta, schedule)


def _by_scaling(cost: Callable[[float], float], goal: float, start: float) -> float | None:
    """The least noise for a μ that is close to a power of the noise, in two or three evaluations.

    At first μ is taken as proportional to 1/√noise. The search ends when the computed μ is at most 0.02 %
    below the goal, so that 0.1 % less noise would miss it; None when it does not get there.
    """
    noise, slope = start, -0.5
    before: tuple[float, float] | None = None
    for _ in range(6):
        reached = cost(noise)
        if not reached < math.inf:
            return None
        if goal * (1 - 2e-4) < reached <= goal:
            return noise
        here = math.log(noise), math.log(reached)
        if before is not None and here[0] != before[0]:
            slope = min(-0.25, max(-8.0, (here[1] - before[1]) / (here[0] - before[0])))
        before = here
        step = (math.log(goal) - 1e-4 - here[1]) / slope
        if abs(step) > math.log(4):  # far from that: leave it to a careful search
            return None
        noise *= math.exp(step)
    return None
