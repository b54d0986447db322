"""Plan the one private sum that answers a question: noise, bits, and how accurate each answer will be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from skelmix.errors import InvalidInput, PrivacyUnattainable
from skelmix.mechanisms.bounds.gaussian import LARGEST_CERTIFIED
from skelmix.mechanisms.silo import SiloMechanism, summing_records
from skelmix.planning.central import central_multiplier
from skelmix.planning.planner import plan
from skelmix.planning.plans import Plan
from skelmix.planning.silos import Silos
from skelmix.planning.target import PrivacyTarget
from skelmix.statistics.estimates import Estimator, Precision
from skelmix.statistics.expectation import ExpectedError, expected_errors, least_epsilon
from skelmix.statistics.layout import Layout
from skelmix.statistics.party import Owners
from skelmix.statistics.queries import Question
from skelmix.validation import positive, whole

_MOST_BITS = 32
_GRID_NOISE = 400.0  # standard deviation on the integer grid at which coding costs about 1 % of the error
_CLOSE = 1.02  # bits are enough when the standard error is at most this many times the central Gaussian's
_NOISE_REACH = 12.0  # standard deviations that the noise exceeds with a probability below 1e-30 only
_RARE, _MOST_WRONG = 1e-6, 0.01  # probabilities of a wrong sum that are sought, and that are borne
_PADDED = (1 << 12, 1 << 16)  # entries of a vector with zeros behind
_ATTEMPTS = 8  # plans that are tried for a relative error


@dataclass(frozen=True)
class Parties:
    """Who answers, all of it public: how many parties, and about how many records they have together.

    records: stated beforehand, never counted from the data; no fewer than there may be, because a sum of
    more records may wrap around and be wrong. owners: None protects each record; `Owners` protects each
    owner with all its records in one party (one with records in two parties is not covered). colluding: how
    many parties may share what they know with the adversary.

    Example: `Parties(count=5, records=20_000)`.
    """

    count: int
    records: int
    owners: Owners | None = None
    colluding: int = 0

    def __post_init__(self) -> None:
        whole(2, count=self.count)
        whole(1, records=self.records)

    @property
    def rows(self) -> int:
        """Records of one unit of privacy that count in full."""
        return self.owners.rows if self.owners else 1

    @property
    def silos(self) -> Silos:
        """All records, in the one round."""
        unit = "owner" if self.owners else "record"
        return Silos(self.count, self.records, self.records, colluding=self.colluding, unit=unit)


@dataclass(frozen=True, eq=False)
class StatisticsPlan:
    """How a question will be answered, known before any data is read; `plan` is the plan of the one sum.

    level: how often an interval covers the truth. joint: all intervals together, instead of each by itself.

    Example: `plan_statistics(question, PrivacyTarget(1.0, 1e-6), parties).plan.report.epsilon`.
    """

    question: Question
    parties: Parties
    plan: Plan
    level: float = 0.95
    joint: bool = False

    @property
    def mechanism(self) -> SiloMechanism:
        """The mechanism by which each party encodes its sum."""
        return summing_records(self.plan.mechanism)

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.question)

    @cached_property
    def radius(self) -> int:
        """The L2 norm of the longest record (or owner), in fixed-point units."""
        return self.mechanism.silo_sum(round=0).unit_radius

    @cached_property
    def decoded_unit(self) -> float:
        """What a decoded sum is multiplied by so that a record as long as the radius has norm 1."""
        return self.mechanism.fixed_point.steps.factor / self.radius

    @cached_property
    def precision(self) -> Precision:
        """The noise of one entry, with a bound on the rounding's, and the probability of a wrong sum."""
        return Precision(entry_deviation(self.plan) * self.decoded_unit, wrap_probability(self.plan))

    @cached_property
    def estimator(self) -> Estimator:
        return Estimator(
            self.layout,
            self.precision,
            radius=self.radius,
            rows=self.parties.rows,
            level=self.level,
            joint=self.joint,
        )

    @cached_property
    def expected_errors(self) -> tuple[ExpectedError, ...]:
        """The standard error that each answer will have."""
        return expected_errors(self.estimator, self.layout, self.parties.records)

    @property
    def central_ratio(self) -> float:
        """Standard error divided by the central Gaussian's with the same ε and δ."""
        return central_ratio(self.plan)


def wrap_probability(plan: Plan) -> float:
    """An upper bound on the probability that any coordinate of a sum of all records wraps around.

    After random signs, a coordinate of a rotated vector of norm a is sub-Gaussian with variance a²/D
    (Hoeffding), and never exceeds a. The norm is at most γ times the records.
    """
    mechanism = summing_records(plan.mechanism)
    noise = math.sqrt(plan.predicted.noise) * mechanism.scale
    room = mechanism.modulus / 2 - 1 - _NOISE_REACH * noise - plan.cohort.uploads
    longest = mechanism.scale * plan.cohort.members * mechanism.clip_norm
    if room <= 0:
        return 1.0
    if longest <= room:
        return 0.0
    t = room / (longest / math.sqrt(mechanism.padded_dimension))
    return min(1.0, 2 * mechanism.coordinates * math.exp(-t * t / 2))


