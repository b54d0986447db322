"""Attacks on one record of a silo, with the aggregator's view: the sum of the silos' messages.

The silos draw their records in secret, so the aggregator sees no more than the sums, and one claim holds for
everyone. Both attacks run the real draws, sums and encoders. The adversary sees the least noise that the plan
accounts for: as many silos drop out or collude as it allows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skelmix.arrays import BoolArray, FloatArray, IntArray
from skelmix.audit.rates import epsilon_at_least
from skelmix.audit.release import (
    COORDINATES_AT_ONCE,
    PAIRS,
    Attack,
    Pair,
    Ratios,
    ReleaseAudit,
    log_likelihood_ratio,
    worst_pair,
)
from skelmix.encoding.wrapping import wrap
from skelmix.errors import PrivacyUnattainable
from skelmix.mechanisms import Mechanism
from skelmix.mechanisms.silo import SiloMechanism, summing_records
from skelmix.noise.entropy import Entropy, system_entropy
from skelmix.planning import privacy_report
from skelmix.planning.silos import Silos
from skelmix.rounds import sampling
from skelmix.validation import one_of, positive, probability, whole

if TYPE_CHECKING:
    from skelmix.planning import Plan


def audit_record(
    mechanism: Mechanism,
    silos: Silos,
    *,
    delta: float,
    bound: str = "tight",
    claimed: float | None = None,
    others: FloatArray | None = None,
    trials: int = 20_000,
    confidence: float = 1 - 1e-6,
    pair: str = "spread",
    entropy: Entropy | None = None,
) -> ReleaseAudit:
    """Attack one round: does the first silo hold the record, or not?

    claimed: the ε to be tested; by default what `bound` proves for one round of these silos. others: vectors
    (records, padded dimension) of the other records of that silo, none by default; the adversary knows them
    and, where every record is drawn, subtracts their sum. trials: games, half of them in each world.

    Example:

        >>> from skelmix.mechanisms import SkellamMixture
        >>> smm = SkellamMixture(dimension=2, bits=8, scale=4.0, clip_norm=1.0, total_noise=50.0, shares=2)
        >>> silos = Silos(count=2, records=10, batch=5)
        >>> audit_record(smm, silos, delta=1e-2, bound="rdp", trials=200).holds
        True
    """
    whole(8, trials=trials)
    probability(delta=delta, confidence=confidence)
    one_of(PAIRS, pair=pair)
    summing = summing_records(mechanism)
    if claimed is None:
        report = privacy_report(mechanism, bound=bound, cohort=silos, rounds=1, delta=delta)
        claimed, bound = report.epsilon, report.bound
    if math.isinf(claimed):
        raise PrivacyUnattainable(f"{bound!r} proves nothing for this mechanism: there is no claim to attack")
    positive(claimed=claimed)
    attacked = replace(summing, dimension=summing.padded_dimension)
    target = worst_pair(attacked, pair)
    source = system_entropy() if entropy is None else entropy
    known = np.empty((0, attacked.dimension)) if others is None else np.asarray(others, np.float64)
    game = _Game(attacked, Fraction(silos.batch, silos.records), target, known, source)
    scores = [game.scores(here, trials // 2) for here in (True, False)]
    bounded = epsilon_at_least(scores[0], scores[1], delta=delta, confidence=confidence)
    attack = Attack(target, bounded, scores[0], scores[1])
    return ReleaseAudit(claimed, bounded.epsilon, delta, confidence, trials, mechanism, bound, (attack,))


class _Game:
    """One round, played again and again: the first silo has the record or not, further silos have none."""

    def __init__(
        self, mechanism: SiloMechanism, rate: Fraction, pair: Pair, others: FloatArray, entropy: Entropy
    ) -> None:
        self.mechanism, self.rate, self.pair, self.entropy = mechanism, rate, pair, entropy
        self._worlds = {True: np.vstack([others, pair.vector]), False: others}
        self._ratios: Ratios = log_likelihood_ratio(mechanism, pair)
        self._base: NDArray[Any] = np.zeros(mechanism.coordinates, np.int64)
        if rate == 1:  # what the other records add is then known but for its rounding
            silo = mechanism.silo_sum(round=0)
            silo.add(others)
            self._base = silo.rounded(entropy)

    def scores(self, here: bool, trials: int) -> FloatArray:
        """The scores of this many rounds with the record, or without it."""
        at_once = max(1, COORDINATES_AT_ONCE // self.mechanism.coordinates)
        scores = []
        for start in range(0, trials, at_once):
            seen = [self._sum(self._worlds[here]) for _ in range(min(at_once, trials - start))]
            released = wrap(np.stack(seen) - self._base, self.mechanism.bits)
            scores.append(self._ratios(released[:, : self.pair.support]))
        return np.concatenate(scores)

    def _sum(self, records: FloatArray) -> IntArray:
        total = np.zeros(self.mechanism.coordinates, np.int64)
        for place in range(self.mechanism.shares):
            silo = self.mechanism.silo_sum(round=0)
            if place == 0:
                silo.add(records[sampling.poisson(len(records), self.rate, self.entropy)])
            total += self.mechanism.encode_silo(silo, entropy=self.entropy).astype(np.int64)
        return total


def run_with_record_canaries(
    plan: Plan, silos: Silos, canaries: int | None = None, *, entropy: Entropy | None = None
) -> tuple[FloatArray, BoolArray]:
    """(scores, included) of all rounds of a plan for silos, in which the canaries are records.

    Canary j's vector is the j-th axis at the clip norm; it is a record of one of the silos whose noise the
    adversary does not know, by the toss of a fair coin. Further records are zero.
    """
    mechanism = plan.mechanism
    most = min(mechanism.dimension, silos.records)
    count = most if canaries is None else canaries
    whole(2, most, canaries=count)
    source = system_entropy() if entropy is None else entropy
    included = np.zeros(count, np.bool_)
    included[sampling.poisson(count, Fraction(1, 2), source)] = True
    shares, rate = silos.shares(silos.count), Fraction(silos.batch, silos.records)
    honest = math.ceil(shares)
    records = [np.flatnonzero(included & (np.arange(count) % honest == silo)) for silo in range(honest)]
    scores = np.zeros(count)
    for round in range(plan.rounds):
        total = np.zeros(mechanism.coordinates, np.int64)
        for own in records:
            silo = mechanism.silo_sum(round=round)
            drawn = own[sampling.poisson(len(own), rate, source)]
            vectors = np.zeros((len(drawn), mechanism.dimension))
            vectors[np.arange(len(drawn)), drawn] = mechanism.clip_norm
            silo.add(vectors)
            total += mechanism.encode_silo(silo, shares=shares, entropy=source).astype(np.int64)
        scores += mechanism.decode(wrap(total, mechanism.bits), round=round)[:count]
    return scores, included
