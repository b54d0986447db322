"""Twenty queries on ten million records of five parties, beside the same answers without privacy.

A whole release, streamed from Parquet (exact sums, noise, secure aggregation, estimates), against reading the
same columns with pyarrow and computing the true answers with NumPy. Both run in turn on the same files, on
all cores. The plan, made before any data is read, is timed apart.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from skelmix.planning import PrivacyTarget
from skelmix.statistics import Answers, Parties, Question, StatisticsPlan, parse_question, plan_statistics
from skelmix.statistics.arrow import pyarrow
from skelmix.statistics.releases import release
from skelmix.validation import whole

PARTIES = 5
DIAGNOSES = tuple(f"D{k:02d}" for k in range(20))
REGIONS = ("north", "south", "east", "west")
NAMES = {"diagnosis": DIAGNOSES, "sex": ("F", "M"), "region": REGIONS}
ASK = f"""
count
mean(age, 0..110); variance(age); histogram(age: 0..110 by 10); quantiles(age, 0..110 by 1; 0.1 0.5 0.9)
mean(stay, 0..60); variance(stay); quantiles(stay, 0..60 by 0.5; 0.25 0.5 0.75)
sum(cost, 0..10000); mean(cost); variance(cost); quantiles(cost, 0..10000 by 50; 0.5 0.9)
mean(bmi, 10..60); histogram(bmi: 10..60 by 2)
mean(visits, 0..20); histogram(visits: 0..20 by 1)
histogram(diagnosis: {"|".join(DIAGNOSES)}); top(diagnosis; 5)
crosstab(diagnosis, sex: F|M); crosstab(diagnosis, region: {"|".join(REGIONS)})
"""


def make_files(directory: Path, records: int) -> list[Path]:
    """Made-up records, one Parquet file per party."""
    pa = pyarrow()
    generator = np.random.default_rng(1)  # public test data
    count = records // PARTIES
    paths = []
    for party in range(PARTIES):
        names = {
            name: np.array(values)[generator.integers(0, len(values), count)]
            for name, values in NAMES.items()
        }
        numbers = {
            "age": generator.integers(0, 105, count).astype(np.int16),
            "stay": generator.gamma(2, 4, count).astype(np.float32),
            "cost": generator.gamma(2, 900, count),
            "bmi": generator.normal(26, 5, count),
            "visits": generator.poisson(3, count).astype(np.int32),
        }
        paths.append(directory / f"party-{party}.parquet")
        pa.parquet.write_table(pa.table(numbers | names), paths[-1], row_group_size=1 << 19)
    return paths


def private_answers(files: list[Path], planned: StatisticsPlan) -> Answers:
    """The release: one party after the other."""
    return release(files, planned)


def true_answers(files: list[Path], planned: StatisticsPlan) -> list[Any]:
    """The same answers as one would compute them without privacy, all records in memory."""
    columns = _columns(files, planned.question)
    age, stay, cost = (
        np.clip(columns[name], 0, high) for name, high in (("age", 110), ("stay", 60), ("cost", 10_000))
    )
    bmi, visits = np.clip(columns["bmi"], 10, 60), np.clip(columns["visits"], 0, 20)
    diagnosis, sex, region = (columns[name] for name in NAMES)
    frequency = np.bincount(diagnosis, minlength=20)
    return [
        len(age),
        age.mean(), age.var(), np.histogram(age, np.arange(0, 111, 10))[0], np.quantile(age, [0.1, 0.5, 0.9]),
        stay.mean(), stay.var(), np.quantile(stay, [0.25, 0.5, 0.75]),
        cost.sum(), cost.mean(), cost.var(), np.quantile(cost, [0.5, 0.9]),
        bmi.mean(), np.histogram(bmi, np.arange(10, 61, 2))[0],
        visits.mean(), np.histogram(visits, np.arange(21))[0],
        frequency, np.argsort(-frequency)[:5],
        np.bincount(diagnosis * 2 + sex, minlength=40), np.bincount(diagnosis * 4 + region, minlength=80),
    ]  # fmt: skip


def _columns(files: list[Path], question: Question) -> dict[str, NDArray[Any]]:
    pa = pyarrow()
    pieces: dict[str, list[NDArray[Any]]] = {name: [] for name in question.columns}
    for path in files:
        table = pa.parquet.read_table(path, columns=list(pieces), read_dictionary=list(NAMES))
        for name, parts in pieces.items():
            column = table[name]
            if name in NAMES:
                column = column.unify_dictionaries().combine_chunks()
                codes = np.array([NAMES[name].index(value) for value in column.dictionary.to_pylist()])
                parts.append(codes[column.indices.to_numpy()])
            else:
                parts.append(column.combine_chunks().to_numpy())
    return {name: np.concatenate(parts) for name, parts in pieces.items()}


def run(records: int = 10_000_000, repeats: int = 3) -> dict[str, Any]:
    """Seconds of both, the median of `repeats` runs in turn after one on a small table to compile."""
    whole(PARTIES * 100, records=records)
    question = parse_question(ASK)
    start = time.perf_counter()
    planned = plan_statistics(question, PrivacyTarget(1.0, 1e-8), Parties(PARTIES, records))
    planning = time.perf_counter() - start
    seconds: dict[str, list[float]] = {"skelmix": [], "numpy": []}
    with tempfile.TemporaryDirectory() as name:
        small = Path(name) / "small"
        small.mkdir()
        private_answers(make_files(small, PARTIES * 100), planned)
        files = make_files(Path(name), records)
        for _ in range(repeats):
            for label, job in (("skelmix", private_answers), ("numpy", true_answers)):
                start = time.perf_counter()
                job(files, planned)
                seconds[label].append(time.perf_counter() - start)
    middle = {label: statistics.median(runs) for label, runs in seconds.items()}
    return {
        "records": records,
        "queries": len(question.queries),
        "seconds": middle,
        "all_seconds": seconds,
        "plan_seconds": planning,
        "ratio": middle["skelmix"] / middle["numpy"],
    }


def table(result: dict[str, Any]) -> Table:
    """One line per way."""
    rows = Table(title=f"{result['queries']} queries, {result['records']:,} records, {PARTIES} parties")
    for heading in ("", "seconds", "times NumPy"):
        rows.add_column(heading, justify="right" if heading else "left")
    base = result["seconds"]["numpy"]
    labels = {"skelmix": "private answers, streamed", "numpy": "true answers, pyarrow and NumPy"}
    for label, text in labels.items():
        seconds = result["seconds"][label]
        rows.add_row(text, f"{seconds:.2f}", f"{seconds / base:.2f}")
    return rows
