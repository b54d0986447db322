"""Samplers of integer noise side by side, on one thread.

The exact table sampler, NumPy's approximate Poisson difference, the bare keystream of as many bytes (two per
sample, the ceiling of any sampler that reads sixteen bits), the paper's Algorithm 10, the exact discrete
Gaussian of Canonne, Kamath and Steinke at the same variance, and OpenDP and TensorFlow where they are
installed.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.table import Table

from skelmix.noise import paper
from skelmix.noise.entropy import SystemEntropy
from skelmix.noise.laws import Skellam
from skelmix.noise.table import CHUNK, sampler
from skelmix.validation import whole

RATES = (0.25, 1.0, 5.95, 16.0)
_SLOW_SHARE = 10_000  # the slow references draw this much less, at least _SLOW_LEAST, and are scaled
_SLOW_LEAST = 200

Draw = Callable[[int], object]


def _skelmix(rate: float) -> Draw:
    entropy = SystemEntropy()
    exact = sampler(Skellam(rate))
    return lambda count: exact.sample(count, entropy=entropy)


def _keystream(rate: float) -> Draw:
    entropy = SystemEntropy()
    words = np.empty(CHUNK, np.uint16)

    def draw(count: int) -> None:
        for start in range(0, count, CHUNK):
            entropy.fill(words[: count - start])

    return draw


def _numpy(rate: float) -> Draw:
    generator = np.random.default_rng()
    return lambda count: generator.poisson(rate, count) - generator.poisson(rate, count)


def _algorithm_10(rate: float) -> Draw:
    randint = paper.randint_from(SystemEntropy())
    return lambda count: [paper.skellam(rate, randint) for _ in range(count)]


def _cks(rate: float) -> Draw:
    randint = paper.randint_from(SystemEntropy())
    return lambda count: [paper.discrete_gaussian(2 * rate, randint) for _ in range(count)]


def _tensorflow(rate: float) -> Draw:
    import tensorflow as tf

    generator = tf.random.Generator.from_non_deterministic_state()

    def draw(count: int) -> Any:
        return (
            generator.poisson([count], rate, tf.int32) - generator.poisson([count], rate, tf.int32)
        ).numpy()

    return draw


def _opendp(rate: float) -> Draw:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    noise = dp.m.make_gaussian(*space, scale=(2 * rate) ** 0.5)
    return lambda count: noise([0] * count)


# name, law, maker, draws slowly
_SAMPLERS: tuple[tuple[str, str, Callable[[float], Draw], bool], ...] = (
    ("skelmix", "skellam", _skelmix, False),
    ("keystream", "skellam", _keystream, False),
    ("numpy", "skellam", _numpy, False),
    ("algorithm10", "skellam", _algorithm_10, True),
    ("cks", "discrete_gaussian", _cks, True),
    ("tensorflow", "skellam", _tensorflow, False),
    ("opendp", "discrete_gaussian", _opendp, True),
)


def _installed(name: str) -> bool:
    return name not in ("tensorflow", "opendp") or importlib.util.find_spec(name) is not None


def run(samples: int = 10**7, repeats: int = 5) -> dict[str, Any]:
    """Median samples per second of every installed sampler at each of `RATES`.

    The samplers take turns within each repeat, and the clock is the CPU time of this process (user and
    system, all threads), so that other programs on the machine disturb the comparison little; on an idle
    machine it is the wall clock. A discrete Gaussian is drawn at the Skellam's variance, 2·rate.
    """
    whole(1, samples=samples, repeats=repeats)
    few = min(samples, max(_SLOW_LEAST, samples // _SLOW_SHARE))
    results = []
    for rate in RATES:
        samplers = [
            (name, law, make(rate), few if slow else samples)
            for name, law, make, slow in _SAMPLERS
            if _installed(name)
        ]
        seconds: dict[str, list[float]] = {name: [] for name, *_ in samplers}
        for _, _, draw, count in samplers:
            draw(min(count, 1000))  # compile and build tables outside the clock
        for _ in range(repeats):
            for name, _, draw, count in samplers:
                start = time.process_time()
                draw(count)
                seconds[name].append(time.process_time() - start)
        results += [
            {
                "law": law,
                "rate": rate,
                "sampler": name,
                "samples_per_second": count / statistics.median(seconds[name]),
            }
            for name, law, _, count in samplers
        ]
    return {"samples": samples, "repeats": repeats, "threads": 1, "clock": "cpu", "results": results}


def table(result: dict[str, Any]) -> Table:
    """What `run` returned, one line per sampler, millions of samples per second at each rate."""
    rows: dict[str, dict[float, float]] = {}
    for entry in result["results"]:
        rows.setdefault(entry["sampler"], {})[entry["rate"]] = entry["samples_per_second"]
    rates = sorted({entry["rate"] for entry in result["results"]})
    shown = Table(title="Integer noise, million samples per second, one thread")
    shown.add_column("sampler")
    for rate in rates:
        shown.add_column(f"rate {rate:g}", justify="right")
    for name, speeds in rows.items():
        shown.add_row(name, *(f"{speeds[rate] / 1e6:.4g}" for rate in rates))
    return shown
