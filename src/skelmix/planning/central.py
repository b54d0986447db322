"""The central Gaussian mechanism: the line that every distributed plan is measured against."""

from __future__ import annotations

import math
from functools import lru_cache

from skelmix.accounting import calibration, gaussian
from skelmix.accounting.rdp import closed_form
from skelmix.accounting.schedule import Schedule
from skelmix.errors import PrivacyUnattainable
from skelmix.mechanisms.bounds.gaussian import LARGEST_CERTIFIED
from skelmix.mechanisms.bounds.renyi import rdp_epsilon
from skelmix.planning.target import PrivacyTarget


@lru_cache(maxsize=256)
def central_multiplier(target: PrivacyTarget, schedule: Schedule, renyi: bool) -> float:
    """Noise multiplier of the central Gaussian for the target.

    By Rényi accounting, or by privacy-loss distributions.
    """
    epsilon, delta = target.epsilon, target.delta
    if not renyi and schedule.sampling != "fixed" and epsilon <= LARGEST_CERTIFIED:
        return 1 / gaussian.largest_mu(epsilon, delta, schedule.rounds, schedule.rate)
    return calibration.least_noise(
        lambda multiplier: rdp_epsilon(closed_form.gaussian(multiplier**2, 1.0), schedule, delta)[0],
        epsilon,
        1e-3,
        1e9,
        guess=1.0,
    )


def renyi_multiplier(target: PrivacyTarget, schedule: Schedule) -> float:
    """As `central_multiplier` by Rényi accounting, for comparison only.

    Infinity where that reaches no ε so small at this δ, however large the noise is.
    """
    try:
        return central_multiplier(target, schedule, True)
    except PrivacyUnattainable:
        return math.inf
