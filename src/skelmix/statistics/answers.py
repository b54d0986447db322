"""Answers as a person or a program reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skelmix.statistics.intervals import Estimate
from skelmix.statistics.queries import Query
from skelmix.wording import beside_error

Estimates = Estimate | Mapping[str, "Estimates"]


@dataclass(frozen=True)
class Answer:
    """The answer to one query: an estimate, or estimates by category, bin, probability or pair of cells.

    joint: the intervals hold together, all at once, as often as stated; otherwise each one by itself.

    Example: `answers.answers[0].estimates`, an `Estimate` or a dictionary of them.
    """

    query: Query
    estimates: Estimates
    joint: bool = False

    def to_json(self) -> dict[str, Any]:
        """The answer as plain data: query, value, standard_error, low, high, joint.

        Where there are several numbers, objects by category.
        """
        parts = ("value", "standard_error", "low", "high")
        values = {part: _part(self.estimates, part) for part in parts}
        return {"query": str(self.query), **values, "joint": self.joint}

    def rows(self) -> Iterator[tuple[str, Estimate]]:
        """(label, estimate) of each number; the label is empty when there is only one."""
        yield from _rows(self.estimates, "")


def _part(estimates: Estimates, name: str) -> Any:
    if isinstance(estimates, Estimate):
        return getattr(estimates, name)
    return {label: _part(inner, name) for label, inner in estimates.items()}


def _rows(estimates: Estimates, label: str) -> Iterator[tuple[str, Estimate]]:
    if isinstance(estimates, Estimate):
        yield label, estimates
        return
    for name, inner in estimates.items():
        yield from _rows(inner, f"{label} x {name}" if label else name)


@dataclass(frozen=True)
class Answers:
    """All answers of one release, with what the release cost.

    Example: `print(answers)`, a table that a person can read.
    """

    epsilon: float
    delta: float
    unit: str
    answers: tuple[Answer, ...]
    level: float = 0.95

    def to_json(self) -> dict[str, Any]:
        """All answers as plain data: {"epsilon", "delta", "unit", "level", "answers": [...]}."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "level": self.level,
            "answers": [answer.to_json() for answer in self.answers],
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of `table_rows`."""
        return ("query", "", "estimate", "± s.e.", f"{100 * self.level:.12g} % interval")

    def table_rows(self) -> Iterator[tuple[str, ...]]:
        """One row per number, as text with the digits that its error makes sensible."""
        for answer in self.answers:
            heading = str(answer.query).partition("(")[0]
            heading += f" {_columns(answer.query)}" if "(" in str(answer.query) else ""
            for label, estimate in answer.rows():
                error = estimate.standard_error
                numbers = (estimate.value, error, estimate.low, estimate.high)
                value, plus_minus, low, high = (beside_error(number, error) for number in numbers)
                yield heading, label, value, plus_minus, f"{low} .. {high}"
                heading = ""

    def table(self) -> str:
        """A table for the terminal: one line per number."""
        lines = [self.columns, *self.table_rows()]
        widths = [max(len(line[place]) for line in lines) for place in range(5)]
        return "\n".join(
            f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}  {e}".rstrip()
            for a, b, c, d, e in lines
        )


def _columns(query: Any) -> str:
    if hasattr(query, "first"):
        return f"{query.first.column} x {query.second.column}"
    return query.axis.column if hasattr(query, "axis") else str(query.column)
