"""One round of a cohort: encode, add up (in the clear or through secure aggregation), decode.

Also the measurements that a simulation may take on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skelmix.encoding.clipping import sum_of_squares
from skelmix.errors import RoundFailed
from skelmix.noise.entropy import Entropy
from skelmix.rounds.context import round_context
from skelmix.rounds.security import Secure

if TYPE_CHECKING:
    from skelmix.mechanisms import EncodeStats, Mechanism, SiloSum
    from skelmix.planning import Plan

Blocks = Iterable[NDArray[np.float32]]

_LARGEST = 1e37  # limit of a rotated and scaled coordinate: float32 ends at 3.4e38


class TrueSum:
    """The sum of the clipped vectors, for simulations only, to measure the error of the noisy one.

    It is not protected by any noise: for made-up or public data; `Trainer(diagnostics=True)` asks for it.
    """

    def __init__(self, clip_norm: float, dimension: int) -> None:
        self.clip_norm, self.total = clip_norm, np.zeros(dimension)

    def watch(self, blocks: Blocks) -> Iterator[NDArray[np.float32]]:
        """Hand the blocks on unchanged, adding them up on the way, clipped to `clip_norm`."""
        for block in blocks:
            norms = np.sqrt([sum_of_squares(row) for row in block])
            self.total += np.minimum(1.0, self.clip_norm / np.maximum(norms, 1e-300)) @ block
            yield block


class TrueSiloSum:
    """The sum of all silos' clipped records, seen in a simulation only, like `TrueSum`."""

    def __init__(self, dimension: int) -> None:
        self.total = np.zeros(dimension)

    def watch(self, silos: Iterable[SiloSum]) -> Iterator[SiloSum]:
        """Hand the silos' sums on unchanged, adding them up on the way."""
        for silo in silos:
            self.total += silo.clipped_sum()
            yield silo


@dataclass
class Seconds:
    """Where the time of the rounds went."""

    sample: float = 0.0
    charge: float = 0.0
    gradients: float = 0.0
    encode: float = 0.0
    aggregate: float = 0.0
    decode: float = 0.0
    optimizer: float = 0.0
    evaluate: float = 0.0

    def timed(self, blocks: Blocks) -> Iterator[NDArray[np.float32]]:
        """Hand blocks on, charging the time spent making them to `gradients`."""
        blocks = iter(blocks)
        while True:
            start = perf_counter()
            block = next(blocks, None)
            self.gradients += perf_counter() - start
            if block is None:
                return
            yield block


def longest_vector(mechanism: Mechanism) -> float:
    """The norm from which a vector counts as zero: rotated and scaled it might overflow."""
    return _LARGEST / (mechanism.scale * mechanism.padded_dimension)


class SanitizedBlocks:
    """Blocks in which each row that is not finite, or too long for the mechanism, is replaced by zeros.

    `broken` counts the replaced rows, `rows` all rows. Whether a row is replaced depends on that row alone.
    """

    def __init__(self, blocks: Blocks, mechanism: Mechanism) -> None:
        self._blocks, self.rows, self.broken = blocks, 0, 0
        self._longest = longest_vector(mechanism)

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        for block in self._blocks:
            lengths = np.sqrt([sum_of_squares(row) for row in block])
            bad = ~(lengths <= self._longest)  # NaN compares as false
            self.rows += len(bad)
            self.broken += int(bad.sum())
            yield np.where(bad[:, None], np.float32(0), block) if bad.any() else block


def noisy_sum(
    plan: Plan,
    blocks: Blocks,
    *,
    round: int,
    sampled: int,
    survivors: int,
    secure: Secure,
    entropy: Entropy,
    seconds: Seconds,
    stats: EncodeStats | None = None,
) -> NDArray[np.float64]:
    """The decoded sum over a cohort of `sampled` participants of whom `survivors` upload.

    blocks: the vectors of those survivors who contribute one; the others send zero, with their noise. Where
    the plan's noise is drawn in pieces, the sum has the same noise whoever drops out. Otherwise shares are
    sized for the fewest survivors that the plan allows, so the sum holds at least the accounted noise. Raises
    `RoundFailed`, having encoded nothing, when fewer survive. `secure="protocol"` runs secure aggregation in
    memory; "simulated" adds modulo m directly: the same law.
    """
    shares = _noise_shares(plan, round, sampled, survivors)
    mechanism = plan.mechanism
    start, before = perf_counter(), seconds.gradients
    timed_blocks = seconds.timed(blocks)
    if secure == "protocol":
        messages = [
            mechanism.encode(block, round=round, shares=shares, entropy=entropy) for block in timed_blocks
        ]
        if idle := survivors - sum(len(block) for block in messages):
            zeros = np.zeros((idle, mechanism.dimension), np.float32)
            messages.append(mechanism.encode(zeros, round=round, shares=shares, entropy=entropy))
        encoded = perf_counter()
        seconds.encode += encoded - start - (seconds.gradients - before)
        total = _through_protocol(plan, np.concatenate(messages), sampled, round, entropy)
        seconds.aggregate += perf_counter() - encoded
    else:
        total = mechanism.encode_sum(
            _never_empty(timed_blocks, mechanism.dimension),
            round=round,
            shares=shares,
            participants=plan.cohort.noisy_uploads(sampled, survivors),
            entropy=entropy,
            stats=stats,
        )
        seconds.encode += perf_counter() - start - (seconds.gradients - before)
    return _decoded(mechanism, total, round, seconds)


