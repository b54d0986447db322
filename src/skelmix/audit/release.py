"""The distinguishing game on one release: did the participant send its vector, or zero?

Everybody else sends zero, which is the worst case: what others send is independent of the participant and
can only hide it. The adversary knows the mechanism, the vector and the laws, and scores each release by its
likelihood ratio, the best test there is (Neyman and Pearson).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.arrays import FloatArray
from skelmix.audit.rates import Bounded, epsilon_at_least
from skelmix.encoding.rotation import unrotate
from skelmix.encoding.subset import choose
from skelmix.encoding.wrapping import unwrap, wrap
from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.mechanisms import Mechanism
from skelmix.mechanisms.mechanism import IntegerMechanism, sending_integers
from skelmix.noise.entropy import Entropy, system_entropy
from skelmix.planning import Cohort, privacy_report
from skelmix.validation import one_of, positive, probability, whole

PAIRS = ("concentrated", "spread")

#: what the participant sends is this many times too long: a mechanism that does not clip gives itself away
OVERSHOOT = 4.0

COORDINATES_AT_ONCE = 1 << 21
_LOG_TAIL = -60.0  # in nats: mass that the score leaves out


@dataclass(frozen=True)
class Pair:
    """The two worlds of the game: the participant sends `vector`, or zero.

    After rotation and clip it is `value` on the first `support` coordinates of the integer grid, zero
    elsewhere.
    """

    name: str
    vector: FloatArray
    value: float
    support: int


@dataclass(frozen=True)
class Attack:
    """The attack on one pair of worlds: the bound on ε that it proved, and its scores in either world."""

    pair: Pair
    bounded: Bounded
    with_vector: FloatArray
    without: FloatArray


@dataclass(frozen=True)
class ReleaseAudit:
    """Claimed ε against the ε that an attack proves, at the same δ.

    lower_bound: the true ε is at least this, with probability `confidence`. holds: it is not above
    the claim.

    Example: `audit_release(mechanism, delta=1e-2).holds`.
    """

    claimed: float
    lower_bound: float
    delta: float
    confidence: float
    trials: int
    mechanism: Mechanism
    bound: str
    attacks: tuple[Attack, ...]

    @property
    def holds(self) -> bool:
        """Whether the claim survived: the lower bound is not above it."""
        return self.lower_bound <= self.claimed

    @property
    def gap(self) -> float:
        """Share of the claim that the attack did not reach."""
        return 1 - self.lower_bound / self.claimed

    @property
    def best(self) -> Attack:
        """The attack that proved most."""
        return max(self.attacks, key=lambda attack: attack.bounded.epsilon)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data for JSON."""
        best = self.best
        return {
            "claimed": self.claimed,
            "lower_bound": self.lower_bound,
            "confidence": self.confidence,
            "trials": self.trials,
            "holds": self.holds,
            "gap": self.gap,
            "delta": self.delta,
            "mechanism": self.mechanism.name,
            "bound": self.bound,
            "bits": self.mechanism.bits,
            "dimension": self.mechanism.dimension,
            "pair": best.pair.name,
            "true_positive_rate": best.bounded.true_positives,
            "false_positive_rate": best.bounded.false_positives,
        }


