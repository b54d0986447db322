"""Federated training with distributed differential privacy, for every mechanism.

Bao et al. 2022, Algorithms 3 and 13.

A round: draw a cohort, write it into the ledger, sum the participants' noisy vectors, divide by the
*expected* cohort (the actual size is secret), take one optimiser step.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn

from skelmix.errors import CorruptState, InvalidInput, RoundFailed
from skelmix.federated import checkpoint
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import Gradients, LocalSteps, Loss, set_gradients
from skelmix.federated.records import RecordGradients
from skelmix.federated.silo_clients import SiloClients, silo_sums
from skelmix.mechanisms import EncodeStats, Mechanism
from skelmix.noise.entropy import Entropy, ReproducibleEntropy, SystemEntropy, system_entropy
from skelmix.planning import PrivacyReport
from skelmix.planning.silos import Silos
from skelmix.rounds.aggregation import (
    SanitizedBlocks,
    Seconds,
    TrueSiloSum,
    TrueSum,
    noisy_silo_sum,
    noisy_sum,
)
from skelmix.rounds.coin_and_cap import SimulatedChoices
from skelmix.rounds.files import storing, write_atomically
from skelmix.rounds.ledger import Ledger
from skelmix.rounds.locks import FileLock
from skelmix.rounds.sampling import draw_cohort, poisson
from skelmix.rounds.security import Secure, check_secure
from skelmix.validation import fraction, whole

if TYPE_CHECKING:
    from skelmix.planning import Plan

Record = dict[str, Any]
Callback = Callable[["Trainer", Record], None]


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    `history` has one record per round; `private` is False after reproducible randomness. failed_rounds gave
    no sum; lost_rounds were interrupted, with nothing left of them here.

    Example: `print(Trainer(...).run().report)`, the guarantee in words.
    """

    accuracy: float | None
    report: PrivacyReport
    rounds: int
    failed_rounds: int
    lost_rounds: int
    seconds: float
    seconds_per_round: float
    wrapped_fraction: float | None
    private: bool
    history: list[Record]
    split: Seconds


