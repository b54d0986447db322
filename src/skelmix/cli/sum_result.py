"""What `skelmix sum` shows and writes: sums with their errors, and a look at the owner's own rows."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from skelmix.arrays import FloatArray
from skelmix.rounds.files import write_atomically
from skelmix.wording import beside_error, counted, figure

if TYPE_CHECKING:
    from skelmix.planning import Plan
    from skelmix.rounds.summation import PrivateSum

_MOST_SHOWN = 100  # coordinates in the table

UNPROTECTED = (
    "NOT PRIVATE: computed from the rows without noise, for the owner of the file; nothing was released. A "
    "clip norm that is chosen by this table depends on the rows, which ε does not count: prefer one that is "
    "known beforehand, and use this table to see whether it is far off."
)


def table(estimate: FloatArray, deviation: float, names: Sequence[str] | None, *, mean: bool) -> str:
    """One line per coordinate: its name or number, the estimate, and one standard deviation of its error."""
    labels = list(names or map(str, range(1, len(estimate) + 1)))[:_MOST_SHOWN]
    values = [beside_error(float(value), deviation) for value in estimate[:_MOST_SHOWN]]
    error = beside_error(deviation, deviation)
    first, second = "column" if names else "coordinate", "mean" if mean else "sum"
    left = max(map(len, [first, *labels])) + 2
    middle, right = max(map(len, [second, *values])) + 2, len(error) + 2
    lines = [f"{first:<{left}}{second:>{middle}}{'±':>{right}}"]
    lines += [
        f"{label:<{left}}{value:>{middle}}{error:>{right}}"
        for label, value in zip(labels, values, strict=True)
    ]
    if len(estimate) > _MOST_SHOWN:  # happens with made-up vectors only
        lines.append(f"… and {len(estimate) - _MOST_SHOWN:,} more")
    return "\n".join(lines)


def write(path: Path, estimate: FloatArray, names: Sequence[str] | None) -> None:
    """Write the whole file or nothing: .npy, or .csv with a line of names where there are any."""
    if path.suffix == ".npy":
        binary = io.BytesIO()
        np.save(binary, estimate)
        write_atomically(path, binary.getvalue())
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if names:
        writer.writerow(names)
    writer.writerow([f"{value:.17g}" for value in estimate])
    write_atomically(path, text.getvalue().encode())


def write_report(
    path: Path | None, plan: Plan, result: PrivateSum, payload: dict[str, Any], estimate: FloatArray
) -> None:
    """Write the page about the sum, if one was asked for, and say so in the payload."""
    from skelmix.rounds.total_page import sum_page

    if path is None:
        return
    names = ("mechanism", "bits", "scale", "clip_norm", "dimension", "secure", "participants", "seconds")
    settings = {name: payload[name] for name in names}
    page = sum_page(plan, result, estimate, settings, mean=payload["mean"], columns=payload["columns"])
    write_atomically(path, page.encode())
    payload["report"] = str(path)


def inspect(rows: Iterable[Any]) -> tuple[dict[str, Any], str]:
    """What each of some round clip norms would do to the rows: plain data, and a table in words."""
    norms = np.fromiter((float(np.linalg.norm(row)) for row in rows), np.float64)
    total = float(norms.sum())
    table = []
    for norm in _round_norms(float(np.median(norms)), float(norms.max())):
        shortened = int((norms > norm).sum())
        kept = float(np.minimum(norms, norm).sum()) / total if total else 1.0
        table.append(
            {
                "clip_norm": norm,
                "rows_shortened": shortened,
                "share": shortened / len(norms),
                "length_kept": kept,
            }
        )
    lines = [UNPROTECTED, "", counted(len(norms), "row"), "clip norm      rows shortened    length kept"]
    lines += [
        f"{row['clip_norm']:>9,g}   {row['rows_shortened']:>8,} ({row['share']:>6.1%})"
        f"   {row['length_kept']:>12.1%}"
        for row in table
    ]
    payload = {"rows": len(norms), "inspect": table, "private": False, "statement": UNPROTECTED}
    return payload, "\n".join(lines)


def _round_norms(middle: float, largest: float) -> list[float]:
    """Round numbers (1, 2, 5 times powers of ten) from below the middle to one that shortens nothing."""
    if largest == 0:
        return [1.0]
    low = math.floor(math.log10(max(middle, largest * 1e-6))) - 1
    steps = [digit * 10.0**power for power in range(low, low + 12) for digit in (1, 2, 5)]
    last = next(place for place, step in enumerate(steps) if step >= largest)
    first = max(0, next(place for place, step in enumerate(steps) if step >= middle) - 2)
    return [float(f"{step:.1g}") for step in steps[first : last + 1]]


def notes(payload: dict[str, Any]) -> str:
    """What a reader of the table should know."""
    lines = ["±           one standard deviation of the error; about 95 % are within twice that"]
    if "mse" in payload:
        ratio = payload["mse"] / payload["predicted"]["mse"]
        lines.append(
            f"measured    {payload['mse']:.4g} mean squared error of the sum, {ratio:.3f} times predicted"
        )
    else:
        norm = figure(payload["clip_norm"])
        lines.append(f"clip norm   rows longer than {norm} were shortened; what that took is not in ±")
    lines += [f"wrote       {payload[name]}" for name in ("output", "report") if name in payload]
    lines.append(f"seconds     {payload['seconds']:.2f}")
    return "\n".join(lines)
