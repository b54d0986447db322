"""A private sum over many parties: encode, add securely, decode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.accounting.prediction import PredictedError
from skelmix.errors import InvalidInput, RoundFailed
from skelmix.mechanisms.mechanism import IntegerMechanism
from skelmix.planning import Plan, PrivacyReport, Silos
from skelmix.rounds.context import round_context
from skelmix.rounds.silo_summation import sum_over_silos
from skelmix.validation import real_vectors


@dataclass(frozen=True)
class PrivateSum:
    """The released estimate and what is known about it. participants: those who sent, silos for a plan of
    silos.

    true_mse is None unless the caller asked for diagnostics: it is computed from the private vectors and must
    not be released.

    Example: `private_sum(vectors, plan).estimate`, a float64 array of the plan's dimension.
    """

    estimate: NDArray[np.float64]
    participants: int
    report: PrivacyReport
    predicted: PredictedError
    true_mse: float | None = None


class _Watched:
    """Counts vectors as they pass and, when asked for diagnostics, adds up the true sum."""

    def __init__(self, vectors: Iterable[Any], plan: Plan, diagnostics: bool) -> None:
        self._vectors, self._dimension = vectors, plan.mechanism.dimension
        self._limit = plan.cohort.uploads
        self.count = 0
        self.total = np.zeros(self._dimension) if diagnostics else None

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for item in self._vectors:
            block = real_vectors(item, self._dimension, name=f"vectors[{self.count}]")
            self.count += len(block)
            if self.count > self._limit:
                raise InvalidInput(
                    f"more than {self._limit} vectors: the plan is for a cohort of {self._limit}; make a "
                    "plan for all of them. "
                    "Nothing was released"
                )
            if self.total is not None:
                self.total += block.sum(axis=0, dtype=np.float64)
            yield block


def private_sum(
    vectors: Iterable[Any], plan: Plan, secure: bool = True, *, round: int = 0, diagnostics: bool = False
) -> PrivateSum:
    """The sum of the participants' vectors, released once under the plan.

    vectors: a (participants, d) array or an iterable of (d,) vectors or (k, d) blocks; it is read once, row
    by row. secure: add through the real protocol of secure aggregation, in this process, which keeps some 20
    kB of keys and shares a participant, whatever d; otherwise by the plain modular sum, whose memory does not
    grow with the participants and which gives the same number. diagnostics: also return the
    true error (for made-up data: it is computed from the private vectors, and no noise protects it).

    Each call spends one round of the plan. Fewer vectors than the plan's cohort count as dropouts: below
    `min_survivors` the call raises `RoundFailed` and releases nothing. More vectors, a wrong length, NaN or
    infinity raise `InvalidInput` and release nothing. Such an error depends on the data: it is meant for the
    caller, who owns all of them, and must not be passed on to others. Where participants and aggregator are
    different parties (`skelmix.flower`), a bad vector counts as zero instead, and nobody else can tell.

    With a plan of `Silos`, vectors is an iterable with one item per silo: a (records, d) array, or an
    iterable of such blocks, which is streamed. Every record is clipped and added exactly, each silo rounds
    and noises its sum once, and the guarantee is for one record. Records with NaN or infinity count as zero
    there, and the true error is that of the clipped records' sum.

    Example:

        >>> import skelmix as sk
        >>> plan = sk.plan(
        ...     sk.PrivacyTarget(1.0, 1e-5), dimension=8, bits=12, bound="gdp",
        ...     cohort=sk.Cohort(10, 10, sampling="none"),
        ... )
        >>> result = private_sum(np.full((10, 8), 0.1), plan)
        >>> result.estimate.shape, result.participants
        ((8,), 10)
    """
    if isinstance(plan.cohort, Silos):
        estimate, read = sum_over_silos(vectors, plan, secure, round=round, diagnostics=diagnostics)
        error = None if read.total is None else float(np.mean((estimate - read.total) ** 2))
        report = replace(plan.report, simulated=not secure)
        return PrivateSum(estimate, read.count, report, plan.predicted, error)
    mechanism, cohort = plan.mechanism, plan.cohort.roster
    watched = _Watched(vectors, plan, diagnostics)
    shares = cohort.shares(cohort.expected)
    threshold = cohort.min_survivors(cohort.expected)
    if secure and not isinstance(mechanism, IntegerMechanism):
        raise InvalidInput(
            f"secure = True: {mechanism.name} is not distributed, its aggregator sees every vector; "
            "pass secure=False (--no-secure) to use it as a reference"
        )
    if secure and isinstance(mechanism, IntegerMechanism):
        from skelmix.secagg.in_memory import secure_sum

        encoded = (
            row for block in watched for row in _rows(mechanism.encode(block, round=round, shares=shares))
        )
        total = secure_sum(
            encoded,
            modulus=mechanism.modulus,
            threshold=threshold,
            participants=cohort.expected,
            colluding=cohort.colluding,
            round=round,
            context=round_context(plan.digest(), round),
        )
    else:
        total = mechanism.encode_sum(iter(watched), round=round, shares=shares)
    if watched.count < threshold:
        raise RoundFailed(
            f"{watched.count} of {cohort.expected} participants: at least {threshold} are needed for the "
            "promised noise; "
            "nothing was released. Raise the plan's dropout_tolerance or bring more participants"
        )
    estimate = mechanism.decode(total, round=round)
    true_mse = None if watched.total is None else float(np.mean((estimate - watched.total) ** 2))
    report = replace(_unsampled(plan.report), simulated=not secure)
    return PrivateSum(estimate, watched.count, report, plan.predicted, true_mse)


def _unsampled(report: PrivacyReport) -> PrivacyReport:
    """What holds here: whoever calls knows whose vectors went in, so nothing is gained by sampling."""
    if report.sampling_probability == 1:
        return report
    return replace(
        report, epsilon=report.epsilon_aggregator, sampling="none", sampling_probability=1.0, modelled=""
    )


def _rows(block: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return iter(block[None, :] if block.ndim == 1 else block)
