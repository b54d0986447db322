"""Federated training with distributed differential privacy, under any mechanism.

Bao et al. 2022, Algorithms 3 and 13.

A round: draw a cohort, write it into the ledger, sum the participants' noisy vectors, divide by the
*expected* cohort (the actual size is secret), take one optimiser step.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from skelmix.errors import InvalidInput, RoundFailed
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import LocalSteps, Loss, check_weights, set_gradients
from skelmix.federated.plan_check import check_dropouts, check_sizes
from skelmix.federated.rehearsal import check_optimizer, check_some_finite, checked_evaluation, rehearse
from skelmix.federated.round_record import RoundDiagnostics, RoundRecord
from skelmix.federated.round_sums import DrawnRound, round_sums_for
from skelmix.federated.run_directory import RunDirectory
from skelmix.federated.run_result import RunResult
from skelmix.federated.silo_clients import SiloClients
from skelmix.noise.entropy import Entropy, ReproducibleEntropy, SystemEntropy, system_entropy
from skelmix.rounds.aggregation import Seconds
from skelmix.rounds.running_clip import RunningClip
from skelmix.rounds.sampling import draw_cohort, poisson
from skelmix.rounds.security import Secure, check_secure
from skelmix.rounds.spent import PrivacySpent, privacy_spent
from skelmix.validation import whole

if TYPE_CHECKING:
    from skelmix.federated.report import Spent
    from skelmix.planning import Plan

log = logging.getLogger("skelmix")

Callback = Callable[["Trainer", RoundRecord], None]


class Trainer:
    """Runs a plan's rounds on a model.

    `model` is changed in place; `optimizer` holds its trainable parameters.

    loss(outputs, targets): of one participant's records. micro_batch: most records that go through the model
    at once, unless one participant has more. evaluate(model) -> number, every `evaluate_every` rounds and at
    the end. A participant whose vector is NaN or infinite is replaced by zero, so observers cannot detect it.
    callbacks: called with (trainer, RoundRecord) after each round. dropout_rate: simulated dropouts, each
    participant independently. Failed rounds are logged. A rate above the plan's own is refused, and so is one
    at which most rounds would fail, unless allow_failing_rounds. diagnostics: keep what no noise protects
    (cohort sizes, times, norms, clipping, wrapping, broken vectors; the error at evaluated rounds), in each
    record's `diagnostics`: for made-up or public data. run_directory: makes the run durable (ledger,
    checkpoints, plan), keeps model.pt, metrics and report; without it nothing touches the disk. settings:
    plain data to keep in its config.json. entropy: a `ReproducibleEntropy` makes the run repeatable and *not
    private*; the result says so.

    Before anything is charged or written, model, loss, gradients, optimiser and `evaluate` are tried once on
    zeros: what does not fit together raises `InvalidInput` here, as do records none of which is finite.

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
        micro_batch: int | None = None,
        secure: Secure = "simulated",
        dropout_rate: float = 0.0,
        allow_failing_rounds: bool = False,
        evaluate: Callable[[nn.Module], float] | None = None,
        evaluate_every: int = 50,
        diagnostics: bool = False,
        callbacks: Sequence[Callback] = (),
        run_directory: Path | str | None = None,
        checkpoint_every: int = 20,
        entropy: Entropy | None = None,
        settings: Mapping[str, Any] | None = None,
        resuming: bool = False,
    ) -> None:
        check_secure(secure, plan.mechanism)
        check_dropouts(plan, dropout_rate, allowed=allow_failing_rounds or resuming)
        whole(1, evaluate_every=evaluate_every, checkpoint_every=checkpoint_every)
        self._sums = round_sums_for(model, loss, clients, plan, local, secure, micro_batch)
        self.gradients = self._sums.gradients
        check_sizes(plan, self.gradients.dimension, len(clients))
        check_optimizer(model, optimizer, scheduler, plan.rounds)
        check_some_finite(clients)
        rehearse(model, loss, clients, self.gradients)
        if evaluate is not None:
            evaluate = checked_evaluation(model, evaluate)
        self.model, self.clients, self.plan, self.optimizer = model, clients, plan, optimizer
        self.clip = RunningClip(plan)
        self.scheduler, self.secure, self.dropout_rate = scheduler, secure, dropout_rate
        self.evaluate, self.evaluate_every, self.diagnostics = evaluate, evaluate_every, diagnostics
        self.callbacks, self.checkpoint_every = tuple(callbacks), checkpoint_every
        self.seconds, self.history = Seconds(), list[RoundRecord]()
        self._spent = privacy_spent(plan, 0)
        self._times = list[float]()  # seconds of each round
        self.private = entropy is None or isinstance(entropy, SystemEntropy)
        self._entropy = entropy or system_entropy()
        self._root = self._entropy.bytes(32)
        directory = None if run_directory is None else Path(run_directory)
        self.settings = {
            "model": type(model).__name__, "loss": getattr(loss, "__name__", type(loss).__name__),
            "optimizer": str(optimizer), "secure": secure, "dropout_rate": dropout_rate,
            "evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every,
        } if settings is None else dict(settings)  # fmt: skip
        self._files = RunDirectory(
            directory, plan, private=self.private, resuming=resuming, settings=self.settings
        )
        self.ledger = self._files.ledger

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

    @property
    def spent(self) -> PrivacySpent:
        """The privacy that the rounds charged so far have cost, for observers and for the aggregator.

        It is computed anew after each round, which takes a fraction of a second.
        """
        if self._spent.rounds != self.ledger.charged:
            self._spent = privacy_spent(self.plan, self.ledger.charged)
        return self._spent

    @cached_property
    def spent_by_round(self) -> Spent:
        """An upper bound on what is spent after each round, ready for every one of them."""
        from skelmix.federated.report import Spent

        return Spent(self.plan)

    def run(self) -> RunResult:
        """Train until the plan's rounds are used up. Calling it again returns at once: the budget is spent.

        Whatever interrupts it, the state is saved: `close`, and `resume` goes on from there. With a run
        directory, metrics.csv grows with each round, and privacy.json and report.html are written at the end.
        A run that cannot have learned anything raises after that: `RunResult.check_learned`.
        """
        if self._files.path is not None:
            from skelmix.display import plotly_script

            plotly_script()  # what the report needs is missed now, not after the budget is spent
        result = self.run_unchecked()
        if self._files.path is not None:
            from skelmix.federated import report

            settings = self.settings | {"private": self.private}
            report.write(self._files.path, self.plan, result, settings, self.spent_by_round)
        result.check_learned()
        return result

    def run_unchecked(self) -> RunResult:
        """As `run`, without report and privacy.json, and without raising where nothing was learned."""
        if self._files.path is None:
            return self._train()
        from skelmix.federated import report

        with report.live_metrics(self._files.path / "metrics.csv", self, self.spent_by_round):
            return self._train()

    def _train(self) -> RunResult:
        start = perf_counter()
        before = torch.get_num_threads()
        if self.gradients.short_passes:  # idle OpenMP threads spin, on cores that the encoder could use
            torch.set_num_threads(1)
        try:
            while self.ledger.remaining > 0:
                self.step()
                if self.ledger.charged % self.checkpoint_every == 0 or self.ledger.remaining == 0:
                    self.save()
            if self.evaluate is not None and self.history[-1].accuracy is None:  # it was lost
                self.history[-1].accuracy = self.evaluate(self.model)
        except BaseException:
            with suppress(Exception):
                self.save()
            raise
        finally:
            torch.set_num_threads(before)
            if self.ledger.remaining == 0:
                self.close()
        return self._result(perf_counter() - start)

    def step(self) -> RoundRecord:
        """One round. `BudgetExhausted` when the plan's rounds are used up, before anything is computed.

        A round with too few survivors changes nothing but the ledger.
        """
        split, round, start = self.seconds, self.ledger.charged, perf_counter()
        self.ledger.charge(round)
        split.charge += perf_counter() - start
        record = RoundRecord(round + 1, lost=True, clip_norm=self.clip.stated)  # so far
        self.history.append(record)
        last = round + 1 == self.plan.rounds
        looked_at = last or (round + 1) % self.evaluate_every == 0
        drawn = self._draw(round, measure=looked_at)
        record.diagnostics = drawn.diagnostics
        try:
            with self._torch_seeded(round):
                record.within = self._sum_and_step(drawn)
            record.opened = True
        except RoundFailed:  # how many there were stays secret
            log.warning("round %d gave no sum, too few survived: its cost stays charged", round + 1)
        record.lost = False
        took = perf_counter() - start
        self._times.append(took)
        if record.diagnostics is not None:
            record.diagnostics.seconds = took
        if self.evaluate is not None and looked_at:
            begin = perf_counter()
            record.accuracy = self.evaluate(self.model)
            split.evaluate += perf_counter() - begin
        for callback in self.callbacks:
            callback(self, record)
        return record

    def save(self) -> None:
        """Write a checkpoint now; nothing without a run directory. A closed trainer raises `CorruptState`."""
        self._files.save(self.model, self.optimizer, self.scheduler, self.history)

    def close(self) -> None:
        """Release the run directory."""
        self._files.close()

    def _draw(self, round: int, *, measure: bool) -> DrawnRound:
        start = perf_counter()
        entropy, cohort = self._round_entropy(round), self.plan.cohort.roster
        sampled = draw_cohort(cohort.sampling, cohort.population, cohort.expected, entropy)
        here = sampled[poisson(len(sampled), 1 - Fraction(self.dropout_rate), entropy)]
        self.seconds.sample += perf_counter() - start
        notes = RoundDiagnostics(len(sampled), len(here)) if self.diagnostics else None
        return DrawnRound(round, len(sampled), here, entropy, notes, measure)

    def _sum_and_step(self, drawn: DrawnRound) -> float | None:
        """Sum, move the clip norm, take an optimiser step; the fraction within an adaptive clip norm."""
        total = self._sums.noisy(drawn, self._files.choices, self.seconds, self.clip.joint())
        total, within = self.clip.take(total)
        start = perf_counter()
        check_weights(self.model)  # looked at in every round, so that looking reveals nothing
        set_gradients(self.model, total / self.plan.cohort.divisor)
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        self.seconds.optimizer += perf_counter() - start
        return within

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

    def _load(self) -> None:
        self.history = self._files.load(self.model, self.optimizer, self.scheduler)
        for record in self.history:
            self.clip.replay(record.clip_norm, record.within)
        notes = (record.diagnostics for record in self.history)
        self._times = [note.seconds for note in notes if note is not None and note.seconds is not None]

    def _result(self, seconds: float) -> RunResult:
        return RunResult.of(
            self.history,
            replace(self.plan.report, reproducible=not self.private, simulated=self.secure != "protocol"),
            rounds=self.ledger.charged,
            seconds=seconds,
            times=self._times,
            split=self.seconds,
            all_broken=self._sums.vectors.all,
        )
