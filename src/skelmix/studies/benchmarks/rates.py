"""The participant's side at low rates: few coordinates, lengths between powers of two, a large model.

Ratios are of times taken in turns in one run on one core, so that a busy machine slows both sides.
"""

from __future__ import annotations

import itertools
import math
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from skelmix.encoding.rotation import rotate
from skelmix.encoding.threads import at_most
from skelmix.mechanisms.skellam_mixture import SkellamMixture
from skelmix.noise.scratch_memory import scratch

_SEED = bytes(range(32))


def best_of(repeats: int, *works: Callable[[], Any]) -> list[float]:
    """The least wall-clock time of each function, run in turns: its time when nothing else runs."""
    times = [math.inf] * len(works)
    for _ in range(repeats):
        for place, work in enumerate(works):
            start = time.perf_counter()
            work()
            times[place] = min(times[place], time.perf_counter() - start)
    return times


def few_coordinates(dense: SkellamMixture, rate: float, vectors: Any, repeats: int) -> dict[str, float]:
    """Encoding `rate` bits per weight as some coordinates of as many bits as `dense` sends of all.

    One vector per round, as a participant sends it: signs and subset are drawn anew each time.
    """
    keep = max(1, round(rate * dense.padded_dimension / dense.bits))
    kept = replace(dense, keep=keep, clip_slack=1.0)
    kept.encode(vectors[:1], round=0)

    def encode(mechanism: SkellamMixture) -> Callable[[], Any]:
        rounds = itertools.count(1)
        return lambda: mechanism.encode(vectors[:1], round=next(rounds))

    with at_most(1):
        all_of_them, few = best_of(5 * repeats, encode(dense), encode(kept))
    return {"rate": rate, "keep": keep, "seconds_per_vector": few, "times_dense": few / all_of_them}


def rotation_lengths(power: int, repeats: int) -> list[dict[str, float]]:
    """Rotating vectors of 1.25, 1.5 and 1.75 times 2^power coordinates, against those of the next power."""
    lengths = [5 << (power - 2), 3 << (power - 1), 7 << (power - 2), 2 << power]
    rng = np.random.default_rng(3)
    vectors = [rng.standard_normal(length, dtype=np.float32) for length in lengths]
    results = [np.empty_like(vector) for vector in vectors]

    def work(vector: Any, out: Any) -> Callable[[], Any]:
        return lambda: rotate(vector, _SEED, 0, out=out)

    works = [work(vector, out) for vector, out in zip(vectors, results, strict=True)]
    for function in works:
        function()
    seconds = best_of(5 * repeats, *works)
    return [
        {"length": length, "seconds": taken, "times_next_power": taken / seconds[-1]}
        for length, taken in zip(lengths[:-1], seconds, strict=False)
    ]


def large_model(dimension: int, rate: float, repeats: int) -> dict[str, float]:
    """One participant's side for a large float32 vector: seconds per round, and the peak of memory.

    Kernels are compiled beforehand; the peak includes the vector itself.
    """
    mechanism = SkellamMixture(
        dimension=dimension,
        bits=8,
        scale=256.0,
        clip_norm=1.0,
        total_noise=1e4,
        shares=100,
        rotation_seed=_SEED,
        keep=max(1, round(rate * dimension / 8)),
        clip_slack=1.0,
    )
    vector = np.random.default_rng(4).standard_normal(dimension, dtype=np.float32)
    vector /= np.linalg.norm(vector)
    mechanism.encode(vector, round=0)
    rounds = iter(range(1, repeats + 2))  # signs and subset are new in each, as in training
    seconds = best_of(repeats, lambda: mechanism.encode(vector, round=next(rounds)))[0]
    with scratch(1 << 27, np.uint8):
        pass  # forgets the buffers of the rounds before: the peak is that of a fresh process
    tracemalloc.start()
    mechanism.encode(vector, round=next(rounds))
    peak = tracemalloc.get_traced_memory()[1] + vector.nbytes
    tracemalloc.stop()
    return {
        "dimension": dimension,
        "rate": rate,
        "keep": mechanism.coordinates,
        "seconds": seconds,
        "peak_bytes": peak,
        "times_vector": peak / vector.nbytes,
    }
