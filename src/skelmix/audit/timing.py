"""Whether the sampler's running time reveals what it drew: the side channel, measured.

The sampler looks 16 uniform bits up in a table; a few entries (sentinels) need more bits and a search.
Batches whose time is known are sorted by a property of their output, and the two halves are compared.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu

from skelmix.noise.entropy import system_entropy
from skelmix.noise.laws import Skellam
from skelmix.noise.table import sampler
from skelmix.validation import whole


@dataclass(frozen=True)
class Dependence:
    """Times of the batches in the upper half of a property against the lower half.

    difference: relative difference of the medians. p_value: of Mann and Whitney's test that the two halves
    have the same law of times; small means that an observer of time learns about the output.
    """

    property: str
    difference: float
    p_value: float


@dataclass(frozen=True)
class Timing:
    law: str
    samples: int
    batches: int
    seconds: float
    dependences: tuple[Dependence, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(rate: float = 60.0, samples: int = 4096, batches: int = 4000) -> Timing:
    """Draw batches of Sk(rate, rate), time each, and test whether the time reveals anything about the output.

    Tested are the sum, the sum of squares, and the number of values in the tails (beyond three deviations),
    where sentinels are.

    `seconds` is the median time of a batch. At least one sample per batch and eight batches, else
    `InvalidInput`.
    """
    whole(1, samples=samples)
    whole(8, batches=batches)
    law = Skellam(rate)
    draws, source = sampler(law), system_entropy()
    out = np.empty(samples, draws.sample(1).dtype)
    seconds = np.empty(batches)
    seen = np.empty((3, batches))
    edge = 3 * law.variance**0.5
    for _ in range(50):
        draws.sample(samples, out=out, entropy=source)
    for batch in range(batches):
        start = time.perf_counter_ns()
        draws.sample(samples, out=out, entropy=source)
        seconds[batch] = (time.perf_counter_ns() - start) * 1e-9
        values = out.astype(np.int64)
        seen[:, batch] = values.sum(), (values * values).sum(), np.count_nonzero(np.abs(values) > edge)
    names = ("sum", "sum of squares", "values in the tails")
    dependences = tuple(_dependence(name, row, seconds) for name, row in zip(names, seen, strict=True))
    return Timing(f"Sk({rate:g}, {rate:g})", samples, batches, float(np.median(seconds)), dependences)


def _dependence(name: str, seen: np.ndarray, seconds: np.ndarray) -> Dependence:
    order = np.argsort(seen, kind="stable")
    low, high = seconds[order[: len(order) // 2]], seconds[order[len(order) // 2 :]]
    difference = float(np.median(high) / np.median(low) - 1)
    return Dependence(name, difference, float(mannwhitneyu(high, low).pvalue))
