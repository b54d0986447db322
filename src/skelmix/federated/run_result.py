"""What a finished run returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from skelmix.errors import InvalidInput, RoundFailed
from skelmix.federated.round_record import RoundRecord
from skelmix.planning import PrivacyReport
from skelmix.rounds.aggregation import Seconds
from skelmix.wording import counted


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    `history` has one `RoundRecord` per round; `private` is False after reproducible randomness.
    failed_rounds gave no sum; lost_rounds were interrupted, with nothing left of them here. all_broken: every
    vector was NaN or infinite and counted as zero; no noise protects this, so no file has it.

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
    history: list[RoundRecord]
    split: Seconds
    all_broken: bool = field(default=False, repr=False)

    @classmethod
    def of(
        cls,
        history: list[RoundRecord],
        report: PrivacyReport,
        *,
        rounds: int,
        seconds: float,
        times: Sequence[float],
        split: Seconds,
        all_broken: bool,
    ) -> Self:
        """The result of the rounds so far; times: how long each took, in seconds."""
        accuracies = [record.accuracy for record in history if record.accuracy is not None]
        notes = [record.diagnostics for record in history if record.diagnostics is not None]
        wrapped = [note.wrapped_fraction for note in notes if note.wrapped_fraction is not None]
        return cls(
            accuracy=accuracies[-1] if accuracies else None,
            report=report,
            rounds=rounds,
            failed_rounds=sum(not record.opened and not record.lost for record in history),
            lost_rounds=sum(record.lost for record in history),
            seconds=seconds,
            seconds_per_round=sum(times) / max(len(times), 1),
            wrapped_fraction=sum(wrapped) / len(wrapped) if wrapped else None,
            private=not report.reproducible,
            history=history,
            split=split,
            all_broken=all_broken,
        )

    def check_learned(self) -> None:
        """Raise where nothing can be learned: `RoundFailed` without any sum, `InvalidInput` if all_broken.

        The latter depends on the data: it is meant for whoever holds all of it, and must not be passed on.
        """
        if self.lost_rounds == self.rounds:
            raise RoundFailed(
                f"all {counted(self.rounds, 'round')} were interrupted before a checkpoint, so the model is "
                "untrained, and the budget is spent; start another run, with a smaller checkpoint_every"
            )
        if not any(record.opened for record in self.history):
            raise RoundFailed(
                f"none of {counted(self.rounds, 'round')} gave a sum, so the model was not trained, and the "
                "budget is spent; plan with a larger dropout_tolerance, or expect fewer dropouts"
            )
        if self.all_broken:
            raise InvalidInput(
                "every vector was NaN or infinite and counted as zero, so the model was moved by noise only, "
                "and the budget is spent; check the records, the model and the loss. This depends on the "
                "data and is not covered by ε: it is for whoever holds all of them"
            )
