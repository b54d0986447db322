"""The participant side, end to end, against the same steps in plain NumPy.

d = 65,536, float32 gradients of norm 1, scale 64, λ = 5.95, 8 bits: rotate, scale, clip, round, add noise,
wrap. The peer is what one writes without this library: a vectorised Walsh-Hadamard transform,
`numpy.random` for the rounding and the two Poisson draws (approximate, not cryptographic). Both are timed
per vector, in one run, on this machine.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from skelmix.encoding.rotation import rotation_signs
from skelmix.encoding.threads import at_most
from skelmix.mechanisms.skellam_mixture import SkellamMixture
from skelmix.studies.benchmarks.rates import best_of, few_coordinates, large_model, rotation_lengths

DIMENSION = 1 << 16
PARTICIPANTS = 240
NOISE = 5.95
SCALE = 64.0
BITS = 8
_SEED = bytes(range(32))


def run(
    *,
    participants: int = PARTICIPANTS,
    largest: int = 22,
    repeats: int = 12,
    model: int = 10_000_000,
) -> dict[str, Any]:
    """All measurements: seconds per vector, ratios, growth, low rates, a large model.

    Growth is with d and with the number of participants; the large model has `model` weights, seen by one
    participant.
    """
    rng = np.random.default_rng(1)
    mechanism = _mechanism(DIMENSION, participants)
    vectors = _unit_rows(rng, participants, DIMENSION)
    signs = rotation_signs(_SEED, 0, DIMENSION)
    mechanism.encode(vectors[:2], round=0)  # compiles kernels, builds the noise table

    few = vectors[:4]

    def encode() -> Any:
        return mechanism.encode(vectors, round=0)

    def on_one_core(work: Callable[[], Any]) -> Any:
        with at_most(1):
            return work()

    one_core, all_cores, summed, plain = best_of(
        repeats,
        lambda: on_one_core(encode),
        encode,
        lambda: on_one_core(lambda: mechanism.encode_sum(vectors, round=0)),
        lambda: [plain_numpy(row, signs, rng) for row in few],
    )
    one_core, all_cores, summed = (seconds / participants for seconds in (one_core, all_cores, summed))
    plain /= len(few)
    return {
        "dimension": DIMENSION,
        "participants": participants,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "numpy_seconds_per_vector": plain,
        "one_core_seconds_per_vector": one_core,
        "all_cores_seconds_per_vector": all_cores,
        "encode_sum_one_core_seconds_per_vector": summed,
        "times_numpy": plain / one_core,
        "times_one_core": one_core / all_cores,
        "by_dimension": [_at_dimension(1 << power, rng) for power in range(10, largest + 1, 2)],
        "low_rates": [few_coordinates(mechanism, rate, vectors, repeats) for rate in (0.5, 0.0625)],
        "lengths": rotation_lengths(16, repeats),
        "large_model": large_model(model, 0.1, repeats),
        "encode_sum_memory": [_memory(count) for count in (100, 10_000)],
    }


def plain_numpy(
    vector: NDArray[Any], signs: NDArray[Any], rng: np.random.Generator, scale: float = SCALE
) -> NDArray[np.uint8]:
    """One participant's steps as NumPy alone does them."""
    x = vector * signs
    d = x.size
    step = 1
    while step < d:
        pairs = x.reshape(-1, 2, step)
        total = pairs[:, 0] + pairs[:, 1]
        np.subtract(pairs[:, 0], pairs[:, 1], out=pairs[:, 1])
        pairs[:, 0] = total
        step *= 2
    x *= scale / np.sqrt(d)
    norm = np.linalg.norm(x)
    if norm > scale:
        x *= scale / norm
    below = np.floor(x)
    rounded = below.astype(np.int64) + rng.binomial(1, np.clip(x - below, 0, 1))
    noisy = rounded + rng.poisson(NOISE, d) - rng.poisson(NOISE, d)
    return np.asarray(np.mod(noisy, 1 << BITS), np.uint8)


