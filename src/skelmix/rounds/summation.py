"""A private sum over many parties: encode, add securely, decode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.accounting.prediction import PredictedError
from skelmix.errors import InvalidInput, RoundFailed
from skelmix.mechanisms.blocks import as_blocks, counted_from
from skelmix.planning import Plan, PrivacyReport, Silos
from skelmix.rounds.context import round_context
from skelmix.rounds.frames import without_frames
from skelmix.rounds.ledger import Ledger
from skelmix.rounds.security import Secure, check_secure
from skelmix.rounds.silo_summation import sum_over_silos

_BLOCK_NUMBERS = 1 << 22  # float64 numbers that are encoded at once


@dataclass(frozen=True)
class PrivateSum:
    """The released estimate and what is known about it.

    participants: those who sent; silos, for a plan of silos.

    true_mse is None unless the caller asked for diagnostics: it is computed from the private vectors and must
    not be released.

    Example: `private_sum(vectors, plan).estimate`, a float64 array of the plan's dimension.
    """

    estimate: NDArray[np.float64]
    participants: int
    report: PrivacyReport
    predicted: PredictedError
    true_mse: float | None = None

    @property
    def deviation(self) -> float:
        """The standard deviation of each coordinate's error: noise, rounding and coordinates not sent.

        It is known beforehand and says nothing about the data. It does not include what clipping took from
        long vectors. About 95 % of the coordinates are within two such deviations of the clipped vectors'
        sum.
        """
        return self.predicted.deviation


class _Watched:
    """Blocks of vectors, counted as they pass; when asked for diagnostics, adds up the true sum."""

    def __init__(self, vectors: Iterable[Any], plan: Plan, diagnostics: bool) -> None:
        self._vectors, self._dimension = vectors, plan.mechanism.dimension
        self._limit = plan.cohort.uploads
        self.count = 0
        self.total = np.zeros(self._dimension) if diagnostics else None

    def __iter__(self) -> Iterator[NDArray[Any]]:
        rows = max(1, _BLOCK_NUMBERS // self._dimension)
        for start, block in as_blocks(self._vectors, rows, self._dimension):
            self.count = start + len(block)
            if self.count > self._limit:
                raise InvalidInput(
                    f"more than {self._limit} vectors: the plan is for a cohort of {self._limit}; make a "
                    "plan for all of them. Nothing was released"
                )
            if self.total is not None:
                self.total += block.sum(axis=0, dtype=np.float64)
            yield block


def private_sum(
    vectors: Iterable[Any],
    plan: Plan,
    secure: Secure = "protocol",
    *,
    ledger: Ledger | None = None,
    round: int | None = None,
    diagnostics: bool = False,
    heard: Callable[[], object] = lambda: None,
) -> PrivateSum:
    """The sum of the participants' vectors, released once under the plan.

    vectors: a (participants, d) array, a table with d columns of numbers (pandas, polars, pyarrow), a list of
    lists, or an iterable of (d,) vectors or (k, d) blocks, which is read once, block by block. secure:
    "protocol" adds through real secure aggregation, in this process, which keeps some 20 kB of keys and
    shares per participant, whatever d; "simulated" adds modulo m in the clear, which gives the same number in
    memory that does not grow with the participants; "none" is for mechanisms that trust their aggregator.
    diagnostics: also return the true error (for made-up data: it is computed from the private vectors, and no
    noise protects it). heard: called after each message of the protocol between participants, four for each,
    to show progress.

    Each call spends one round of the plan. ledger: counts the rounds and enforces the budget, made by
    `Ledger.for_plan(plan, path)`: the round is charged before a vector is read, stays charged if the call
    fails, and `BudgetExhausted` is raised when all are used. Without one the caller counts. round: by default
    the ledger's next, or 0.

    Fewer vectors than the plan's cohort count as dropouts: below `min_survivors` the call raises
    `RoundFailed` and releases nothing. More vectors, a wrong length, NaN or infinity raise `InvalidInput` and
    release nothing. Such an error depends on the data: it is meant for the caller, who owns all of them, and
    must not be passed on to others. Where participants and aggregator are different parties
    (`skelmix.flower`), a bad vector counts as zero instead, and nobody else can tell.
    Plans with a coin, a cap below their rounds or an adaptive clip raise `InvalidInput`.

    With a plan of `Silos`, vectors is an iterable with one item per silo: a (records, d) array or table, or
    an iterable of such blocks, which is streamed. Every record is clipped and added exactly, each silo rounds
    and noises its sum once, and the guarantee is for one record. Records with NaN or infinity count as zero
    there; only if all records are such, `InvalidInput` is raised, for the caller's eyes like the errors
    above. The true error is that of the clipped records' sum.

    Example:

        >>> import skelmix as sk
        >>> plan = sk.plan(
        ...     sk.PrivacyTarget(1.0, 1e-5), dimension=8, bits=12, bound="gdp", cohort=sk.Cohort.everyone(10)
        ... )
        >>> result = private_sum(np.full((10, 8), 0.1), plan)
        >>> result.estimate.shape, result.participants
        ((8,), 10)
    """
    check_secure(secure, plan.mechanism)
    _refuse_plans_for_runs(plan)
    vectors = without_frames(vectors)
    round = _charged(ledger, plan, round)
    if isinstance(plan.cohort, Silos):
        estimate, read = sum_over_silos(vectors, plan, secure, round=round, diagnostics=diagnostics)
        error = None if read.total is None else float(np.mean((estimate - read.total) ** 2))
        report = replace(plan.report, simulated=secure != "protocol")
        return PrivateSum(estimate, read.count, report, plan.predicted, error)
    watched = _Watched(vectors, plan, diagnostics)
    total = _total(watched, plan, secure, round, heard)
    cohort = plan.cohort.roster
    threshold = cohort.min_survivors(cohort.expected)
    if watched.count < threshold:
        raise RoundFailed(
            f"{watched.count} of {cohort.expected} participants: at least {threshold} are needed for the "
            "promised noise; "
            "nothing was released. Raise the plan's dropout_tolerance or bring more participants"
        )
    estimate = plan.mechanism.decode(total, round=round)
    true_mse = None if watched.total is None else float(np.mean((estimate - watched.total) ** 2))
    report = replace(_unsampled(plan.report), simulated=secure != "protocol")
    return PrivateSum(estimate, watched.count, report, plan.predicted, true_mse)


def _refuse_plans_for_runs(plan: Plan) -> None:
    """Refuse plans with a coin, a cap or an adaptive clip, which single sums cannot honour.

    Calls do not know each other's participants or sums, so they can neither count nor adapt; and a coin would
    throw away most of a sum whose caller holds every vector anyway.
    """
    if plan.adaptive_clip is not None:
        raise InvalidInput(
            "clip = 'adaptive': a single sum has no round before it to learn the clip norm from; plan with "
            "clip='fixed', or train (Trainer, Flower)"
        )
    cohort = plan.cohort.roster
    if cohort.contribute < 1:
        raise InvalidInput(
            f"contribute = {cohort.contribute:g}: a single sum takes every vector; make the plan with "
            "contribute=1, or train (Trainer, Flower), where participants toss their coins"
        )
    if cohort.max_participations is not None and cohort.max_participations < plan.rounds:
        raise InvalidInput(
            f"max_participations = {cohort.max_participations} of {plan.rounds} rounds: nobody counts from "
            "one call to the next; make the plan without a cap, or for as many rounds as the cap allows"
        )


def _charged(ledger: Ledger | None, plan: Plan, round: int | None) -> int:
    """The number of the round, charged to the ledger where there is one."""
    if ledger is None:
        return 0 if round is None else round
    if ledger.plan_digest != plan.digest() or ledger.budget > plan.rounds:
        raise InvalidInput(
            "the ledger was made for another plan or for more rounds than this one has: open "
            "Ledger.for_plan(plan, path)"
        )
    number = ledger.charged if round is None else round
    ledger.charge(number)
    return number


def _total(
    watched: _Watched, plan: Plan, secure: Secure, round: int, heard: Callable[[], object]
) -> NDArray[Any]:
    """The sum modulo m, as the aggregator sees it."""
    mechanism, cohort = plan.mechanism, plan.cohort.roster
    sampled = cohort.expected
    shares = cohort.encoding_shares(mechanism.total_noise, sampled)
    if secure != "protocol":
        noisy = sampled if plan.removable_noise else None  # survivors make up for those who are missing
        return mechanism.encode_sum(iter(watched), round=round, shares=shares, participants=noisy)
    from skelmix.secagg.in_memory import secure_sum

    def messages() -> Iterator[NDArray[Any]]:
        for block in watched:
            with counted_from(watched.count - len(block)):
                yield from mechanism.encode(block, round=round, shares=shares)

    return secure_sum(
        messages(),
        modulus=1 << mechanism.bits,
        threshold=cohort.min_survivors(sampled),
        participants=sampled,
        colluding=cohort.colluding,
        noise=plan.removable_noise,
        round=round,
        context=round_context(plan.digest(), round),
        heard=heard,
    )


def _unsampled(report: PrivacyReport) -> PrivacyReport:
    """The guarantee without sampling: the vectors may be the same people's in every call.

    There is then no secret cohort, so opening a sum reveals nothing about one.
    """
    if report.sampling_probability == 1:
        return report
    epsilon = report.epsilon_every_round
    return replace(
        report, epsilon=epsilon, epsilon_aggregator=epsilon, sampling="none", sampling_probability=1.0,
        modelled="", dropout_rate=None, opening_delta=0.0,
    )  # fmt: skip
