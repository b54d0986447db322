"""Compares a plan with a node's policy: every limit, and the reason for a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from skelmix.errors import PolicyViolation
from skelmix.planning.guarantee import privacy_report
from skelmix.wording import counted

if TYPE_CHECKING:
    from skelmix.flower.policy import ClientPolicy
    from skelmix.planning import Plan


def check_plan(policy: ClientPolicy, plan: Plan) -> None:
    """Raise `PolicyViolation`, with the first reason, unless the plan keeps every limit of the policy.

    The plan's own claim must have been proved by now: its ε and δ are taken as they stand.
    """
    for reason in _reasons(policy, plan):
        raise PolicyViolation(reason)


def unsampled_epsilon(plan: Plan, rounds: int) -> float:
    """The ε at the plan's δ of several rounds, for an adversary who knows that the participant is in each.

    Nothing that the server says about its population enters.
    """
    roster = plan.cohort.roster
    cohort = replace(roster, population=roster.expected, sampling="none")
    return privacy_report(
        plan.mechanism, bound=plan.report.bound, cohort=cohort, rounds=rounds, delta=plan.report.delta
    ).epsilon


def round_epsilon(plan: Plan) -> float:
    """ε at the plan's δ of one round for a vector, or a silo's record, that is certainly in the sum.

    Sampling, the coin and the draw of records are left out: at a δ above their rate they would pass a plan
    without any noise.
    """
    roster = plan.cohort.roster
    cohort = replace(
        roster, population=roster.expected, sampling="none", contribute=1.0, max_participations=None
    )
    return privacy_report(
        plan.mechanism, bound=plan.report.bound, cohort=cohort, rounds=1, delta=plan.report.delta
    ).epsilon


def _reasons(policy: ClientPolicy, plan: Plan) -> Iterator[str]:
    report, cohort, members = plan.report, plan.cohort.roster, plan.cohort.members
    proved_in_smaller = plan.mechanism.proved_in_smaller_cohorts
    if plan.mechanism.name not in policy.mechanisms:
        allowed = ", ".join(policy.mechanisms)
        yield f"mechanism {plan.mechanism.name!r} is not among those allowed here: {allowed}"
    if not report.epsilon <= policy.max_epsilon:
        yield f"the plan costs ε = {report.epsilon:.4g}, this node allows {policy.max_epsilon:g}"
    if not report.delta <= policy.max_delta:
        yield f"the plan costs δ = {report.delta:.3g}, this node allows {policy.max_delta:g}"
    if not report.delta * members < 1:
        yield (
            f"the plan costs δ = {report.delta:.3g} for {members:,} {plan.cohort.unit}s: this node wants δ "
            "below one over their number, or revealing one of them outright would be allowed"
        )
    if report.modelled and not policy.allow_modelled:
        yield f"this node wants ε proved, the plan's is modelled: {report.modelled}"
    if report.modelled and report.sampling == "poisson" and not proved_in_smaller(report.bound):
        yield (
            f"with bound = {report.bound!r} {plan.mechanism.name} proves no ε for cohorts smaller than "
            "expected, so this node cannot judge the plan: plan with mechanism='smm'"
        )
    yield from _population_reasons(policy, plan)
    leak = cohort.membership_leak_probability(
        plan.rounds, least=policy.min_cohort, malicious=cohort.opens_by_majority(report.delta, plan.rounds)
    )
    if leak > plan.cohort.delta_for_small_cohorts(report.delta, plan.rounds):
        yield (
            f"this node refuses rounds with fewer than {policy.min_cohort} participants (the plan expects "
            f"{cohort.expected}), so an opened round would reveal who was sampled; lower min_cohort"
        )
    if not report.epsilon_aggregator <= policy.max_epsilon_aggregator:
        yield (
            f"against the aggregator the plan costs ε = {report.epsilon_aggregator:.4g}, "
            f"this node allows {policy.max_epsilon_aggregator:g}"
        )
    yield from _contribution_reasons(policy, plan)
    if not (epsilon := round_epsilon(plan)) <= policy.max_epsilon_round:
        yield (
            f"one round costs ε = {epsilon:.4g} without any sampling or coin, this node allows "
            f"{policy.max_epsilon_round:g}: plan with more noise"
        )


def _contribution_reasons(policy: ClientPolicy, plan: Plan) -> Iterator[str]:
    """Why a plan breaks the node's own cap or coin, if it does."""
    cohort = plan.cohort.roster
    most = plan.rounds if cohort.max_participations is None else cohort.max_participations
    if policy.max_participations is not None and min(most, plan.rounds) > policy.max_participations:
        yield (
            f"the plan could ask for {counted(min(most, plan.rounds), 'contribution')} of this node, which "
            f"allows {policy.max_participations}: plan with Cohort(max_participations=…)"
        )
    if not cohort.contribute <= policy.max_contribute:
        yield (
            f"the plan has this node send its vector with probability {cohort.contribute:g}, it allows "
            f"{policy.max_contribute:g}: plan with Cohort(contribute=…)"
        )


def _population_reasons(policy: ClientPolicy, plan: Plan) -> Iterator[str]:
    """Why a plan breaks the node's limits on the population, which only the server states."""
    cohort, stated = plan.cohort.roster, policy.stated_population
    if stated is None:
        sampled = cohort.expected < cohort.population
        if sampled and not unsampled_epsilon(plan, plan.rounds) <= policy.max_epsilon:
            yield (
                f"the plan counts on sampling {cohort.expected} of {cohort.population:,} nodes, and this "
                "node does not know how many there are: state it, max_population or skelmix-max-population"
            )
    elif cohort.population > stated:
        yield f"the plan is for a population of {cohort.population:,}, this node knows of {stated:,} at most"