def audit_release(
    mechanism: Mechanism,
    *,
    delta: float,
    bound: str = "tight",
    claimed: float | None = None,
    trials: int = 100_000,
    confidence: float = 1 - 1e-6,
    pairs: tuple[str, ...] = PAIRS,
    entropy: Entropy | None = None,
) -> ReleaseAudit:
    """Attack one release, without sampling, and compare with what is claimed for it at the same δ.

    claimed: the ε to be tested; by default what `bound` proves for this mechanism. trials: games for each
    pair, half of them in each world. Every trial runs the real `encode` for each of the mechanism's `shares`
    participants and adds up what they send.

    Example:

        >>> from skelmix.mechanisms import SkellamMixture
        >>> smm = SkellamMixture(dimension=2, bits=8, scale=4.0, clip_norm=1.0, total_noise=50.0)
        >>> audit_release(smm, delta=1e-2, bound="rdp", trials=2_000).holds
        True
    """
    whole(8, trials=trials)
    probability(delta=delta, confidence=confidence)
    integers = sending_integers(mechanism)
    for name in pairs:
        one_of(PAIRS, pair=name)
    # the padding is part of what is sent: a vector may as well have all of these coordinates
    attacked = replace(integers, dimension=integers.padded_dimension)
    if claimed is None:
        alone = Cohort(1, 1, sampling="none")
        report = privacy_report(mechanism, bound=bound, cohort=alone, rounds=1, delta=delta)
        claimed, bound = report.epsilon, report.bound
    if math.isinf(claimed):
        raise PrivacyUnattainable(f"{bound!r} proves nothing for this mechanism: there is no claim to attack")
    positive(claimed=claimed)
    each = 1 - (1 - confidence) / len(pairs)
    attacks = []
    for name in pairs:
        pair = worst_pair(attacked, name)
        table = log_likelihood_ratio(attacked, pair)
        scores = [
            play(attacked, pair if here else None, pair.support, table, trials // 2, entropy)
            for here in (True, False)
        ]
        bounded = epsilon_at_least(scores[0], scores[1], delta=delta, confidence=each)
        attacks.append(Attack(pair, bounded, scores[0], scores[1]))
    lower = max(attack.bounded.epsilon for attack in attacks)
    return ReleaseAudit(
        claimed, lower, delta, confidence, trials * len(pairs), mechanism, bound, tuple(attacks)
    )


def worst_pair(mechanism: IntegerMechanism, name: str) -> Pair:
    """A vector at the clip bound: on as few coordinates as the clip lets through whole, or spread over all.

    It is sent `OVERSHOOT` times too long: the mechanism has to clip it.
    """
    length = mechanism.coordinates
    fewest = math.ceil((mechanism.radius / min(mechanism.linf_sensitivity, mechanism.radius)) ** 2 - 1e-9)
    support = length if name == "spread" else min(fewest, length)
    shape = np.zeros((1, length))
    shape[0, :support] = OVERSHOOT * mechanism.radius / math.sqrt(support)
    clipped = shape.copy()
    mechanism._clip(clipped)
    vector = shape / mechanism.scale
    if mechanism.keep is not None:  # all of it on the coordinates that are sent
        sent = choose(mechanism.rotation_seed, 0, mechanism.padded_dimension, length)
        vector = np.zeros((1, mechanism.padded_dimension))
        vector[:, sent] = shape / mechanism.scale
    if mechanism.rotate:
        vector = unrotate(vector, mechanism.rotation_seed, 0, dimension=mechanism.padded_dimension)
    return Pair(name, vector[0], float(clipped[0, 0]), support)


@dataclass(frozen=True)
class Ratios:
    """The table of ln P_x(k)/P_0(k) for the wrapped value k of one coordinate, k = first, first + 1, …."""

    first: int
    values: FloatArray
    bits: int

    def __call__(self, sent: NDArray[Any]) -> FloatArray:
        """Scores of (trials, coordinates) releases; values beyond the table count as its ends."""
        place = np.clip(unwrap(sent, self.bits) - self.first, 0, len(self.values) - 1)
        return np.asarray(self.values[place].sum(axis=1), np.float64)


def log_likelihood_ratio(mechanism: IntegerMechanism, pair: Pair) -> Ratios:
    """The score of a coordinate: x rounded stochastically plus the summed noise, against the noise alone.

    Both are modulo 2^bits. (For conditional rounding it is not the exact ratio: an attack may use any score.)
    """
    law = mechanism.total_law(mechanism.shares)
    if law is None:
        raise InvalidInput("this mechanism adds no noise: there is nothing to audit")
    low, high = law.support_bound(_LOG_TAIL)
    shift, p = math.floor(pair.value), pair.value - math.floor(pair.value)
    points = np.arange(low - 1, high + shift + 3)
    without = law.pmf(points)
    with_vector = (1 - p) * law.pmf(points - shift) + p * law.pmf(points - shift - 1)
    half = mechanism.modulus // 2
    if points[0] < -half or points[-1] >= half:
        size = mechanism.modulus
        place = unwrap(wrap(points, mechanism.bits), mechanism.bits) + half
        without = np.bincount(place, without, size).astype(np.float64)
        with_vector = np.bincount(place, with_vector, size).astype(np.float64)
        points = np.arange(-half, half)
    smallest = np.exp(_LOG_TAIL)
    values = np.log(np.maximum(with_vector, smallest)) - np.log(np.maximum(without, smallest))
    return Ratios(int(points[0]), values, mechanism.bits)


def play(
    mechanism: IntegerMechanism,
    pair: Pair | None,
    support: int,
    ratios: Ratios,
    trials: int,
    entropy: Entropy | None = None,
) -> FloatArray:
    """The scores of several releases.

    The first participant sends the pair's vector (or zero without one), the others zero.
    """
    source = system_entropy() if entropy is None else entropy
    width, people = mechanism.dimension, mechanism.shares
    at_once = max(1, COORDINATES_AT_ONCE // (width * people))
    scores = np.empty(trials)
    for start in range(0, trials, at_once):
        count = min(at_once, trials - start)
        vectors = np.zeros((people, count, width))
        if pair is not None:
            vectors[0] = pair.vector
        sent = mechanism.encode(vectors.reshape(-1, width), round=0, entropy=source)
        total = sent.reshape(people, count, -1).sum(axis=0, dtype=np.uint64)
        scores[start : start + count] = ratios(wrap(total, mechanism.bits)[:, :support])
    return scores
