"""One round of training in the paper's setting, split by step: 240 participants, 63,610 weights, 8 bits."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.table import Table

from skelmix.encoding.clipping import clip_l2
from skelmix.encoding.rotation import rotate
from skelmix.encoding.rounding import round_into_sum
from skelmix.mechanisms import SkellamMixture
from skelmix.noise.table import sampler

PARTICIPANTS, BITS, SCALE, MULTIPLIER = 240, 8, 64.0, 0.635
_REPEATS = 5


def _best(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def run() -> dict[str, Any]:
    """Seconds of each step of one round, alone, best of five, and of the whole round as the trainer runs it.

    Also the peak memory of all of it.
    """
    from skelmix.studies.probe import PaperRound

    probe = PaperRound(PARTICIPANTS)
    dimension = probe.dimension
    mechanism = SkellamMixture(
        dimension=dimension,
        bits=BITS,
        scale=SCALE,
        clip_norm=1.0,
        total_noise=(MULTIPLIER * SCALE) ** 2 / 2,
        shares=PARTICIPANTS,
    )
    block = next(iter(probe.blocks())).copy()
    repeats = PARTICIPANTS / len(block)
    rotated = rotate(block, mechanism.rotation_seed, 0, scale=SCALE)
    clip_l2(rotated, SCALE)
    total = np.zeros(mechanism.coordinates, np.int64)
    law = mechanism.participant_law(PARTICIPANTS)
    summed = None if law is None else sampler(law.sum_of(PARTICIPANTS))

    def rotate_and_clip() -> None:
        clip_l2(rotate(block, mechanism.rotation_seed, 0, scale=SCALE), SCALE)

    encoded = mechanism.encode_sum(probe.blocks(), round=0, shares=PARTICIPANTS)
    messages = mechanism.encode(block, round=0, shares=PARTICIPANTS)
    decoded = mechanism.decode(encoded, round=0)
    steps = {
        "gradients": _best(lambda: [None for _ in probe.blocks()]),
        "rotate and clip": _best(rotate_and_clip) * repeats,
        "round": _best(lambda: round_into_sum(rotated, total)) * repeats,
        "noise": 0.0 if summed is None else _best(lambda: summed.sample(mechanism.coordinates)),
        "aggregate (ideal)": _best(lambda: messages.sum(axis=0, dtype=np.uint8)) * repeats,
        "decode": _best(lambda: mechanism.decode(encoded, round=0)),
        "optimizer": _best(lambda: probe.optimizer_step(decoded / PARTICIPANTS)),
    }
    return {
        "participants": PARTICIPANTS,
        "dimension": dimension,
        "bits": BITS,
        "seconds": steps,
        "round": probe.round_of_training(mechanism),
        "peak_memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def table(result: dict[str, Any]) -> Table:
    size = f"{result['participants']} participants, {result['dimension']:,} weights, {result['bits']} bits"
    shown = Table(title=f"One round: {size}")
    shown.add_column("step, alone")
    shown.add_column("ms", justify="right")
    for step, seconds in result["seconds"].items():
        shown.add_row(step, f"{1e3 * seconds:.2f}")
    shown.add_section()
    shown.add_row("whole round, by the trainer", f"{1e3 * result['round']:.2f}")
    shown.caption = f"peak memory of the process {result['peak_memory_bytes'] / 2**20:,.0f} MiB"
    return shown
