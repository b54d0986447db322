"""From a mechanism to the (ε, δ) that it gives, and back to the least noise that gives one.

Every bound ends in the same `PrivacyReport`. Rényi bounds ("paper", "rdp") go round by round through
subsampling and conversion; Gaussian certificates ("gdp", "flat") through privacy-loss distributions; cpSGD
through composition of its (ε, δ).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from skelmix.accounting import calibration, closed_form, conversion, gaussian_dp, subsampling
from skelmix.accounting.curve import DEFAULT_ORDERS, RdpCurve
from skelmix.accounting.report import PrivacyReport
from skelmix.errors import InvalidInput
from skelmix.mechanisms import Mechanism
from skelmix.validation import cohort_within, fraction, one_of, positive, probability, whole

SAMPLINGS = ("poisson", "fixed", "none")

#: share of δ that pays for the total variation between the mechanism and its Gaussian certificate
SLACK_SHARE = 0.02


@dataclass(frozen=True)
class PrivacyTarget:
    """The (ε, δ) that the whole job may spend, counted per participant."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon)
        probability(delta=self.delta)


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round, how they are drawn, and how many must survive.

    expected: participants expected in a round; population: participants in all. sampling: "poisson" (each
    joins independently with probability expected/population), "fixed" (exactly `expected`, without
    replacement) or "none" (everyone, always). dropout_tolerance: the fraction of a cohort that may drop
    out. colluding: participants of a round whose noise the adversary may know.
    """

    expected: int
    population: int
    dropout_tolerance: float = 0.0
    colluding: int = 0
    sampling: str = "poisson"

    def __post_init__(self) -> None:
        cohort_within(self.expected, self.population)
        fraction(dropout_tolerance=self.dropout_tolerance)
        whole(0, colluding=self.colluding)
        one_of(SAMPLINGS, sampling=self.sampling)
        if self.sampling == "none" and self.expected != self.population:
            raise InvalidInput(
                f"sampling = 'none' with expected = {self.expected} of {self.population}: everyone takes "
                "part, "
                "so make them equal or choose poisson or fixed sampling"
            )
        if self.shares(self.expected) < 1:
            raise InvalidInput(
                f"colluding = {self.colluding}: must be below the {self.min_survivors(self.expected)} "
                "survivors of an expected "
                "cohort, or nobody adds noise; lower it or the dropout tolerance"
            )

    @property
    def sampling_probability(self) -> float:
        """Probability that a given participant is in a given round."""
        return self.expected / self.population

    def min_survivors(self, sampled: int) -> int:
        """Fewest participants, of `sampled` that started, with whom a sum may be opened."""
        return max(1, math.ceil(sampled * (1 - self.dropout_tolerance) - 1e-9))

    def shares(self, sampled: int) -> int:
        """Noise shares that are certain to be in an opened sum and unknown to the adversary; 0 when none
        is."""
        return max(0, self.min_survivors(sampled) - self.colluding)


def claim(mechanism: Mechanism, *, bound: str, cohort: Cohort, rounds: int, delta: float) -> PrivacyReport:
    """The (ε, δ) of `rounds` rounds. bound: one of `mechanism.bounds`, or "tight" for the best of them.

    ε is infinite when the bound says nothing about this noise.
    """
    whole(1, rounds=rounds)
    probability(delta=delta)
    allowed = mechanism.bounds
    if bound != "tight" and bound not in allowed:
        raise InvalidInput(
            f"bound = {bound!r}: {mechanism.name} with this clip has {', '.join(allowed)}; take one of "
            "them or 'tight'"
        )
    names = allowed if bound == "tight" else (bound,)
    return min(
        (_claim(mechanism, name, cohort, rounds, delta) for name in names), key=lambda report: report.epsilon
    )


def _claim(mechanism: Mechanism, bound: str, cohort: Cohort, rounds: int, delta: float) -> PrivacyReport:
    order, mu, slack = None, None, 0.0
    q = cohort.sampling_probability
    if bound == "composition":
        amplified = q if cohort.sampling == "poisson" else 1.0
        epsilon = closed_form.composed_epsilon(mechanism.approximate_dp, amplified, rounds, delta)
        aggregator = closed_form.composed_epsilon(mechanism.approximate_dp, 1.0, rounds, delta)
    elif bound in ("paper", "rdp"):
        curve = mechanism.rdp(DEFAULT_ORDERS)
        epsilon, order = rdp_epsilon(curve, cohort, rounds, delta)
        aggregator, _ = conversion.epsilon(curve * rounds, delta) if curve.orders else (math.inf, 0)
    else:
        certificate, epsilon = _certified(mechanism, bound, cohort, rounds, delta)
        mu, slack = certificate.mu, certificate.slack
        aggregator = gaussian_dp.pld_epsilon(certificate, delta=delta, rounds=rounds)
    return PrivacyReport(
        epsilon=epsilon,
        delta=delta,
        bound=bound,
        epsilon_aggregator=max(epsilon, aggregator),
        rounds=rounds,
        sampling=cohort.sampling,
        sampling_probability=q,
        min_survivors=cohort.min_survivors(cohort.expected),
        colluding=cohort.colluding,
        order=order or None,
        mu=mu,
        slack=slack,
    )


def rdp_epsilon(curve: RdpCurve, cohort: Cohort, rounds: int, delta: float) -> tuple[float, int]:
    """(ε, order) of `rounds` sampled rounds, each with this Rényi curve before sampling; (inf, 0) when no
    order is left."""
    if cohort.expected < cohort.population:
        if cohort.sampling == "poisson":
            curve = subsampling.poisson(curve, cohort.sampling_probability)
        else:
            curve = subsampling.fixed_size(curve, cohort.expected, cohort.population)
    return conversion.epsilon(curve * rounds, delta) if curve.orders else (math.inf, 0)


def _certified(
    mechanism: Mechanism, bound: str, cohort: Cohort, rounds: int, delta: float
) -> tuple[gaussian_dp.GaussianCertificate, float]:
    """The certificate of one round and the ε of all of them; the slack is chosen for an ε near the answer."""
    guess, _ = rdp_epsilon(mechanism.rdp(DEFAULT_ORDERS), cohort, rounds, delta)
    slack = slack_budget(PrivacyTarget(min(max(guess, 1e-3), 50.0), delta), cohort, rounds)
    certificate = mechanism.certificate(bound, slack)
    epsilon = gaussian_dp.pld_epsilon(
        certificate, delta=delta, rounds=rounds, sampling_probability=cohort.sampling_probability
    )
    return certificate, epsilon


def slack_budget(target: PrivacyTarget, cohort: Cohort, rounds: int) -> float:
    """Total variation that one round may differ from its Gaussian certificate: `SLACK_SHARE` of δ over all
    rounds."""
    return SLACK_SHARE * target.delta / (math.exp(target.epsilon) * rounds * cohort.sampling_probability)


def least_noise(
    build: Callable[[float], Mechanism],
    *,
    bound: str,
    cohort: Cohort,
    rounds: int,
    target: PrivacyTarget,
    start: float,
) -> float:
    """Least total noise with which `build(total_noise)` meets the target under `bound`, on the private side.

    start: where to look first. Raises `PrivacyUnattainable` when no noise does it.
    """
    if bound in ("gdp", "flat", "pld"):
        slack = slack_budget(target, cohort, rounds)
        share = 0.0 if bound == "pld" else SLACK_SHARE
        goal = gaussian_dp.largest_mu(
            target.epsilon, target.delta * (1 - share), rounds, cohort.sampling_probability
        )

        def cost(noise: float) -> float:
            return build(noise).certificate(bound, slack).mu

    else:
        goal = target.epsilon

        def cost(noise: float) -> float:
            return _claim(build(noise), bound, cohort, rounds, target.delta).epsilon

    return calibration.least_noise(cost, goal, start * 1e-4, start * 1e8, guess=start)
