"""The (ε, δ) that a mechanism gives over all rounds, with every assumption behind it."""

from __future__ import annotations

import math
from collections.abc import Callable

from skelmix.accounting.gaussian import GaussianCertificate
from skelmix.accounting.schedule import Schedule
from skelmix.errors import InvalidInput, SkelmixError
from skelmix.mechanisms import Mechanism
from skelmix.mechanisms.bounds import BOUNDS, Bound, ProvedEpsilon
from skelmix.mechanisms.bounds.gaussian import LEAST_DELTA, good_slack
from skelmix.planning.cohort import Cohort
from skelmix.planning.report import PrivacyReport
from skelmix.planning.silos import Silos
from skelmix.validation import probability, whole

_MOST_LEVELS = 1e5  # noise levels of a certificate that is only stated in the report: about a second


def privacy_report(
    mechanism: Mechanism,
    *,
    bound: str,
    cohort: Cohort | Silos,
    rounds: int,
    delta: float,
    slack: float | None = None,
) -> PrivacyReport:
    """The (ε, δ) of `rounds` rounds.

    bound: one of `mechanism.bounds`, or "tight" for the best of them.

    slack: the total variation that a Gaussian certificate may leave out per round; it is paid for in ε,
    and a good one is chosen when it is not given. ε is infinite when the bound says nothing about this noise.

    Example: `privacy_report(mechanism, bound="tight", cohort=cohort, rounds=1, delta=1e-6).epsilon`.
    """
    whole(1, rounds=rounds)
    probability(delta=delta)
    if cohort.least_survivors is not None and not mechanism.noise_in_pieces:
        raise InvalidInput(
            f"least_survivors = {cohort.least_survivors}: the noise of {mechanism.name} cannot be drawn in "
            "pieces, so it depends on who survives; leave least_survivors out, or take 'smm' or 'skellam'"
        )
    left = cohort.delta_left_for_noise(delta, rounds)
    schedule = cohort.schedule(rounds)
    proofs = [
        candidate.epsilon(mechanism, schedule, left, slack)
        for candidate in _candidates(mechanism, bound, cohort, rounds, left)
    ]
    best = min(proofs, key=lambda proof: proof.epsilon)
    certificate, missing = best.certificate, ""
    if certificate is None:
        certificate, missing = _gaussian_statement(
            mechanism, proofs, lambda: slack or good_slack(mechanism, schedule, left)
        )
    epsilon_aggregator, every_round = best.bound.against_aggregator(best, mechanism, schedule, left)
    return PrivacyReport(
        epsilon=best.epsilon,
        delta=delta,
        bound=best.bound.name,
        epsilon_aggregator=epsilon_aggregator,
        epsilon_every_round=every_round,
        rounds=rounds,
        sampling=cohort.sampling,
        sampling_probability=cohort.sampling_probability,
        min_survivors=cohort.min_survivors(cohort.uploads),
        colluding=cohort.colluding,
        contribute=cohort.contribute,
        max_participations=cohort.max_participations,
        unit=cohort.unit,
        neighbours=cohort.neighbours,
        order=best.order,
        mu=certificate.mu if certificate else None,
        slack=certificate.slack if certificate else 0.0,
        mu_by=certificate.kind if certificate else None,
        mu_missing=missing,
        modelled=_modelled(mechanism, best.bound, cohort, schedule),
        least_survivors=cohort.least_survivors,
        dropout_rate=cohort.roster.assumed_dropout_rate,
        opening_delta=delta - left,
        central=not mechanism.distributed,
    )


def _candidates(
    mechanism: Mechanism, name: str, cohort: Cohort | Silos, rounds: int, delta: float
) -> list[Bound]:
    """The bounds to evaluate: the named one, or for "tight" all that hold for this mechanism and cohort."""
    schedule, allowed = cohort.schedule(rounds), mechanism.bounds
    if isinstance(cohort, Silos):
        allowed = tuple(each for each in allowed if each in mechanism.silo_bounds)
        if not allowed:
            raise InvalidInput(
                f"{mechanism.name} with this clip has no bound for records in silos; take 'smm' or "
                "'dgm' with bound='tight'"
            )
    if name == "tight":
        return [BOUNDS[each] for each in allowed if BOUNDS[each].serves(schedule, delta)]
    if name not in allowed:
        raise InvalidInput(
            f"bound = {name!r}: {mechanism.name} with this clip has {', '.join(allowed)}; "
            "take one of them or 'tight'"
        )
    bound = BOUNDS[name]
    if cohort.sampling == "poisson" and not bound.serves(schedule, delta):
        raise InvalidInput(
            f"delta = {delta:g}: privacy-loss distributions of sampled rounds are trusted down to "
            f"{LEAST_DELTA:g} only; raise delta, or account with bound='rdp'"
        )
    return [bound]


def _modelled(mechanism: Mechanism, bound: Bound, cohort: Cohort | Silos, schedule: Schedule) -> str:
    """The assumption that amplification by sampling makes here, in words; empty where nothing is assumed.

    The assumption: a sum has the same noise with the participant in the cohort and without.
    """
    if not isinstance(cohort, Cohort):  # all silos are in every round, with the same noise in both worlds
        return ""
    sampled, exact = cohort.sampling == "poisson", cohort.least_survivors is not None
    if sampled and exact:
        return ""  # every opened sum has the same noise, and what opening reveals is paid for
    if cohort.expected == cohort.population or not (sampled or bound.amplifies_fixed_cohorts):
        return ""
    why = []
    if sampled and mechanism.distributed:
        if mechanism.noise_varies_with_cohort:
            why.append(f"the noise of {mechanism.name} depends on the size of the cohort")
        if cohort.colluding:
            why.append("with colluders planned for, the noise depends on the size of the cohort")
    if cohort.sampling == "fixed" and schedule.at_will.capped:
        why.append("with cohorts of a fixed size, a cap changes who is left to be drawn")
    if cohort.dropout_tolerance and not exact:
        why.append("when participants drop out, the noise, and whether a sum opens, depend on how many")
    if not why:
        return ""
    text = "; ".join(why) + ": amplified ε takes both as the same with and without the participant"
    if sampled and not mechanism.proved_in_smaller_cohorts(bound.name):
        text += "; for smaller-than-expected cohorts no ε is proved, not even the aggregator's"
    return text


def _gaussian_statement(
    mechanism: Mechanism, proofs: list[ProvedEpsilon], slack: Callable[[], float]
) -> tuple[GaussianCertificate | None, str]:
    """The μ-GDP of one round, where another bound gave ε; (None, reason) without a certificate.

    Of the certificates already computed, the one with the least μ; if there is none, the cheapest to compute.
    """
    known = [proof.certificate for proof in proofs if proof.certificate]
    if known:
        return min(known, key=lambda certificate: certificate.mu), ""
    name = next((name for name in mechanism.bounds if BOUNDS[name].quick_certificate), None)
    if name is None:
        clip = " with this clip" if set(mechanism.bounds) < set(mechanism.known_bounds) else ""
        return None, f"{mechanism.name}{clip} has no Gaussian certificate"
    reach = 10 * math.sqrt(mechanism.noise_variance(mechanism.shares)) + mechanism.l2_sensitivity
    if mechanism.distributed and not reach < _MOST_LEVELS:
        return None, "not computed for this many noise levels; plan with bound='gdp' for it"
    try:
        return mechanism.certificate(name, slack()), ""
    except SkelmixError as error:
        return None, " ".join(str(error).split())