def noisy_clipped_sum(
    plan: Plan,
    clipped: NDArray[np.float64],
    *,
    round: int,
    sampled: int,
    survivors: int,
    entropy: Entropy,
    seconds: Seconds,
) -> NDArray[np.float64]:
    """`noisy_sum` for a mechanism that is not distributed, from the sum of the survivors' clipped vectors."""
    _noise_shares(plan, round, sampled, survivors)
    start = perf_counter()
    total = plan.mechanism.noisy_total(clipped, entropy)
    seconds.encode += perf_counter() - start
    return _decoded(plan.mechanism, total, round, seconds)


def noisy_silo_sum(
    plan: Plan,
    silos: Iterable[SiloSum],
    *,
    round: int,
    survivors: int,
    secure: Secure,
    entropy: Entropy,
    seconds: Seconds,
    stats: EncodeStats | None = None,
) -> NDArray[np.float64]:
    """The decoded sum over the silos that upload, `survivors` of all of them; see `noisy_sum`."""
    count = plan.cohort.uploads
    shares = _noise_shares(plan, round, count, survivors)
    mechanism = plan.mechanism
    start, before = perf_counter(), seconds.gradients
    if secure == "protocol":
        messages = [mechanism.encode_silo(silo, shares=shares, entropy=entropy) for silo in silos]
        encoded = perf_counter()
        seconds.encode += encoded - start - (seconds.gradients - before)
        total = _through_protocol(plan, np.stack(messages), count, round, entropy)
        seconds.aggregate += perf_counter() - encoded
    else:
        noisy = plan.cohort.noisy_uploads(count, survivors)
        total = mechanism.encode_silos(silos, shares=shares, participants=noisy, entropy=entropy, stats=stats)
        seconds.encode += perf_counter() - start - (seconds.gradients - before)
    return _decoded(mechanism, total, round, seconds)


def _noise_shares(plan: Plan, round: int, sampled: int, survivors: int) -> Fraction:
    """The divisor of the noise that is encoded; `RoundFailed` when too few survive."""
    roster = plan.cohort.roster
    need = roster.min_survivors(sampled)
    if survivors < need or roster.shares(sampled) == 0:
        raise RoundFailed(f"round {round}: {survivors} of {sampled} participants survived, {need} are needed")
    return roster.encoding_shares(plan.mechanism.total_noise, sampled)


def _never_empty(blocks: Blocks, dimension: int) -> Iterator[NDArray[np.float32]]:
    """The blocks, or one zero vector where nobody contributes."""
    empty = True
    for block in blocks:
        empty = empty and len(block) == 0
        yield block
    if empty:
        yield np.zeros((1, dimension), np.float32)


def _decoded(mechanism: Mechanism, total: NDArray[Any], round: int, seconds: Seconds) -> NDArray[np.float64]:
    start = perf_counter()
    decoded = mechanism.decode(total, round=round)
    seconds.decode += perf_counter() - start
    return decoded


def _through_protocol(
    plan: Plan, messages: NDArray[Any], sampled: int, round: int, entropy: Entropy
) -> NDArray[Any]:
    """The sum of the survivors' messages by the protocol; the others fall silent before sending theirs."""
    from skelmix.secagg.in_memory import secure_sum

    silent = np.zeros((sampled - len(messages), messages.shape[1]), messages.dtype)
    roster = plan.cohort.roster
    return secure_sum(
        np.concatenate([messages, silent]),
        modulus=1 << plan.mechanism.bits,
        threshold=roster.min_survivors(sampled),
        colluding=roster.colluding,
        dropouts={"masked": range(len(messages), sampled)},
        round=round,
        noise=plan.removable_noise,
        dropout_rate=roster.assumed_dropout_rate,
        context=round_context(plan.digest(), round),
        entropy=entropy,
    )
