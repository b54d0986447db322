"""What a run remembers of each round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from skelmix.errors import CorruptState


@dataclass
class RoundDiagnostics:
    """Measurements of one round that no noise protects: for made-up or public data only.

    seconds: how long the round took. broken: participants whose vector was NaN or infinite and was replaced
    by zero. rms_norm, clipped_fraction, wrapped_fraction: of the vectors that were encoded, None when there
    were none. mse: squared error per coordinate of the sum, measured at evaluated rounds, in units of the
    squared clip norm where that is adaptive.

    Example:

        >>> RoundDiagnostics(sampled=240, survivors=238).survivors
        238
    """

    sampled: int
    survivors: int
    seconds: float | None = None
    broken: int | None = None
    rms_norm: float | None = None
    clipped_fraction: float | None = None
    wrapped_fraction: float | None = None
    mse: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """What was measured, marked as not private."""
        return {"private": False} | _measured(self)


@dataclass
class RoundRecord:
    """One round of a run; rounds count from 1.

    opened: whether the round gave a sum. lost: it was interrupted, and nothing is left of it here. accuracy:
    where `evaluate` was called after the round, otherwise None. clip_norm, within: with an adaptive clip, the
    round's clip norm, and the released estimate of the fraction of vectors that were within it. diagnostics:
    None unless asked for.

    Example:

        >>> RoundRecord(round=1, opened=True, accuracy=0.93).to_dict()
        {'round': 1, 'opened': True, 'accuracy': 0.93}
    """

    round: int
    opened: bool = False
    lost: bool = False
    accuracy: float | None = None
    clip_norm: float | None = None
    within: float | None = None
    diagnostics: RoundDiagnostics | None = None

    def to_dict(self) -> dict[str, Any]:
        """The record as plain data, as checkpoints keep it; `from_dict` reads it."""
        data = _measured(self)
        if not self.lost:
            del data["lost"]
        return data if self.diagnostics is None else data | {"diagnostics": self.diagnostics.to_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read a record of a checkpoint. Other content raises `CorruptState`."""
        try:
            record = cls(**data)
            if data.get("diagnostics") is not None:
                notes = {name: value for name, value in data["diagnostics"].items() if name != "private"}
                record.diagnostics = RoundDiagnostics(**notes)
        except (TypeError, AttributeError) as error:
            raise CorruptState(
                f"the checkpoint is of another version: its record of a round has other fields ({error}); "
                "resume the run with the version of skelmix that began it"
            ) from error
        return record


def _measured(record: RoundRecord | RoundDiagnostics) -> dict[str, Any]:
    """The fields that have a value."""
    return {name: value for name, value in vars(record).items() if value is not None}
