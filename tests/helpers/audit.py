"""A run whose claim rests on sampling, for audits with canaries."""

from functools import lru_cache

from skelmix.accounting.prediction import PredictedError
from skelmix.mechanisms import SkellamMixture
from skelmix.planning import Cohort, Plan, PrivacyTarget, privacy_report

CANARIES = 512
DELTA = 1e-6


@lru_cache
def canary_plan(multiplier: float = 1.0, expected: int = 20, rounds: int = 20) -> Plan:
    """A population of 512 with this noise multiplier. The claim is computed, the rest left out."""
    whole = expected == CANARIES
    cohort = Cohort(expected, CANARIES, sampling="none" if whole else "poisson")
    mechanism = SkellamMixture(
        dimension=CANARIES,
        bits=16,
        scale=16.0,
        clip_norm=1.0,
        total_noise=(16 * multiplier) ** 2 / 2,
        shares=expected,
    )
    report = privacy_report(mechanism, bound="rdp", cohort=cohort, rounds=rounds, delta=DELTA)
    return Plan(
        target=PrivacyTarget(report.epsilon, DELTA),
        cohort=cohort,
        rounds=rounds,
        mechanism=mechanism,
        report=report,
        predicted=PredictedError(noise=0.0, rounding=0.0, wrap=0.0),
        alignment=0.0,
        slack=0.0,
        central_gaussian_mse=0.0,
        central_gaussian_mse_rdp=0.0,
    )
