"""How often the intervals cover the truth, over simulated releases: with Gaussian noise of known size, or
through the mechanism itself, as planned for ε = 1.

The tests release every kind at once 10,000 times through the mechanism, and each question by itself less
often. All of it: `python tests/helpers/interval_coverage.py --releases 10000 [--mechanism]`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skelmix.planning import PrivacyTarget
from skelmix.statistics.accumulate import Accumulator
from skelmix.statistics.estimates import Estimator, Precision
from skelmix.statistics.intervals import Estimate
from skelmix.statistics.layout import Layout
from skelmix.statistics.parsing import parse_question
from skelmix.statistics.sizing import Parties, plan_statistics

RADIUS = 1 << 34
FINE = "0..60 by 0.01"

# kind -> (question, standard deviation of the noise in units of the clip norm)
KINDS = {
    "count": ("count; mean(age, 0..110)", 3.0),
    "sum": ("sum(age, 0..110); sum(stay, 0..60)", 3.0),
    "mean": ("mean(age, 0..110); mean(stay, 0..60)", 3.0),
    "mean of few records": ("mean(age, 0..110); mean(stay, 0..60)", 1000.0),
    "variance": ("variance(age, 0..110); variance(stay, 0..60)", 3.0),
    "histogram": ("histogram(diagnosis: A|B|C); histogram(age: 0..110 by 22); count; mean(age)", 3.0),
    "crosstab": ("crosstab(diagnosis: A|B|C, sex: F|M); histogram(diagnosis); histogram(sex); count", 3.0),
    "top": ("top(diagnosis: A|B|C|D|E|F; 6)", 3.0),
    "quantiles": (f"quantiles(stay, {FINE}; 0.25 0.5 0.75)", 0.5),
    # where the count of all records serves the columns, too
    "sum beside a mean and count": ("count; sum(age, 0..110); mean(age); sum(stay, 0..60)", 3.0),
    "mean beside a count": ("count; mean(age, 0..110); mean(stay, 0..60)", 3.0),
    "variance beside a count": ("count; variance(age, 0..110); histogram(age: 0..110 by 22)", 3.0),
    "quantiles beside a count": (f"count; quantiles(stay, {FINE}; 0.25 0.5 0.75)", 0.5),
}

EVERY_KIND = (
    "count; sum(stay, 0..60); mean(age, 0..110); variance(stay, 0..60); histogram(diagnosis: A|B|C|D|E|F); "
    "crosstab(diagnosis, sex: F|M); quantiles(stay, 0..60 by 0.02; 0.5); top(diagnosis; 6)"
)


def population(records: int = 4_000) -> Any:
    """Records whose truth is known: positive counts in every cell, values between the bins' edges.

    One age in ten is missing.
    """
    generator = np.random.default_rng(7)
    names = np.array(list("ABCDEFX"))
    ages = generator.integers(18, 95, records).astype(np.float64)
    ages[::10] = np.nan
    return pa.record_batch(
        {
            "age": ages,
            "stay": generator.uniform(0, 60, records),
            "diagnosis": names[generator.choice(7, records, p=[0.3, 0.2, 0.15, 0.1, 0.1, 0.1, 0.05])],
            "sex": np.array(["F", "M", "?"])[generator.choice(3, records, p=[0.5, 0.4, 0.1])],
        }
    )


def truths(batch: Any, layout: Layout) -> list[Any]:
    """The true answer to every number of every query, by plain NumPy, keyed as the answers are."""
    data = {name: np.array(batch.column(name).to_pylist()) for name in batch.schema.names}
    return [_truth(query, data, len(batch)) for query in layout.question.queries]


def _cells(axis: Any, values: Any) -> NDArray[Any]:
    domain = axis.domain
    if hasattr(domain, "names"):
        return np.array([value if value in domain.names else "other" for value in values])
    last = domain.count - 1
    found = [min(np.searchsorted(domain.edges, v, "right") - 1, last) for v in values]
    return np.where(np.isnan(values), "missing", np.array([domain.labels[place] for place in found]))


def _truth(query: Any, data: dict[str, NDArray[Any]], records: int) -> Any:
    kind = type(query).__name__
    if kind == "Count":
        return records
    if kind in ("Sum", "Mean", "Variance"):
        clamped = np.clip(data[query.column], query.bounds.low, query.bounds.high)
        present = clamped[~np.isnan(clamped)]
        return {"Sum": present.sum, "Mean": present.mean, "Variance": present.var}[kind]()
    if kind == "CrossTable":
        one, two = (
            _cells(query.first, data[query.first.column]),
            _cells(query.second, data[query.second.column]),
        )
        return {
            a: {b: int(((one == a) & (two == b)).sum()) for b in query.second.domain.labels}
            for a in query.first.domain.labels
        }
    if kind == "Quantiles":
        values = data[query.column]
        return {f"{p:g}": np.quantile(values, p, method="inverted_cdf") for p in query.probabilities}
    cells = _cells(query.axis, data[query.axis.column])
    return {label: int((cells == label).sum()) for label in query.axis.domain.labels}


def covered(estimates: Any, truth: Any) -> list[bool]:
    """Whether each interval holds its truth, as a list."""
    if isinstance(estimates, Estimate):
        return [estimates.low <= truth <= estimates.high]
    return [hit for label, inner in estimates.items() for hit in covered(inner, truth[label])]


def coverage(kind: str, releases: int, *, wrong_noise: float = 1.0, seed: int = 1) -> list[list[bool]]:
    """For each release, which intervals of the kind's queries held the truth; a joint claim is one of them.

    wrong_noise: the noise that is added is that many times as large as the estimator believes.
    """
    question, deviation = KINDS[kind]
    layout = Layout(parse_question(question))
    batch = population()
    accumulator = Accumulator(layout, RADIUS)
    accumulator.add(batch)
    total, truth = accumulator.total() / RADIUS, truths(batch, layout)
    estimator = Estimator(layout, Precision(deviation), radius=RADIUS)
    generator = np.random.default_rng(seed)
    wanted = _query_of(kind)
    return [
        _hits(
            estimator.answers(total + generator.normal(0, deviation * wrong_noise, layout.dimension)), truth
        )[wanted]
        for _ in range(releases)
    ]


def _query_of(kind: str) -> str:
    """The class of the queries that a kind is about."""
    name = kind.replace("crosstab", "cross table").partition(" beside")[0].partition(" of")[0]
    return name.title().replace(" ", "")


def _hits(answers: Any, truth: list[Any]) -> dict[str, list[bool]]:
    """By class of query, which intervals hold the truth; a joint claim is one of them."""
    hits: dict[str, list[bool]] = {}
    for answer, value in zip(answers, truth, strict=True):
        found = covered(answer.estimates, value)
        hits.setdefault(type(answer.query).__name__, []).extend([all(found)] if answer.joint else found)
    return hits


def mechanism_coverage(
    text: str, releases: int, *, records: int = 4_000, shares: int = 2
) -> list[dict[str, list[bool]]]:
    """For each release, by class of query, which intervals held the truth.

    Two parties' sums are rounded, noised, wrapped and decoded by the planned mechanism. shares: by how many
    parties the noise is divided: 2 is right, 1 gives twice the variance.
    """
    planned = plan_statistics(parse_question(text), PrivacyTarget(1.0, 1e-6), Parties(2, records))
    mechanism, layout, batch = planned.mechanism, planned.layout, population(records)
    vectors = []
    for part in (batch.slice(0, records // 4), batch.slice(records // 4)):
        accumulator = Accumulator(layout, planned.radius)
        accumulator.add(part)
        vectors.append(accumulator.total())
    truth, seen = truths(batch, layout), []
    for _ in range(releases):
        silos = [mechanism.silo_sum(round=0) for _ in vectors]
        for silo, vector in zip(silos, vectors, strict=True):
            silo.add_units(vector, 0)
        decoded = mechanism.decode(mechanism.encode_silos(silos, shares=shares), round=0)
        seen.append(_hits(planned.estimator.answers(decoded * planned.decoded_unit), truth))
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=10_000)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--mechanism", action="store_true", help="noise of the mechanism itself")
    options = parser.parse_args()
    for kind in options.kinds:
        start = time.perf_counter()
        if options.mechanism:
            released = mechanism_coverage(KINDS[kind][0], options.releases)
            hits = np.array([release[_query_of(kind)] for release in released])
        else:
            hits = np.array(coverage(kind, options.releases))
        _print(kind, hits, time.perf_counter() - start)
    if options.mechanism:
        start = time.perf_counter()
        released = mechanism_coverage(EVERY_KIND, options.releases, records=40_000)
        for query in released[0]:
            hits = np.array([release[query] for release in released])
            _print(f"{query}, all kinds at once", hits, time.perf_counter() - start)


def _print(label: str, hits: NDArray[Any], seconds: float) -> None:
    each = " ".join(f"{100 * share:.1f}" for share in hits.mean(axis=0))
    print(f"{label:<28} {100 * hits.mean():6.2f} % of {hits.size} intervals, {seconds:.0f} s; each: {each}")


if __name__ == "__main__":
    main()
