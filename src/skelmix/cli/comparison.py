"""The comparison of mechanisms and rates that `skelmix plan --compare` prints: aligned rows with bars."""

from __future__ import annotations

import math
from typing import Any

from skelmix.display import card_text

_BAR = 14  # columns
_MOST_LINEAR = 10.0  # bars are logarithmic if the longest is more than this many times the shortest

Row = dict[str, Any]


def comparison_text(rows: list[Row], rates: list[Row]) -> str:
    """Two tables with bars, of all mechanisms and of one over rates; then why some have no plan."""
    able = sorted((row for row in rows if "error" not in row), key=relative)
    over_rates = [row for row in rates if "error" not in row]
    without = [(row["mechanism"], row["error"]) for row in rows if "error" in row]
    without += [(f"rate {row['asked_rate']:g}", row["error"]) for row in rates if "error" in row]
    title = "Squared error of the sum, over the central Gaussian's"
    return "\n".join(
        [
            *_table(title, able),
            "",
            *_table("The same over rates", over_rates),
            *([""] if without else []),
            *_reasons(without),
        ]
    )


def _reasons(without: list[tuple[str, str]]) -> list[str]:
    """Why some have no plan: each reason once, after the names of all that it holds for."""
    names: dict[str, list[str]] = {}
    for name, reason in without:
        names.setdefault(reason, []).append(name)
    return [card_text(f"{', '.join(those)}: {reason}", ()) for reason, those in names.items()]


def relative(row: Row) -> float:
    """The error of a plan's sum as a multiple of the central Gaussian's."""
    return float(row["predicted"]["effective_mse"]) / float(row["central_gaussian_mse"])


def _table(title: str, rows: list[Row]) -> list[str]:
    if not rows:
        return [title, "  none has a plan"]
    largest = max(map(relative, rows))
    scale = " (bars are logarithmic)" if largest > _MOST_LINEAR else ""
    head = f"  {'mechanism':<10}{'bound':<12}{'bits/weight':>11}{'bytes':>12}{'wraps':>8}{'error':>8}"
    lines = [title + scale, head]
    for row in rows:
        error = relative(row)
        wraps = row["predicted"]["wrap_probability"]
        lines.append(
            f"  {row['mechanism']:<10}{row['bound']:<12}{row['rate']:>11.3g}{row['upload_bytes']:>12,}"
            f"{wraps:>8.1g}{error:>8.4g}  {_bar(error, largest)}".rstrip()
        )
    return lines


def _bar(error: float, largest: float) -> str:
    """A bar as long as the error, in eighths of a column; the longest one fills the line."""
    part = error / largest
    if largest > _MOST_LINEAR:
        part = (1 + math.log(max(error, 1.0))) / (1 + math.log(largest))
    eighths = max(1, round(8 * _BAR * part))
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
