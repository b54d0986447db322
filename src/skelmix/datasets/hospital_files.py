"""Made-up hospital stays, to try out statistics without a real table: no real person is in them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from skelmix.validation import whole

DIAGNOSES = ("A", "B", "C")
HEADER = ("patient", "age", "sex", "diagnosis", "stay")


def hospitals(directory: Path, *, count: int = 5, records: int = 2_000, seed: int = 2013) -> list[Path]:
    """One CSV file per hospital with `records` stays each; the same seed gives the same files.

    Columns: patient (an owner of one or several stays), age in years (now and then missing), sex (F or M),
    diagnosis (A, B, C or a rare other one), stay in days.

    Example: `hospitals(Path("."), count=5)` writes hospital-1.csv to hospital-5.csv.
    """
    whole(1, count=count, records=records)
    directory.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)  # public test data: nothing here is secret
    paths = []
    for hospital in range(count):
        patients = generator.integers(0, max(1, records * 2 // 3), records)
        ages = np.clip(generator.normal(45 + 4 * hospital, 20, records), 0, 105).round().astype(int)
        sexes = np.array(["F", "M"])[generator.integers(0, 2, records)]
        names = np.array([*DIAGNOSES, "rare"])
        diagnoses = names[generator.choice(4, records, p=[0.5, 0.3, 0.17, 0.03])]
        stays = np.minimum(generator.gamma(1.5, 4 + hospital, records), 90).round(1)
        missing = generator.random(records) < 0.01
        path = directory / f"hospital-{hospital + 1}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(HEADER)
            for k in range(records):
                age = "" if missing[k] else str(ages[k])
                rows.writerow([f"h{hospital}-{patients[k]}", age, sexes[k], diagnoses[k], f"{stays[k]:g}"])
        paths.append(path)
    return paths