class Trainer:
    """Runs a plan's rounds on a model.

    `model` is changed in place; `optimizer` holds its trainable parameters.

    loss(outputs, targets): of one participant's records. evaluate(model) -> number, every `evaluate_every`
    rounds and at the end. A participant whose vector is NaN or infinite is replaced by zero, so observers
    cannot detect it. callbacks: called with (trainer, record) after each round. dropout_rate: simulated,
    each participant independently. diagnostics: keep what no noise protects (cohort sizes, times, norms,
    clipping, wrapping, broken vectors; the error at evaluated rounds), in each record under "diagnostics" and
    marked there as not private: for made-up or public data. run_directory: makes the run durable (ledger,
    checkpoints, plan); without it nothing touches the disk. entropy: a `ReproducibleEntropy` makes the run
    repeatable and *not private*; the result says so.

    Example:

        >>> import skelmix as sk
        >>> model = nn.Linear(2, 2)
        >>> clients = Clients(torch.randn(20, 2), torch.randint(0, 2, (20,)))
        >>> plan = sk.plan(
        ...     sk.PrivacyTarget(5.0, 1e-3), dimension=6, bits=12, rounds=2, bound="gdp",
        ...     cohort=sk.Cohort(20, 20, sampling="none"),
        ... )
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> Trainer(model, nn.functional.cross_entropy, clients, plan, optimizer).run().rounds
        2
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        clients: Clients | SiloClients,
        plan: Plan,
        optimizer: torch.optim.Optimizer,
        *,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
        local: LocalSteps | None = None,
        secure: Secure = "simulated",
        dropout_rate: float = 0.0,
        evaluate: Callable[[nn.Module], float] | None = None,
        evaluate_every: int = 50,
        diagnostics: bool = False,
        callbacks: Sequence[Callback] = (),
        run_directory: Path | str | None = None,
        checkpoint_every: int = 20,
        entropy: Entropy | None = None,
        resuming: bool = False,
    ) -> None:
        check_secure(secure, plan.mechanism)
        fraction(dropout_rate=dropout_rate)
        whole(1, evaluate_every=evaluate_every, checkpoint_every=checkpoint_every)
        self.gradients = _gradients(model, loss, clients, plan, local)
        if self.gradients.dimension != plan.mechanism.dimension:
            raise InvalidInput(
                f"the model has {self.gradients.dimension} trainable weights, the plan is for "
                f"{plan.mechanism.dimension}: make the plan with dimension={self.gradients.dimension}"
            )
        if len(clients) != plan.cohort.roster.population:
            raise InvalidInput(
                f"{len(clients)} participants, but the plan's population is {plan.cohort.roster.population}: "
                "sampling would not have the rate that was accounted for; plan for that population"
            )
        self.model, self.clients, self.plan, self.optimizer = model, clients, plan, optimizer
        self.scheduler, self.secure, self.dropout_rate = scheduler, secure, dropout_rate
        self.evaluate, self.evaluate_every, self.diagnostics = evaluate, evaluate_every, diagnostics
        self.callbacks, self.checkpoint_every = tuple(callbacks), checkpoint_every
        self.seconds, self.history = Seconds(), list[Record]()
        self._times = list[float]()  # of rounds, in seconds
        self.private = entropy is None or isinstance(entropy, SystemEntropy)
        self._entropy = entropy or system_entropy()
        self._root = self._entropy.bytes(32)
        self._lock: FileLock | None = None
        self._directory = None if run_directory is None else Path(run_directory)
        self.ledger = self._open_directory(resuming)
        self._choices = self._open_choices()

    @classmethod
    def resume(
        cls,
        run_directory: Path | str,
        model: nn.Module,
        loss: Loss,
        clients: Clients | SiloClients,
        optimizer: torch.optim.Optimizer,
        **options: Any,
    ) -> Trainer:
        """Continue an interrupted run with the plan in its directory. Options are those of `Trainer`.

        Rounds that were started but whose model was lost stay charged: training goes on from the last
        checkpoint with the rounds that are left. Damaged or foreign files raise `CorruptState`.
        """
        from skelmix.planning import Plan

        directory = Path(run_directory)
        if not (directory / "plan.json").exists():
            raise InvalidInput(f"{directory} has no plan.json: it is not the directory of a run")
        plan = Plan.from_json((directory / "plan.json").read_bytes())
        options |= {"run_directory": directory, "resuming": True}
        trainer = cls(model, loss, clients, plan, optimizer, **options)
        try:
            trainer._load()
        except BaseException:
            trainer.close()
            raise
        return trainer

    def run(self) -> RunResult:
        """Train until the plan's rounds are used up. Calling it again returns at once: the budget is spent.

        Whatever interrupts it, the state is saved: `close`, and `resume` goes on from there.
        """
        start = perf_counter()
        before = torch.get_num_threads()
        if self.gradients.short_passes:  # idle OpenMP threads spin, on cores that the encoder could use
            torch.set_num_threads(1)
        try:
            while self.ledger.remaining > 0:
                self.step()
                if self.ledger.charged % self.checkpoint_every == 0 or self.ledger.remaining == 0:
                    self.save()
            if self.evaluate is not None and "accuracy" not in self.history[-1]:  # it was lost
                self.history[-1]["accuracy"] = float(self.evaluate(self.model))
        except BaseException:
            with suppress(Exception):
                self.save()
            raise
        finally:
            torch.set_num_threads(before)
            if self.ledger.remaining == 0:
                self.close()
        return self._result(perf_counter() - start)

    def step(self) -> Record:
        """One round. `BudgetExhausted` when the plan's rounds are used up, before anything is computed.

        A round with too few survivors changes nothing but the ledger.
        """
        split, round = self.seconds, self.ledger.charged
        start = perf_counter()
        self.ledger.charge(round)
        charged = perf_counter()
        split.charge += charged - start
        record: Record = {"round": round + 1, "opened": False, "lost": True}  # so far
        self.history.append(record)
        entropy = self._round_entropy(round)
        cohort = self.plan.cohort.roster
        sampled = draw_cohort(cohort.sampling, cohort.population, cohort.expected, entropy)
        here = sampled[poisson(len(sampled), 1 - Fraction(self.dropout_rate), entropy)]
        split.sample += perf_counter() - charged
        if self.diagnostics:
            record["diagnostics"] = {"private": False, "sampled": len(sampled), "survivors": len(here)}
        last = round + 1 == self.plan.rounds
        looked_at = last or (round + 1) % self.evaluate_every == 0
        try:
            with self._torch_seeded(round):
                self._sum_and_step(round, len(sampled), here, record, entropy, looked_at)
            record["opened"] = True
        except RoundFailed:
            pass
        del record["lost"]
        took = perf_counter() - start
        self._times.append(took)
        if self.diagnostics:
            record["diagnostics"]["seconds"] = took
        if self.evaluate is not None and looked_at:
            begin = perf_counter()
            record["accuracy"] = float(self.evaluate(self.model))
            split.evaluate += perf_counter() - begin
        for callback in self.callbacks:
            callback(self, record)
        return record

    def save(self) -> None:
        """Write a checkpoint now; nothing without a run directory. A closed trainer raises `CorruptState`."""
        if self._directory is None:
            return
        if self._lock is None:
            raise CorruptState(f"{self._directory} was closed here and may be another's: resume the run")
        state = checkpoint.Checkpoint(
            round=self.ledger.charged,
            ledger_head=self.ledger.heads[self.ledger.charged],
            private=self.private,
            model=self.model.state_dict(),
            optimizer=self.optimizer.state_dict(),
            scheduler=None if self.scheduler is None else self.scheduler.state_dict(),
            history=self.history,
        )
        checkpoint.save(self._directory / "checkpoint.pt", state)

    def close(self) -> None:
        """Release the run directory."""
        self.ledger.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _sum_and_step(
        self, round: int, sampled: int, here: np.ndarray, record: Record, entropy: Entropy, looked_at: bool
    ) -> None:
        summed = self._sum_of_silos if isinstance(self.clients, SiloClients) else self._sum_of_participants
        total = summed(round, sampled, here, record, entropy, looked_at)
        start = perf_counter()
        self._still_finite()  # in every round: that it was looked at tells nothing
        set_gradients(self.model, total / self.plan.cohort.divisor)
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        self.seconds.optimizer += perf_counter() - start

    def _sum_of_participants(
        self, round: int, sampled: int, here: np.ndarray, record: Record, entropy: Entropy, looked_at: bool
    ) -> np.ndarray:
        clients, gradients = cast(Clients, self.clients), cast(Gradients, self.gradients)
        mechanism = self.plan.mechanism
        sending = self._choices.of(here, entropy)
        mended = SanitizedBlocks(gradients.blocks(clients, sending), mechanism)
        watched = (
            TrueSum(mechanism.clip_norm, mechanism.dimension) if self.diagnostics and looked_at else None
        )
        stats = EncodeStats() if self.diagnostics else None
        total = noisy_sum(
            self.plan,
            mended if watched is None else watched.watch(mended),
            round=round,
            sampled=sampled,
            survivors=len(here),
            secure=self.secure,
            entropy=entropy,
            seconds=self.seconds,
            stats=stats,
        )
        if self.diagnostics:
            record["diagnostics"] |= {"broken": mended.broken} | _encoding(stats, mechanism)
        if watched is not None:
            record["diagnostics"]["mse"] = float(np.mean((total - watched.total) ** 2))
        return total

    def _sum_of_silos(
        self, round: int, sampled: int, here: np.ndarray, record: Record, entropy: Entropy, looked_at: bool
    ) -> np.ndarray:
        cohort = self.plan.cohort
        stats = EncodeStats() if self.diagnostics else None
        sums = silo_sums(
            cast(SiloClients, self.clients),
            here,
            cast(RecordGradients, self.gradients),
            self.plan.mechanism,
            Fraction(int(cohort.divisor), cohort.members),
            round=round,
            entropy=entropy,
            seconds=self.seconds,
        )
        watched = TrueSiloSum(self.plan.mechanism.dimension) if self.diagnostics and looked_at else None
        total = noisy_silo_sum(
            self.plan,
            sums if watched is None else watched.watch(sums),
            round=round,
            survivors=len(here),
            secure=self.secure,
            entropy=entropy,
            seconds=self.seconds,
            stats=stats,
        )
        if self.diagnostics:
            record["diagnostics"] |= _encoding(stats, self.plan.mechanism)
        if watched is not None:
            record["diagnostics"]["mse"] = float(np.mean((total - watched.total) ** 2))
        return total

    def _still_finite(self) -> None:
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise InvalidInput(
                "the model's weights are NaN or infinite: training has diverged; lower the learning rate and "
                "start again"
            )

    def _round_entropy(self, round: int) -> Entropy:
        """Fresh system entropy; for reproducible runs a stream of the round's own.

        So a resumed run repeats, too.
        """
        return self._entropy if self.private else ReproducibleEntropy(self._round_seed(round))

    @contextmanager
    def _torch_seeded(self, round: int) -> Iterator[None]:
        """Make what layers such as dropout draw from torch repeat in reproducible runs, too."""
        if self.private:
            yield
            return
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int.from_bytes(self._round_seed(round)[:8], "big"))
            yield

    def _round_seed(self, round: int) -> bytes:
        return hashlib.sha256(self._root + round.to_bytes(8, "big")).digest()

    def _open_directory(self, resuming: bool) -> Ledger:
        text = self.plan.to_json()
        digest = self.plan.digest()
        if self._directory is None:
            return Ledger(None, plan_digest=digest, budget=self.plan.rounds, private=self.private)
        with storing(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self._directory / "run.lock", subject=self._directory)
        try:
            stored, path = self._directory / "plan.json", self._directory / "ledger.jsonl"
            if not resuming:
                if path.exists():
                    raise InvalidInput(
                        f"{self._directory} holds a run already: resume it, or choose another directory"
                    )
                write_atomically(stored, text.encode())
            elif not path.exists():
                raise CorruptState(
                    f"{path} is missing: what this run has spent is unknown; start another run, elsewhere"
                )
            ledger = Ledger(path, plan_digest=digest, budget=self.plan.rounds, private=self.private)
        except BaseException:
            self._lock.close()
            raise
        return ledger

    def _open_choices(self) -> SimulatedChoices:
        """Coins and caps of the participants, with the counts of an earlier process."""
        counts = None if self._directory is None else self._directory / "participations.npy"
        try:
            return SimulatedChoices(
                self.plan.cohort.roster,
                counts,
                plan_digest=self.plan.digest(),
                charged=self.ledger.charged,
            )
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        directory, ledger = self._directory, self.ledger
        state = None if directory is None else checkpoint.load(directory / "checkpoint.pt")
        if state is None:
            self._note_lost()
            return
        if state.round > ledger.charged or ledger.heads[state.round] != state.ledger_head:
            raise CorruptState(
                f"{directory}: checkpoint and ledger are of different runs, or ledger lines were removed"
            )
        try:
            self.model.load_state_dict(state.model)
            self.optimizer.load_state_dict(state.optimizer)
            if self.scheduler is not None and state.scheduler is not None:
                self.scheduler.load_state_dict(state.scheduler)
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptState(
                f"{directory}: the checkpoint is of another model or optimiser: {error}"
            ) from error
        self.history = list(state.history)
        self._times = [record["diagnostics"]["seconds"] for record in self.history if "diagnostics" in record]
        self._note_lost()

    def _note_lost(self) -> None:
        """Rounds that were charged, and of which nothing is left."""
        for lost in range(len(self.history), self.ledger.charged):
            self.history.append({"round": lost + 1, "opened": False, "lost": True})

    def _result(self, seconds: float) -> RunResult:
        accuracies = [record["accuracy"] for record in self.history if "accuracy" in record]
        wrapped = [
            record["diagnostics"]["wrapped_fraction"]
            for record in self.history
            if "wrapped_fraction" in record.get("diagnostics", {})
        ]
        return RunResult(
            accuracy=accuracies[-1] if accuracies else None,
            report=replace(
                self.plan.report, reproducible=not self.private, simulated=self.secure != "protocol"
            ),
            rounds=self.ledger.charged,
            failed_rounds=sum(not record["opened"] and "lost" not in record for record in self.history),
            lost_rounds=sum("lost" in record for record in self.history),
            seconds=seconds,
            seconds_per_round=sum(self._times) / max(len(self._times), 1),
            wrapped_fraction=float(np.mean(wrapped)) if wrapped else None,
            private=self.private,
            history=self.history,
            split=self.seconds,
        )


def _encoding(stats: EncodeStats | None, mechanism: Mechanism) -> Record:
    """Measurements of the participants' vectors in the encoder, without noise."""
    if stats is None or not stats.participants:
        return {}
    return {
        "rms_norm": math.sqrt(stats.squared_norms / stats.participants) / mechanism.scale,
        "clipped_fraction": stats.clipped_rows / stats.participants,
        "wrapped_fraction": stats.wrapped_coordinates / mechanism.coordinates,
    }


def _gradients(
    model: nn.Module, loss: Loss, clients: Clients | SiloClients, plan: Plan, local: LocalSteps | None
) -> Gradients | RecordGradients:
    """The computation of the vectors: of participants, or of the records in silos, as the plan says."""
    if isinstance(clients, SiloClients) != isinstance(plan.cohort, Silos):
        raise InvalidInput(
            f"the plan protects each {plan.cohort.unit}: give Clients with a Cohort, SiloClients with Silos"
        )
    if not isinstance(clients, SiloClients) or not isinstance(plan.cohort, Silos):
        return Gradients(model, loss, local=local)
    clients.check_plan(plan.cohort)
    if local is not None:
        raise InvalidInput("local steps mix a silo's records: with silos each record has its own gradient")
    return RecordGradients(model, loss)