def plan_statistics(
    question: Question,
    target: PrivacyTarget,
    parties: Parties,
    *,
    level: float = 0.95,
    joint: bool = False,
) -> StatisticsPlan:
    """The plan of one private sum that answers the question within the target; reads no data.

    It takes the fewest bits per coordinate, at most 32, that bring the standard error within 2 % of the
    central Gaussian's. Raises `InvalidInput` when 32 bits cannot hold the sum of so many records.

    Example:

        >>> from skelmix.statistics import parse_question
        >>> planned = plan_statistics(
        ...     parse_question("count; mean(age, 0..110)"), PrivacyTarget(1.0, 1e-6), Parties(5, 10_000)
        ... )
        >>> planned.plan.report.epsilon <= 1.0, planned.central_ratio < 1.05
        (True, True)
    """
    record_plan = plan_record_sum(target, parties, Layout(question).dimension)
    return StatisticsPlan(question, parties, record_plan, level, joint)


def plan_record_sum(
    target: PrivacyTarget, parties: Parties, dimension: int, *, clip_norm: float = 1.0
) -> Plan:
    """The plan of one private sum over all parties' records, each a vector of norm up to `clip_norm`.

    The bits per coordinate are chosen as for `plan_statistics`, which this serves.
    """
    if target.epsilon > LARGEST_CERTIFIED:
        raise InvalidInput(
            f"epsilon = {target.epsilon:g}: statistics are proved up to {LARGEST_CERTIFIED:g}; pass less"
        )
    plans: list[Plan] = []
    for size in planned_sizes(dimension):
        record_plan = _plan_of_size(target, parties, size, clip_norm)
        if record_plan is not None:
            if _is_close(record_plan):
                return record_plan
            plans.append(record_plan)
    if not plans:
        raise InvalidInput(
            f"records = {parties.records}: the sum of so many does not fit into 32 bits; state fewer "
            "records, or lower epsilon"
        )
    return min(plans, key=entry_deviation)


def planned_sizes(dimension: int) -> tuple[int, ...]:
    """The lengths that a question's vector may have in a plan: its own, and longer ones with zeros behind.

    The rotation spreads a large sum over all coordinates: each needs fewer bits where there are more of them.
    """
    return (dimension, *(size for size in _PADDED if size > dimension))


def _plan_of_size(target: PrivacyTarget, parties: Parties, size: int, clip_norm: float) -> Plan | None:
    """The plan with the fewest bits that are enough, or the most there are; None where they hold no sum."""
    bits = _first_bits(target, parties, size)
    while True:
        record_plan = plan(
            target, dimension=size, clip_norm=clip_norm, bits=bits, bound="gdp", cohort=parties.silos,
            alignment=1.0,
        )  # fmt: skip
        if bits == _MOST_BITS:
            return record_plan if wrap_probability(record_plan) < _MOST_WRONG else None
        if _is_close(record_plan):
            return record_plan
        bits = min(_MOST_BITS, bits + 2)


def _is_close(record_plan: Plan) -> bool:
    """Whether bits are enough: sums hardly ever wrap around, and coding costs little beside the noise."""
    return wrap_probability(record_plan) < _RARE and central_ratio(record_plan) <= _CLOSE


def entry_deviation(plan: Plan) -> float:
    """Standard deviation of an entry of the decoded sum: the noise, with a bound on the rounding's."""
    return math.sqrt(plan.predicted.noise + plan.cohort.uploads / (4 * plan.mechanism.scale**2))


def central_ratio(plan: Plan) -> float:
    """Standard error of an entry divided by the central Gaussian's with the same ε and δ."""
    return entry_deviation(plan) / math.sqrt(plan.central_gaussian_mse)


def _first_bits(target: PrivacyTarget, parties: Parties, dimension: int) -> int:
    """Bits that hold the sum when the noise on the integer grid is large beside one."""
    multiplier = central_multiplier(target, parties.silos.schedule(1), False)
    scale = max(1.0, _GRID_NOISE / multiplier)
    longest = scale * parties.records / math.sqrt(dimension) + _NOISE_REACH * scale * multiplier
    return min(_MOST_BITS, max(8, math.ceil(math.log2(16 * longest))))


def plan_for_error(
    question: Question, relative_error: float, delta: float, parties: Parties, **options: Any
) -> StatisticsPlan:
    """The plan with the least ε, to about 0.1 %, at which every relative standard error is small enough.

    Reads no data.

    Every answer's relative standard error is at most `relative_error`.

    `ExpectedError` says what the errors are relative to. options: as for `plan_statistics`. Raises
    `PrivacyUnattainable` when no ε up to 50 is enough.

    Example: `plan_for_error(question, 0.01, 1e-6, Parties(count=5, records=20_000))`.
    """
    positive(relative_error=relative_error)
    layout, schedule = Layout(question), parties.silos.schedule(1)
    ratio = 1.0  # ratio of the real standard error to the central Gaussian's
    for _ in range(_ATTEMPTS):
        margin = ratio

        def deviation(epsilon: float, margin: float = margin) -> float:
            return margin * central_multiplier(PrivacyTarget(epsilon, delta), schedule, False)

        epsilon = least_epsilon(layout, relative_error, parties.records, deviation, rows=parties.rows)
        planned = plan_statistics(question, PrivacyTarget(epsilon, delta), parties, **options)
        if max(expected.relative for expected in planned.expected_errors) <= relative_error:
            return planned
        ratio = max(ratio, planned.central_ratio) * (1 + 2e-4)
    raise PrivacyUnattainable(
        f"relative_error = {relative_error:g}: no plan reached it; allow a slightly larger error"
    )
