"""The directory of a run: its plan, what it has spent, and the last checkpoint, locked while it is open."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from skelmix.errors import CorruptState, InvalidInput
from skelmix.federated import checkpoint
from skelmix.federated.round_record import RoundRecord
from skelmix.rounds.coin_and_cap import SimulatedChoices
from skelmix.rounds.files import storing, write_atomically
from skelmix.rounds.ledger import Ledger, discard_unused
from skelmix.rounds.locks import FileLock

if TYPE_CHECKING:
    from skelmix.planning import Plan

#: the files that a run writes as it goes on; a new run in the same directory must not find them
_WRITTEN_BY_RUNS = ("checkpoint.pt", "model.pt", "metrics.csv", "privacy.json", "report.html")

Scheduler = torch.optim.lr_scheduler.LRScheduler


class RunDirectory:
    """A run's ledger, its participants' choices and its checkpoints; with path None nothing touches the disk.

    A new run refuses a directory in which a round was charged, and replaces a run in which none was; resuming
    needs the ledger that is there. settings: of the run, kept in config.json.
    """

    def __init__(
        self, path: Path | None, plan: Plan, *, private: bool, resuming: bool, settings: dict[str, Any]
    ) -> None:
        self.path, self._private, self._settings = path, private, settings
        self._lock: FileLock | None = None
        self.ledger = self._open_ledger(plan, resuming)
        try:
            self.choices = SimulatedChoices(
                plan.cohort.roster,
                None if path is None else path / "participations.npy",
                plan_digest=plan.digest(),
                charged=self.ledger.charged,
            )
        except BaseException:
            self.close()
            raise

    def _open_ledger(self, plan: Plan, resuming: bool) -> Ledger:
        if self.path is None:
            return Ledger.for_plan(plan, None, private=self._private)
        for place in (self.path, *self.path.parents):
            if place.exists() and not place.is_dir():
                raise InvalidInput(f"{place} is a file: name a directory for the run")
        with storing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.path / "run.lock", subject=self.path)
        try:
            ledger = self.path / "ledger.jsonl"
            if not resuming:
                self._begin(ledger, plan)
            elif not ledger.exists():
                raise CorruptState(
                    f"{ledger} is missing: what this run has spent is unknown; start another run, elsewhere"
                )
            return Ledger.for_plan(plan, ledger, private=self._private)
        except BaseException:
            self._lock.close()
            raise

    def _begin(self, ledger: Path, plan: Plan) -> None:
        """Start a new run in the directory, unless another run was charged for a round in it."""
        directory = ledger.parent
        if ledger.exists():
            if not discard_unused(ledger):
                raise InvalidInput(
                    f"{directory} holds a run in which rounds were charged: resume it, or choose another "
                    "directory"
                )
            for name in _WRITTEN_BY_RUNS:
                (directory / name).unlink(missing_ok=True)
        elif foreign := [name for name in _WRITTEN_BY_RUNS if (directory / name).exists()]:
            raise InvalidInput(
                f"{directory} holds {foreign[0]}, but no ledger of a run: it would be overwritten; choose "
                "another directory"
            )
        content = json.dumps(self._settings | {"private": self._private}, indent=1)
        write_atomically(directory / "config.json", content.encode())
        write_atomically(directory / "plan.json", plan.to_json().encode())

    def save(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Scheduler | None,
        history: list[RoundRecord],
    ) -> None:
        """Write a checkpoint, and the model by itself; nothing without a directory.

        A closed one raises `CorruptState`.
        """
        if self.path is None:
            return
        if self._lock is None:
            raise CorruptState(f"{self.path} was closed here, and another process may use it: resume the run")
        state = checkpoint.Checkpoint(
            round=self.ledger.charged,
            ledger_head=self.ledger.heads[self.ledger.charged],
            private=self._private,
            model=model.state_dict(),
            optimizer=optimizer.state_dict(),
            scheduler=None if scheduler is None else scheduler.state_dict(),
            history=[record.to_dict() for record in history],
        )
        checkpoint.save(self.path / "checkpoint.pt", state)
        weights = io.BytesIO()
        torch.save(state.model, weights)
        write_atomically(self.path / "model.pt", weights.getvalue())

    def load(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Scheduler | None
    ) -> list[RoundRecord]:
        """Put the last checkpoint into model, optimiser and scheduler; returns the rounds so far.

        Rounds that were charged, and of which nothing is left, are marked as lost.
        """
        state = None if self.path is None else checkpoint.load(self.path / "checkpoint.pt")
        history = []
        if state is not None:
            if state.round > self.ledger.charged or self.ledger.heads[state.round] != state.ledger_head:
                raise CorruptState(
                    f"{self.path}: checkpoint and ledger are of different runs, or ledger lines were removed"
                )
            try:
                model.load_state_dict(state.model)
                optimizer.load_state_dict(state.optimizer)
                if scheduler is not None and state.scheduler is not None:
                    scheduler.load_state_dict(state.scheduler)
            except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise CorruptState(
                    f"{self.path}: the checkpoint is of another model or optimiser: {error}"
                ) from error
            history = [RoundRecord.from_dict(record) for record in state.history]
        lost = range(len(history), self.ledger.charged)
        return history + [RoundRecord(round + 1, lost=True) for round in lost]

    def close(self) -> None:
        """Release the directory."""
        self.ledger.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
