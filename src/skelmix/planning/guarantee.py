"""From a mechanism to the (ε, δ) that it gives, and back to the least noise that gives one.

Every bound ends in the same `PrivacyReport`. Rényi bounds ("paper", "rdp") go round by round through
subsampling and conversion; Gaussian certificates ("gdp", "flat") through privacy-loss distributions; cpSGD
through composition of its (ε, δ).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from skelmix.accounting import calibration
from skelmix.accounting import gaussian as gaussian_dp
from skelmix.accounting.rdp import closed_form, conversion, subsampling
from skelmix.accounting.rdp.curve import DEFAULT_ORDERS, RdpCurve
from skelmix.errors import InvalidInput, PrivacyUnattainable, SkelmixError
from skelmix.mechanisms import CentralGaussian, GaussianMixture, Mechanism, Skellam, SkellamMixture
from skelmix.mechanisms.mixture import chi_square
from skelmix.planning.cohort import Cohort as Cohort
from skelmix.planning.cohort import PrivacyTarget as PrivacyTarget
from skelmix.planning.report import PrivacyReport
from skelmix.validation import probability, whole

#: share of δ that pays for the total variation between the mechanism and its Gaussian certificate
SLACK_SHARE = 0.02

#: least share of δ that pays for rounds that tell by opening whom they sampled
TOLD_SHARE = 1e-9

#: ε above which privacy-loss distributions are not used: what a certificate leaves out costs e^ε
LARGEST_CERTIFIED = 50.0

_MOST_LEVELS = 1e5  # of a certificate that is made for its statement only: about a second

_LITTLE_NOISE = 100.0  # Λ or variance: with less, a flat certificate may be out of reach altogether


def claim(
    mechanism: Mechanism, *, bound: str, cohort: Cohort, rounds: int, delta: float, slack: float | None = None
) -> PrivacyReport:
    """The (ε, δ) of `rounds` rounds. bound: one of `mechanism.bounds`, or "tight" for the best of them.

    slack: the total variation that a Gaussian certificate may leave out in a round; it is paid for in ε,
    and a good one is chosen when it is not given. ε is infinite when the bound says nothing about this noise.
    """
    whole(1, rounds=rounds)
    probability(delta=delta)
    allowed = mechanism.bounds
    if bound != "tight" and bound not in allowed:
        raise InvalidInput(
            f"bound = {bound!r}: {mechanism.name} with this clip has {', '.join(allowed)}; "
            "take one of them or 'tight'"
        )
    left = spendable(delta, cohort, rounds)
    usable = usable_bounds(allowed, cohort, left)
    if bound in ("gdp", "flat", "pld") and bound not in usable and cohort.sampling == "poisson":
        raise InvalidInput(
            f"delta = {left:g}: privacy-loss distributions of sampled rounds are trusted down to 1e-9 only; "
            "raise delta, or account with bound='rdp'"
        )
    names = usable if bound == "tight" else (bound,)
    claims = [_epsilon(mechanism, name, cohort, rounds, left, slack) for name in names]
    best = min(claims, key=lambda one: one.epsilon)
    stated, missing = best.certificate, ""
    if stated is None:
        stated, missing = _gaussian_statement(
            mechanism, claims, lambda: slack or _own_slack(mechanism, cohort, rounds, left)
        )
    return PrivacyReport(
        epsilon=best.epsilon,
        delta=delta,
        bound=best.bound,
        epsilon_aggregator=max(best.epsilon, _unamplified(mechanism, best, rounds, left)),
        rounds=rounds,
        sampling=cohort.sampling,
        sampling_probability=cohort.sampling_probability,
        min_survivors=cohort.min_survivors(cohort.expected),
        colluding=cohort.colluding,
        order=best.order,
        mu=stated.mu if stated else None,
        slack=stated.slack if stated else 0.0,
        mu_by=stated.kind if stated else None,
        mu_missing=missing,
        modelled=_modelled(mechanism, best.bound, cohort),
        central=isinstance(mechanism, CentralGaussian),
    )


def _modelled(mechanism: Mechanism, bound: str, cohort: Cohort) -> str:
    """What amplification by sampling takes for granted here: that the noise of a sum is the same with the
    participant in the cohort and without. Empty where that is so, or nothing is claimed by it."""
    unsampled = cohort.expected == cohort.population
    if unsampled or (bound == "composition" and cohort.sampling != "poisson"):
        return ""
    why = []
    if cohort.sampling == "poisson" and not isinstance(mechanism, CentralGaussian):
        if not isinstance(mechanism, Skellam | SkellamMixture):
            why.append(f"the noise of {mechanism.name} depends on the size of the cohort")
        if cohort.colluding:
            why.append("with colluders planned for, the noise depends on the size of the cohort")
    if cohort.dropout_tolerance:
        why.append("when participants drop out, the noise, and whether a sum opens, depend on how many")
    if not why:
        return ""
    text = "; ".join(why) + ": amplified ε takes both as the same with and without the participant"
    if isinstance(mechanism, GaussianMixture) and cohort.sampling == "poisson" and bound != "paper":
        text += "; of cohorts smaller than expected no ε is proved, that of the aggregator included"
    return text


def told(delta: float, cohort: Cohort, rounds: int) -> float:
    """The part of δ that pays for rounds that tell by opening whom they sampled (`Cohort.tell_tale`), with a
    little to spare: not everybody may be there to be sampled from."""
    need = cohort.tell_tale(rounds)
    return max(need, TOLD_SHARE * delta) if need else 0.0


def spendable(delta: float, cohort: Cohort, rounds: int) -> float:
    """What is left of δ for the noise: in all other rounds amplification holds. Raises `PrivacyUnattainable`
    when nothing is."""
    paid = told(delta, cohort, rounds)
    if paid >= delta:
        raise PrivacyUnattainable(
            f"cohorts of {cohort.expected} of {cohort.population} on average, {cohort.colluding} colluding: "
            f"with probability {paid:.2g}, above delta = {delta:g}, a round opens only because one "
            "participant was sampled, which tells it; expect more participants, or take sampling 'fixed' or "
            "'none'"
        )
    return delta - paid


def usable_bounds(names: tuple[str, ...], cohort: Cohort, delta: float) -> tuple[str, ...]:
    """Those of the bounds that have a theorem for how this cohort is drawn, and numbers good enough for δ.

    The Fourier transforms behind privacy-loss distributions of sampled rounds are trusted down to δ = 1e-9.
    """
    if cohort.expected == cohort.population or (cohort.sampling == "poisson" and delta >= 1e-9):
        return names
    return tuple(name for name in names if name not in ("gdp", "flat", "pld"))


@dataclass(frozen=True)
class _Epsilon:
    """ε by one bound, with what it was made of."""

    epsilon: float
    bound: str
    order: int | None = None
    certificate: gaussian_dp.GaussianCertificate | None = None


def _epsilon(
    mechanism: Mechanism, bound: str, cohort: Cohort, rounds: int, delta: float, slack: float | None
) -> _Epsilon:
    q = cohort.sampling_probability
    if bound == "composition":
        amplified = q if cohort.sampling == "poisson" else 1.0
        return _Epsilon(
            closed_form.composed_epsilon(mechanism.approximate_dp, amplified, rounds, delta), bound
        )
    if bound in ("paper", "rdp"):
        epsilon, order = _best_order(
            mechanism,
            lambda curve: rdp_epsilon(curve, cohort, rounds, delta),
            needs=2 if _sampling(cohort) == "fixed" else 1,
        )
        return _Epsilon(epsilon, bound, order=order or None)
    if slack is None:
        slack = _own_slack(mechanism, cohort, rounds, delta)
    try:
        certificate = mechanism.certificate(bound, slack)
        epsilon = gaussian_dp.pld_epsilon(
            certificate, delta=delta, rounds=rounds, sampling_probability=q, sampling=_sampling(cohort)
        )
    except PrivacyUnattainable:
        return _Epsilon(math.inf, bound)
    return _Epsilon(epsilon, bound, certificate=certificate)


def _own_slack(mechanism: Mechanism, cohort: Cohort, rounds: int, delta: float) -> float:
    """A good slack for a certificate: that for the ε of a Gaussian of the same variance."""
    near, _ = rdp_epsilon(_like_a_gaussian(mechanism), cohort, rounds, delta)
    return slack_budget(PrivacyTarget(min(max(near, 1e-3), 50.0), delta), cohort, rounds)


def _like_a_gaussian(mechanism: Mechanism) -> RdpCurve:
    """Of a Gaussian of the same variance: a lower bound on the curve of integer noise."""
    return closed_form.gaussian(mechanism.noise_variance(mechanism.shares), mechanism.l2_sensitivity)


def _gaussian_statement(
    mechanism: Mechanism, claims: list[_Epsilon], slack: Callable[[], float]
) -> tuple[gaussian_dp.GaussianCertificate | None, str]:
    """What holds of one round as μ-GDP where another bound gave ε: the certificate with the least μ of those
    at hand, else the cheap one; without any, (None, why)."""
    known = [one.certificate for one in claims if one.certificate]
    if known:
        return min(known, key=lambda one: one.mu), ""
    name = next((one for one in mechanism.bounds if one in ("gdp", "pld")), None)
    if name is None:
        clip = " with this clip" if hasattr(mechanism, "clip") else ""
        return None, f"{mechanism.name}{clip} has no Gaussian certificate"
    reach = 10 * math.sqrt(mechanism.noise_variance(mechanism.shares)) + mechanism.l2_sensitivity
    if name == "gdp" and not reach < _MOST_LEVELS:
        return None, "not computed for this many noise levels; bound='gdp' does it"
    try:
        return mechanism.certificate(name, slack()), ""
    except SkelmixError as error:
        return None, " ".join(str(error).split())


def _sampling(cohort: Cohort) -> str:
    """How the accountant has to see it: a cohort of everyone is not sampled at all."""
    return "poisson" if cohort.expected == cohort.population else cohort.sampling


def _best_order(
    mechanism: Mechanism, epsilon_of: Callable[[RdpCurve], tuple[float, int]], *, needs: int = 1
) -> tuple[float, int]:
    """(ε, order) by the mechanism's Rényi curve. Any set of orders gives a bound, and more cost time: those
    that a Gaussian of the same variance has use for and a few more, unless the best one may lie beyond. An
    order of ε needs the curve up to `needs` times it."""
    likely = epsilon_of(_like_a_gaussian(mechanism))[1]
    orders = DEFAULT_ORDERS[: needs * math.ceil(1.1 * likely)]
    epsilon, order = epsilon_of(_curve(mechanism, orders))
    inside = orders and 0 < order < orders[-1] // needs
    return (epsilon, order) if inside else epsilon_of(_curve(mechanism, DEFAULT_ORDERS))


def _curve(mechanism: Mechanism, orders: tuple[int, ...]) -> RdpCurve:
    """The Rényi curve of one round, empty where the bound does not reach."""
    try:
        return mechanism.rdp(orders)
    except PrivacyUnattainable:
        return RdpCurve((), ())


def _unamplified(mechanism: Mechanism, best: _Epsilon, rounds: int, delta: float) -> float:
    """ε of all rounds for one who knows that the participant took part in each of them."""
    if isinstance(mechanism, CentralGaussian):
        return math.inf  # it sees the vectors themselves
    if best.bound == "composition":
        return closed_form.composed_epsilon(mechanism.approximate_dp, 1.0, rounds, delta)
    renyi, _ = _best_order(mechanism, lambda curve: _converted(curve, rounds, delta))
    if best.certificate is None:
        return renyi
    return min(renyi, gaussian_dp.pld_epsilon(best.certificate, delta=delta, rounds=rounds))


def rdp_epsilon(curve: RdpCurve, cohort: Cohort, rounds: int, delta: float) -> tuple[float, int]:
    """(ε, order) of `rounds` sampled rounds, each with this Rényi curve before sampling; (inf, 0) when no
    order is left."""
    if cohort.expected < cohort.population:
        if cohort.sampling == "poisson":
            curve = subsampling.poisson(curve, cohort.sampling_probability)
        else:
            curve = subsampling.fixed_size(curve, cohort.expected, cohort.population)
    return _converted(curve, rounds, delta)


def _converted(curve: RdpCurve, rounds: int, delta: float) -> tuple[float, int]:
    return conversion.epsilon(curve * rounds, delta) if curve.orders else (math.inf, 0)


def slack_budget(target: PrivacyTarget, cohort: Cohort, rounds: int) -> float:
    """Total variation that one round may differ from its Gaussian certificate: `SLACK_SHARE` of δ over all
    rounds."""
    return (
        SLACK_SHARE
        * target.delta
        / (math.exp(min(target.epsilon, 500.0)) * rounds * cohort.sampling_probability)
    )


def least_noise(
    build: Callable[[float], Mechanism],
    *,
    bound: str,
    cohort: Cohort,
    rounds: int,
    target: PrivacyTarget,
    multiplier: float,
    below: float = math.inf,
) -> float | None:
    """Least total noise with which `build(total_noise)` meets the target under `bound`, on the private side.

    multiplier: noise multiplier of a Gaussian that would do, to start from. Returns None when it is not
    below `below`, and raises `PrivacyUnattainable` when no noise does it.
    """
    goal, step = target.epsilon, 1.1
    if bound in ("gdp", "flat", "pld"):
        if target.epsilon > LARGEST_CERTIFIED:
            raise PrivacyUnattainable(
                f"epsilon = {target.epsilon:g}: Gaussian certificates are for at most "
                f"{LARGEST_CERTIFIED:g}; use bound='rdp'"
            )
        share = SLACK_SHARE if _has_slack(build(1.0), bound) else 0.0
        budget = target.epsilon, target.delta * (1 - share), rounds, cohort.sampling_probability
        goal = gaussian_dp.largest_mu(*budget, near=target.delta)
        multiplier, step = 1 / goal, 1.01
        slack = slack_budget(target, cohort, rounds)

    refusals: list[PrivacyUnattainable] = []

    def cost(noise: float) -> float:
        mechanism = build(noise)
        if bound in ("gdp", "flat", "pld"):
            try:
                return mechanism.certificate(bound, slack).mu
            except PrivacyUnattainable as refusal:  # for a start, too little noise for a certificate
                refusals.append(refusal)
                return math.inf
        return _epsilon(mechanism, bound, cohort, rounds, target.delta, None).epsilon

    if below < math.inf:
        rival = build(below * (1 - 1e-4))
        # κ is never below a Gaussian's of the same variance (Chapman and Robbins): often enough to know
        if bound == "rdp" and rdp_epsilon(_like_a_gaussian(rival), cohort, rounds, target.delta)[0] > goal:
            return None
        if cost(rival.total_noise) > goal:
            return None
    start = _start(build, multiplier)
    if bound in ("gdp", "flat", "pld") and (quick := _by_scaling(cost, goal, start)) is not None:
        used = build(quick).certificate(bound, slack).slack / slack
        if share == 0 or used > 0.9:
            return quick
        # part of δ's share was not needed: take back that part, and check
        full = gaussian_dp.largest_mu(target.epsilon, target.delta, rounds, cohort.sampling_probability)
        less = _by_scaling(cost, goal + 0.98 * (1 - used) * (full - goal), quick)
        if less is not None:
            again = _epsilon(build(less), bound, cohort, rounds, target.delta, slack)
            quick = less if again.epsilon <= target.epsilon else quick
        return quick
    # a flat certificate that needs much more is no gain; other bounds ask for some noise at any radius
    most = start * 1.3 if bound == "flat" else max(start, 1.0) * 1e8
    try:
        if bound == "flat" and start < _LITTLE_NOISE and cost(most) > goal:  # said at once, not on the way up
            raise PrivacyUnattainable(f"no noise up to {most:.6g} gives a flat certificate for this target")
        return calibration.least_noise(cost, goal, start * 1e-4, most, guess=start, step=step)
    except PrivacyUnattainable as error:
        raise refusals[0] if refusals else error from None


def _start(build: Callable[[float], Mechanism], multiplier: float) -> float:
    """About the noise that does as well as a Gaussian of this multiplier. A Gaussian mixture only knows how
    much is enough for narrow shares, whose sum hides less than its variance says: there, by its χ²."""
    one = build(1.0)
    start = one.noise_for_multiplier(multiplier)
    if not isinstance(one, GaussianMixture) or start <= (multiplier * one.radius) ** 2:
        return start
    low, high = start / 32, start
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        enough = (
            chi_square(replace(one, total_noise=middle).accounted_law) * (multiplier * one.radius) ** 2 <= 1
        )
        low, high = (low, middle) if enough else (middle, high)
    return high


def _has_slack(mechanism: Mechanism, bound: str) -> bool:
    """Whether its certificate leaves out some total variation: integers and the Gaussian do not."""
    return bound in ("gdp", "flat") and not isinstance(mechanism, Skellam)


def _by_scaling(cost: Callable[[float], float], goal: float, start: float) -> float | None:
    """The least noise for a μ that is close to a power of the noise, at first 1/√noise, in two or three
    evaluations.

    Ends where μ was evaluated to be at most 0.02 % below the goal, so that 0.1 % less noise misses it. None
    when that does not come about.
    """
    noise, slope = start, -0.5
    before: tuple[float, float] | None = None
    for _ in range(6):
        found = cost(noise)
        if not found < math.inf:
            return None
        if goal * (1 - 2e-4) < found <= goal:
            return noise
        here = math.log(noise), math.log(found)
        if before is not None and here[0] != before[0]:
            slope = min(-0.25, max(-8.0, (here[1] - before[1]) / (here[0] - before[0])))
        before = here
        step = (math.log(goal) - 1e-4 - here[1]) / slope
        if abs(step) > math.log(4):  # far from that: leave it to a careful search
            return None
        noise *= math.exp(step)
    return None
