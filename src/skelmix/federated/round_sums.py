"""One round's noisy sum: of participants' vectors, or of silos that each added up their records."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import TYPE_CHECKING, cast

import numpy as np
from torch import nn

from skelmix.errors import InvalidInput
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import ClippedSum, Gradients, LocalSteps, Loss
from skelmix.federated.records import RecordGradients
from skelmix.federated.round_record import RoundDiagnostics
from skelmix.federated.silo_clients import SiloClients, silo_sums
from skelmix.mechanisms import EncodeStats, Mechanism, SiloSum
from skelmix.noise.entropy import Entropy
from skelmix.planning.silos import Silos
from skelmix.rounds.aggregation import (
    SanitizedBlocks,
    Seconds,
    TrueSiloSum,
    TrueSum,
    longest_vector,
    noisy_clipped_sum,
    noisy_silo_sum,
    noisy_sum,
)
from skelmix.rounds.coin_and_cap import SimulatedChoices
from skelmix.rounds.running_clip import JointVectors
from skelmix.rounds.security import Secure

if TYPE_CHECKING:
    from skelmix.planning import Plan


@dataclass(frozen=True)
class DrawnRound:
    """A round that was charged and drawn.

    sampled: how many were drawn. here: the numbers of those that did not drop out. diagnostics: filled in,
    where it is not None; measure: the error of the sum, too.
    """

    number: int
    sampled: int
    here: np.ndarray
    entropy: Entropy
    diagnostics: RoundDiagnostics | None
    measure: bool


@dataclass
class BrokenVectors:
    """How many of a run's vectors were NaN or infinite, and so counted as zero.

    No noise protects these numbers: they stay in this process, and no file or record has them.
    """

    total: int = 0
    broken: int = 0

    @property
    def all(self) -> bool:
        """Whether there were vectors, and every one of them was broken."""
        return 0 < self.total == self.broken

    def add(self, count: int, broken: int) -> None:
        """Count the vectors of a round, or of a silo in it."""
        self.total += count
        self.broken += broken


class ParticipantSums:
    """Sums of participants' vectors."""

    def __init__(self, plan: Plan, clients: Clients, gradients: Gradients, secure: Secure) -> None:
        self._plan, self._clients, self.gradients, self._secure = plan, clients, gradients, secure
        self.vectors = BrokenVectors()

    def noisy(
        self, drawn: DrawnRound, choices: SimulatedChoices, seconds: Seconds, joint: JointVectors | None
    ) -> np.ndarray:
        """The round's sum; with an adaptive clip, that of joint vectors.

        A vector that is NaN or infinite counts as zero.
        """
        mechanism, notes = self._plan.mechanism, drawn.diagnostics
        contributors = choices.of(drawn.here, drawn.entropy)
        if not mechanism.distributed and joint is None:
            start = perf_counter()
            clipped = self.gradients.clipped_sum(
                self._clients, contributors, mechanism.clip_norm, longest_vector(mechanism)
            )
            seconds.gradients += perf_counter() - start
            if clipped is not None:
                return self._with_central_noise(clipped, drawn, seconds)
        given = self.gradients.blocks(self._clients, contributors)
        sane = SanitizedBlocks(given, mechanism) if joint is None else joint
        blocks = sane.of(given) if isinstance(sane, JointVectors) else sane
        watched = TrueSum(mechanism.clip_norm, mechanism.dimension) if notes and drawn.measure else None
        stats = EncodeStats() if notes else None
        total = noisy_sum(
            self._plan,
            blocks if watched is None else watched.watch(blocks),
            round=drawn.number,
            sampled=drawn.sampled,
            survivors=len(drawn.here),
            secure=self._secure,
            entropy=drawn.entropy,
            seconds=seconds,
            stats=stats,
        )
        self.vectors.add(sane.rows, sane.broken)
        if notes is not None:
            notes.broken = sane.broken
        _note(notes, stats, mechanism, joint)
        _note_error(notes, total, None if watched is None else watched.total)
        return total

    def _with_central_noise(self, clipped: ClippedSum, drawn: DrawnRound, seconds: Seconds) -> np.ndarray:
        """The sum with the noise of a trusted aggregator, who needs no single vector."""
        total = noisy_clipped_sum(
            self._plan,
            clipped.total,
            round=drawn.number,
            sampled=drawn.sampled,
            survivors=len(drawn.here),
            entropy=drawn.entropy,
            seconds=seconds,
        )
        self.vectors.add(clipped.stats.participants, clipped.broken)
        if (notes := drawn.diagnostics) is not None:
            notes.broken = clipped.broken
            _note(notes, clipped.stats, self._plan.mechanism, None)
            _note_error(notes, total, clipped.total if drawn.measure else None)
        return total


