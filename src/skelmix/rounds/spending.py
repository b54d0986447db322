"""A data owner's record, on its own disk, of the privacy budget spent over all questions and runs.

ε and δ of one question after another add up (basic composition), also when a question was chosen in the light
of earlier answers. A charge is on disk before the data is read.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from skelmix.errors import BudgetExhausted, CorruptState
from skelmix.rounds.files import storing, write_atomically
from skelmix.rounds.ledger import CHAIN_START, chained_line, read_chained
from skelmix.rounds.locks import waited_lock
from skelmix.validation import non_negative, positive

_HEADER = {"kind": "spending"}
_REMEDY = "restore it from a backup, and lower the budget by what was spent since that was made"


@dataclass(frozen=True)
class Charge:
    """What one answer cost. purpose: what it was for, for the eyes of the ledger's owner."""

    epsilon: float
    delta: float
    purpose: str

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon)
        non_negative(delta=self.delta)


@dataclass(frozen=True)
class Budget:
    """The most that all charges together may cost."""

    epsilon: float
    delta: float

    def allows(self, charges: tuple[Charge, ...]) -> bool:
        """Whether the charges' sums, in exact arithmetic, stay within the budget."""
        epsilon = sum(Fraction(charge.epsilon) for charge in charges)
        delta = sum(Fraction(charge.delta) for charge in charges)
        return epsilon <= Fraction(self.epsilon) and delta <= Fraction(self.delta)


class SpendingLedger:
    """All charges ever made to one budget, in one file that is replaced as a whole; one writer at a time.

    A file that was damaged raises `CorruptState`, one that cannot be written `StorageFailed`: nothing is
    answered then.

    Example:

        >>> import tempfile
        >>> ledger = SpendingLedger(Path(tempfile.mkdtemp()) / "spent.jsonl")
        >>> ledger.charge(Charge(1.0, 1e-6, "count"), Budget(1.5, 1e-5))
        >>> [charge.epsilon for charge in ledger.charges()]
        [1.0]
        >>> ledger.charge(Charge(1.0, 1e-6, "count"), Budget(1.5, 1e-5))
        Traceback (most recent call last):
        ...
        skelmix.errors.BudgetExhausted: ...
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()

    def charges(self) -> tuple[Charge, ...]:
        """What was charged so far, oldest first."""
        return tuple(_charge(content, self._path) for content in self._read()[0])

    def check(self, charge: Charge, budget: Budget) -> None:
        """Raise `BudgetExhausted` if the charge would exceed the budget; nothing is written."""
        if not budget.allows((*self.charges(), charge)):
            raise BudgetExhausted(
                f"ε = {charge.epsilon:.4g}, δ = {charge.delta:.3g} are more than is left of the budget of "
                f"ε = {budget.epsilon:g}, δ = {budget.delta:g}"
            )

    def charge(self, charge: Charge, budget: Budget) -> None:
        """Record a charge; returns only when it is on disk. `BudgetExhausted` if it is too much."""
        with storing(self._path):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with waited_lock(self._path.with_name(self._path.name + ".lock"), subject=self._path):
            self.check(charge, budget)
            _, lines, head = self._read()
            if not lines:
                line, head = chained_line(head, _HEADER)
                lines = [line]
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            line, _ = chained_line(head, asdict(charge) | {"time": when})
            write_atomically(self._path, b"".join([*lines, line]))

    def _read(self) -> tuple[list[dict[str, Any]], list[bytes], str]:
        """The content of each charge, all lines as they stand, and the digest of the last one."""
        try:
            lines = self._path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return [], [], CHAIN_START
        except OSError as error:
            raise CorruptState(
                f"{self._path} cannot be read ({error.strerror}): correct its rights"
            ) from error
        entries, head = [], CHAIN_START
        for number, line in enumerate(lines):
            parsed = read_chained(line, head)
            if parsed is None or (number == 0 and not _HEADER.items() <= parsed[0].items()):
                raise CorruptState(
                    f"{self._path} is damaged at line {number + 1}: what was spent is unknown; {_REMEDY}"
                )
            content, head = parsed
            entries.append(content)
        if not entries:
            raise CorruptState(f"{self._path} is empty: what was spent is unknown; {_REMEDY}")
        return entries[1:], lines, head


def _charge(content: dict[str, Any], path: Path) -> Charge:
    try:
        return Charge(content["epsilon"], content["delta"], content["purpose"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptState(f"{path} holds a charge that cannot be read: {_REMEDY}") from error
