"""The facts of a privacy card: one list of them feeds the terminal, the report and the planner's page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """One line of a card: what it is about, what is so, and what that rests on.

    note: an explanation or assumption beside the value; may be empty. alarm: this line must not be missed.

    Example:

        >>> str(Fact("ε for observers", "2.999", "who see all that is released"))
        '2.999 (who see all that is released)'
    """

    name: str
    value: str
    note: str = ""
    alarm: bool = False

    def __str__(self) -> str:
        return f"{self.value} ({self.note})" if self.note else self.value


@dataclass(frozen=True)
class Section:
    """Facts under one title; the first section of a card needs none.

    Example: `Section("Not covered", (Fact("groups", "what many have in common"),))`.
    """

    title: str
    facts: tuple[Fact, ...]