def table(result: dict[str, Any]) -> Table:
    """The result for a person."""
    micro = 1e6
    rows = [
        ("plain NumPy, one vector", f"{result['numpy_seconds_per_vector'] * micro:,.0f} µs", ""),
        (
            "encode, one core, one vector",
            f"{result['one_core_seconds_per_vector'] * micro:,.0f} µs",
            f"{result['times_numpy']:.1f} times plain NumPy",
        ),
        (
            f"encode, {result['cores']} cores, one vector",
            f"{result['all_cores_seconds_per_vector'] * micro:,.0f} µs",
            f"{result['times_one_core']:.2f} times one core",
        ),
        (
            "encode_sum, one core, one vector",
            f"{result['encode_sum_one_core_seconds_per_vector'] * micro:,.0f} µs",
            "",
        ),
    ]
    for entry in result["by_dimension"]:
        rows.append(
            (
                f"encode, one vector, d = {entry['dimension']:,}",
                f"{entry['seconds'] * micro:,.0f} µs",
                f"{entry['nanoseconds_per_d_log_d']:.3f} ns per d·log2(d)",
            )
        )
    rows += _rate_rows(result)
    for entry in result["encode_sum_memory"]:
        rows.append(
            (
                f"encode_sum, {entry['participants']:,} participants",
                f"{entry['peak_bytes'] / 2**20:.2f} MiB",
                "peak of what it allocates, vectors from an iterator",
            )
        )
    grid = Table("step", "time or size", "note", title="The participant's side")
    for row in rows:
        grid.add_row(*row)
    return grid


def _rate_rows(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    large = result["large_model"]
    return [
        *(
            (
                f"encode, one core, {entry['rate']:g} bits per weight",
                f"{entry['seconds_per_vector'] * 1e6:,.0f} µs",
                f"{entry['times_dense']:.2f} times all coordinates of {BITS} bits",
            )
            for entry in result["low_rates"]
        ),
        *(
            (
                f"rotate, d = {entry['length']:,}",
                f"{entry['seconds'] * 1e6:,.0f} µs",
                f"{entry['times_next_power']:.2f} times the next power of two",
            )
            for entry in result["lengths"]
        ),
        (
            f"encode, d = {large['dimension']:,}, {large['rate']:g} bits per weight",
            f"{large['seconds'] * 1e3:,.0f} ms",
            f"peak memory {large['times_vector']:.2f} times the float32 vector",
        ),
    ]


def _mechanism(dimension: int, participants: int) -> SkellamMixture:
    return SkellamMixture(
        dimension=dimension,
        bits=BITS,
        scale=SCALE,
        clip_norm=1.0,
        total_noise=NOISE * participants,
        shares=participants,
        rotation_seed=_SEED,
    )


def _unit_rows(rng: np.random.Generator, rows: int, dimension: int) -> NDArray[np.float32]:
    vectors = rng.standard_normal((rows, dimension), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def _at_dimension(dimension: int, rng: np.random.Generator) -> dict[str, float]:
    mechanism = _mechanism(dimension, PARTICIPANTS)
    vector = _unit_rows(rng, 1, dimension)
    mechanism.encode(vector, round=0)
    runs = max(3, (1 << 20) // dimension)
    with at_most(1):
        seconds = statistics.median(
            best_of(3, lambda: mechanism.encode(vector, round=0))[0] for _ in range(runs)
        )
    return {
        "dimension": dimension,
        "seconds": seconds,
        "nanoseconds_per_d_log_d": 1e9 * seconds / (dimension * np.log2(dimension)),
    }


def _memory(participants: int, dimension: int = DIMENSION) -> dict[str, int]:
    """Peak bytes that `encode_sum` allocates for vectors that exist one at a time."""
    import tracemalloc

    mechanism = _mechanism(dimension, participants)
    vector = _unit_rows(np.random.default_rng(2), 1, dimension)[0]

    def stream() -> Iterator[NDArray[np.float32]]:
        for _ in range(participants):
            yield vector

    mechanism.encode_sum(vector, round=0, participants=participants)  # builds the table of the summed law
    tracemalloc.start()
    mechanism.encode_sum(stream(), round=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"participants": participants, "dimension": dimension, "peak_bytes": peak}
