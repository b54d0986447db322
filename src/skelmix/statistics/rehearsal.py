"""Answer a question from made-up records, so that the real answer finds every kernel compiled.

The first answer on a machine compiles for many seconds, and how long depends on what the file needs: less
where it is empty or cannot be read. Here that time is spent before the file is opened, and depends on the
question alone.
"""

from __future__ import annotations

import csv
from pathlib import Path
from tempfile import TemporaryDirectory

from skelmix.mechanisms import SiloSum
from skelmix.mechanisms.silo import summing_records
from skelmix.planning.plans import Plan
from skelmix.statistics.asked import Asked

_TABLES = (("1",), ("1", "?"))  # numba compiles for columns with a missing value once more


def rehearse(asked: Asked, plan: Plan, directory: Path) -> None:
    """Compute an answer, and forget it. The made-up tables are in `directory` for that time.

    Example: `rehearse(asked_from_text(text), plan, policy.state)`.
    """
    mechanism, roster = summing_records(plan.mechanism), plan.cohort.roster
    for silo in _sums(asked, plan, directory):
        mechanism.encode_silo(silo, shares=roster.encoding_shares(mechanism.total_noise, roster.expected))


def _sums(asked: Asked, plan: Plan, directory: Path) -> list[SiloSum]:
    owner = None if asked.owners is None else asked.owners.column
    columns = list(dict.fromkeys(column for column, _ in sorted(asked.uses) if column != owner and column))
    header = columns + ([owner] if owner is not None else [])
    sums = []
    with TemporaryDirectory(dir=directory) as home:
        for cells in _TABLES:
            path = Path(home) / f"{len(cells)}.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                rows = csv.writer(file, lineterminator="\n")
                rows.writerow(header or ["record"])  # `count` alone names no column
                for number, cell in enumerate(cells):
                    own = [f"owner-{number}"] if owner is not None else []
                    rows.writerow([cell] * len(columns) + own or [cell])
            sums.append(asked.sum_of_file(path, plan.mechanism)[0])
    return sums
