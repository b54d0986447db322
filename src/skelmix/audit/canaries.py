"""Many canaries in one training run (Steinke, Nasr and Jagielski 2023).

Each of m participants is a canary: it is included by the toss of a fair coin, and then sends, in every round
it is sampled for, a vector of its own at the clip bound. The auditor sees the decoded sums, scores each
canary by the inner product of its vector with them, and guesses "included" for the highest scores and "not
included" for the lowest, passing on the rest. How many guesses can be right is limited by (ε, δ).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binom

from skelmix.accounting.bisection import boundary
from skelmix.arrays import BoolArray, FloatArray
from skelmix.errors import InvalidInput
from skelmix.noise.entropy import Entropy, system_entropy
from skelmix.validation import positive, probability, whole

if TYPE_CHECKING:
    from skelmix.planning import Plan


#: shares of the canaries about which a guess is made; each is tried, and pays its part of the error
GUESSED = (1 / 16, 1 / 4, 1 / 2, 1.0)


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The largest probability with which an (ε, δ)-private mechanism lets this many guesses be right.

    Theorem 5.2 of Steinke, Nasr and Jagielski 2023: with W ~ Bin(r, 1/(1 + e^-ε)) it is
    P[W >= v] + 2mδ·max_i P[v - i <= W < v]/i.
    """
    whole(1, canaries=canaries)
    whole(0, canaries, guesses=guesses)
    whole(0, guesses, right=right)
    law = binom(guesses, 1 / (1 + math.exp(-epsilon)))
    tail = float(law.sf(right - 1))
    if right == 0 or delta == 0:
        return min(1.0, tail)
    below = np.cumsum(law.pmf(np.arange(right - 1, -1, -1)))
    return min(1.0, tail + 2 * canaries * delta * float(np.max(below / np.arange(1, right + 1))))


def epsilon_at_least(canaries: int, guesses: int, right: int, *, delta: float, confidence: float) -> float:
    """The largest ε that this many right guesses refute at this confidence; 0 when they refute none."""
    probability(confidence=confidence)
    error = 1 - confidence
    if p_value(canaries, guesses, right, 0.0, delta) >= error:
        return 0.0
    low, high = 0.0, 1.0
    while p_value(canaries, guesses, right, high, delta) < error:
        low, high = high, 2 * high
        if high > 500:
            return low
    return boundary(lambda epsilon: p_value(canaries, guesses, right, epsilon, delta) < error, high, low)


@dataclass(frozen=True)
class CanaryAudit:
    """Claimed ε of a whole run against the ε that the canaries prove. trials: the number of canaries.

    Example: `audit_training(plan, canaries=200).lower_bound`, to be compared with `.claimed`.
    """

    claimed: float
    lower_bound: float
    delta: float
    confidence: float
    trials: int
    guesses: int
    right: int

    @property
    def holds(self) -> bool:
        """Whether the claim survived: the lower bound is not above it."""
        return self.lower_bound <= self.claimed

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data for JSON."""
        return {
            "claimed": self.claimed,
            "lower_bound": self.lower_bound,
            "confidence": self.confidence,
            "trials": self.trials,
            "holds": self.holds,
            "gap": 1 - self.lower_bound / self.claimed,
            "delta": self.delta,
            "guesses": self.guesses,
            "right": self.right,
        }


def judge(
    scores: FloatArray, included: BoolArray, *, claimed: float, delta: float, confidence: float = 0.999
) -> CanaryAudit:
    """Guess from the scores who was included, and compare with the claim. Both arrays are (canaries,).

    The numbers of guesses are fixed beforehand (`GUESSED`), half for the highest scores and half for the
    lowest, and share the error. Since δ enters as about 2mδ over the number of surprising guesses, it must be
    far below (1 - confidence)/canaries for anything to be shown.
    """
    positive(claimed=claimed)
    probability(delta=delta, confidence=confidence)
    count = len(scores)
    if scores.shape != (count,) or included.shape != (count,) or count < 2 or not np.isfinite(scores).all():
        raise InvalidInput("scores and included: give one finite number and one flag per canary, two or more")
    order = np.argsort(scores, kind="stable")
    each = 1 - (1 - confidence) / len(GUESSED)
    best = (0.0, 0, 0)
    for share in GUESSED:
        half = max(1, int(share * count / 2))
        right = int(np.sum(included[order[-half:]]) + np.sum(~included[order[:half]]))
        bound = epsilon_at_least(count, 2 * half, right, delta=delta, confidence=each)
        best = max(best, (bound, 2 * half, right))
    return CanaryAudit(claimed, best[0], delta, confidence, count, best[1], best[2])


def run_with_canaries(
    plan: Plan, canaries: int | None = None, *, entropy: Entropy | None = None
) -> tuple[FloatArray, BoolArray]:
    """(scores, included) of the plan's rounds, run through its own sampler and mechanism.

    The canaries are the first participants of the population; canary j's vector is the j-th axis, at the clip
    norm, so at most `dimension` of them. All other participants send zero and their noise. As many drop out
    as the plan tolerates, and the noise of colluding participants is subtracted: the adversary sees the least
    noise that the plan accounts for. Under a plan for silos the canaries are records: see
    `run_with_record_canaries`.
    """
    from skelmix.audit.silos import run_with_record_canaries
    from skelmix.planning.silos import Silos
    from skelmix.rounds.sampling import draw_cohort, poisson

    if isinstance(plan.cohort, Silos):
        return run_with_record_canaries(plan, plan.cohort, canaries, entropy=entropy)
    mechanism, cohort = plan.mechanism, plan.cohort.roster
    most = min(mechanism.dimension, cohort.population)
    count = most if canaries is None else canaries
    whole(2, most, canaries=count)
    source = system_entropy() if entropy is None else entropy
    included = np.zeros(count, np.bool_)
    included[poisson(count, Fraction(1, 2), source)] = True
    scores = np.zeros(count)
    for round in range(plan.rounds):
        sampled = draw_cohort(cohort.sampling, cohort.population, cohort.expected, source)
        shares = cohort.shares(len(sampled))
        if shares == 0 or cohort.min_survivors(len(sampled)) > len(sampled):
            continue  # a round that cannot be opened releases nothing
        present = sampled[sampled < count]
        present = present[included[present]]
        vectors = np.zeros((max(1, len(present)), mechanism.dimension))
        vectors[np.arange(len(present)), present] = mechanism.clip_norm
        noisy = max(len(vectors), math.ceil(shares))
        if cohort.least_survivors is not None:  # more survivors than the fewest keep no more noise
            shares = Fraction(noisy)
        total = mechanism.encode_sum(vectors, round=round, shares=shares, participants=noisy, entropy=source)
        scores += mechanism.decode(total, round=round)[:count]
    return scores, included


def audit_training(
    plan: Plan,
    canaries: int | None = None,
    *,
    confidence: float = 0.999,
    entropy: Entropy | None = None,
) -> CanaryAudit:
    """Run the plan once with canaries and compare with its claim against those who see the models.

    Example: `audit_training(plan, canaries=200).holds`.
    """
    probability(confidence=confidence)  # before the rounds are run
    scores, included = run_with_canaries(plan, canaries, entropy=entropy)
    return judge(
        scores, included, claimed=plan.report.epsilon, delta=plan.report.delta, confidence=confidence
    )
