"""What the paper says about a figure, each sentence judged by the numbers just measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Claim:
    """One sentence and its verdict. holds: None when the rows that it needs were not measured."""

    text: str
    source: str
    holds: bool | None
    numbers: str

    @property
    def verdict(self) -> str:
        return "not measured" if self.holds is None else "holds" if self.holds else "does not hold"

    def to_dict(self) -> dict[str, Any]:
        return {"claim": self.text, "source": self.source, "holds": self.holds, "numbers": self.numbers}


def judged(text: str, source: str, findings: Sequence[tuple[str, float, bool]], quantity: str) -> Claim:
    """A claim that must be true in every case.

    findings: (case, the number that decides, whether it is true there). The numbers given are the range over
    all cases, and the cases that break the claim.
    """
    if not findings:
        return Claim(text, source, None, "no rows")
    numbers = [number for _, number, _ in findings]
    summary = f"{quantity}: {min(numbers):.4g} to {max(numbers):.4g} over {len(findings)} cases"
    broken = [f"{case}: {number:.4g}" for case, number, fine in findings if not fine]
    if broken:
        rest = f", and {len(broken) - 3} more" if len(broken) > 3 else ""
        summary += f"; broken in {len(broken)}: " + ", ".join(broken[:3]) + rest
    return Claim(text, source, not broken, summary)
