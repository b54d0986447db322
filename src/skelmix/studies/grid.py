"""A small table that prints to a terminal and to Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Grid:
    """Title, column names, and rows of text; the first column is left-aligned."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def rich(self) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(
            title=self.title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False
        )
        for place, column in enumerate(self.columns):
            table.add_column(column, justify="right" if place else "left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        head = "| " + " | ".join(self.columns) + " |"
        rule = "|" + "|".join("---" if place == 0 else "---:" for place in range(len(self.columns))) + "|"
        body = ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([f"**{self.title}**", "", head, rule, *body])


def number(value: Any, digits: int = 4) -> str:
    """A number for a table; a dash for what is missing or not finite."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}g}"
