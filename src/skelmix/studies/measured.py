"""Accuracy that studies have measured, as the small file that `skelmix explore` draws.

    python -m skelmix.studies.measured results src/skelmix/explore/measured.json

writes it from results/rate.csv (made by `skelmix reproduce rate`); a test compares the two.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from skelmix.studies.drawing import LINES
from skelmix.studies.rows import read

#: of the paper's model and data
_DIMENSION, _PADDED, _POPULATION = 63_610, 65_536, 60_000
_FLOAT_BITS = 32.0
_NAMES = {"smm-rate": "SMM, planned for the rate", "gaussian-pld": "central Gaussian, 32-bit floats"}


def measured_studies(results: Path) -> list[dict[str, Any]]:
    """The studies in a directory of results: settings, and accuracy by bits per weight for each line.

    Accuracy is the mean over seeds, of each line's latest revision only.
    """
    columns, rows = read(results / "rate.csv", ("revision", "dataset", "line", "bits", "rate", "seed"))
    if not columns:
        return []
    of_mnist = [row for row in rows.values() if row["dataset"] == "mnist" and row["accuracy"] is not None]
    lines = []
    for line in sorted({str(row["line"]) for row in of_mnist}, key=list(LINES).index):
        own = [row for row in of_mnist if row["line"] == line]
        latest = max(row["revision"] for row in own)
        by_rate: dict[float, list[float]] = {}
        for row in own:
            if row["revision"] == latest:
                by_rate.setdefault(_rate(row), []).append(row["accuracy"])
        points = [
            {"rate": rate, "accuracy": round(fmean(accuracies), 5), "seeds": len(accuracies)}
            for rate, accuracies in sorted(by_rate.items())
        ]
        lines.append({"name": _NAMES.get(line, LINES[line].label), "points": points})
    first = of_mnist[0]
    return [
        {
            "data": "mnist", "epsilon": first["epsilon"], "delta": first["delta"], "cohort": first["batch"],
            "population": _POPULATION, "rounds": first["rounds"], "dimension": _DIMENSION, "lines": lines,
        }
    ]  # fmt: skip


def _rate(row: dict[str, Any]) -> float:
    """Bits per weight of an upload."""
    if row["rate"] is not None:
        return float(row["rate"])
    return _FLOAT_BITS if row["bits"] is None else round(row["bits"] * _PADDED / _DIMENSION, 4)


def text(results: Path) -> str:
    """The file's content."""
    return json.dumps(measured_studies(results), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(text(Path(sys.argv[1])), encoding="utf-8")