class SiloSums:
    """Sums of silos, each of which adds up its sampled records exactly."""

    def __init__(self, plan: Plan, clients: SiloClients, gradients: RecordGradients, secure: Secure) -> None:
        self._plan, self._clients, self.gradients, self._secure = plan, clients, gradients, secure
        self.vectors = BrokenVectors()

    def noisy(
        self, drawn: DrawnRound, choices: SimulatedChoices, seconds: Seconds, joint: JointVectors | None
    ) -> np.ndarray:
        """The round's sum; with an adaptive clip, that of joint vectors. Silos have no coin and no cap."""
        cohort, mechanism, notes = self._plan.cohort, self._plan.mechanism, drawn.diagnostics
        sums = silo_sums(
            self._clients,
            drawn.here,
            self.gradients,
            mechanism,
            Fraction(int(cohort.divisor), cohort.members),
            round=drawn.number,
            entropy=drawn.entropy,
            seconds=seconds,
            joint=joint,
        )
        sums = self._counted(sums, joint)
        watched = TrueSiloSum(mechanism.dimension) if notes and drawn.measure else None
        stats = EncodeStats() if notes else None
        total = noisy_silo_sum(
            self._plan,
            sums if watched is None else watched.watch(sums),
            round=drawn.number,
            survivors=len(drawn.here),
            secure=self._secure,
            entropy=drawn.entropy,
            seconds=seconds,
            stats=stats,
        )
        _note(notes, stats, mechanism, joint)
        _note_error(notes, total, None if watched is None else watched.total)
        return total

    def _counted(self, sums: Iterator[SiloSum], joint: JointVectors | None) -> Iterator[SiloSum]:
        """Hand the silos' sums on, counting their records as they were before they became joint vectors."""
        for silo in sums:
            if joint is None:
                self.vectors.add(silo.records, silo.broken)
            yield silo
        if joint is not None:
            self.vectors.add(joint.rows, joint.broken)


def round_sums_for(
    model: nn.Module,
    loss: Loss,
    clients: Clients | SiloClients,
    plan: Plan,
    local: LocalSteps | None,
    secure: Secure,
    micro_batch: int | None = None,
) -> ParticipantSums | SiloSums:
    """The sums of participants, or of the records in silos, as the plan says."""
    if not isinstance(clients, Clients | SiloClients):
        raise InvalidInput(
            f"clients = {type(clients).__name__}: give Clients(inputs, targets), or for silos SiloClients"
        )
    if isinstance(clients, SiloClients) != isinstance(plan.cohort, Silos):
        raise InvalidInput(
            f"the plan protects each {plan.cohort.unit}: give Clients with a Cohort, SiloClients with Silos"
        )
    if not isinstance(clients, SiloClients):
        return ParticipantSums(
            plan, clients, Gradients(model, loss, local=local, micro_batch=micro_batch), secure
        )
    clients.check_plan(cast(Silos, plan.cohort))
    if micro_batch is not None:
        raise InvalidInput("micro_batch: a silo's records go through the model one by one; leave it out")
    if local is not None:
        raise InvalidInput("local steps mix a silo's records: with silos each record has its own gradient")
    return SiloSums(plan, clients, RecordGradients(model, loss), secure)


def _note(
    notes: RoundDiagnostics | None,
    stats: EncodeStats | None,
    mechanism: Mechanism,
    joint: JointVectors | None,
) -> None:
    """Measurements of the vectors without noise, made in the encoder or where joint vectors were built."""
    if notes is None or stats is None or not stats.participants:
        return
    notes.wrapped_fraction = stats.wrapped_coordinates / mechanism.coordinates
    seen, scale = (stats, mechanism.scale) if joint is None else (joint.stats, 1.0)
    if seen.participants:
        notes.rms_norm = math.sqrt(seen.squared_norms / seen.participants) / scale
        notes.clipped_fraction = seen.clipped_rows / seen.participants


def _note_error(notes: RoundDiagnostics | None, total: np.ndarray, true: np.ndarray | None) -> None:
    if notes is not None and true is not None:
        notes.mse = float(np.mean((total - true) ** 2))
