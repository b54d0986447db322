"""Record-level privacy: a silo adds up its records exactly, then rounds and adds noise once.

The bounds of the mixtures hold for any base point: they compare u + g with u, where g is one clipped record
and u the sum of the others, whatever u is. So noise that hides one participant's vector hides one record.
The sum must be exact for that, hence the fixed point of `skelmix.encoding.fixed_point`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skelmix.encoding.fixed_point import round_sum
from skelmix.encoding.record_sum import add_records
from skelmix.encoding.rotation import rotate_integers, rotation_signs
from skelmix.encoding.subset import choose
from skelmix.encoding.threads import for_each, worker_count
from skelmix.errors import InvalidInput
from skelmix.mechanisms.base import EncodeStats
from skelmix.mechanisms.blocks import Block, as_blocks, as_floats
from skelmix.noise.entropy import Entropy
from skelmix.validation import whole

if TYPE_CHECKING:
    from skelmix.mechanisms.silo import SiloMechanism

_ROWS = 64  # largest block: its memory is lent to a thread
_NO_SIGNS = np.empty(0, np.int8)


class SiloSum:
    """The exact sum of the clipped vectors of one silo's records (or persons), for one round.

    Made by `mechanism.silo_sum(round=...)`; `mechanism.encode_silo` turns it into the silo's message, once.
    What a record adds is a function of that record alone. Memory does not depend on the number of records,
    and nothing in the data raises: a vector with NaN or infinity counts as zero, a long one is clipped.

    Nothing in here is private before it is encoded: not the sum, not the counts.

    Example:

        >>> from skelmix.mechanisms import SkellamMixture
        >>> smm = SkellamMixture(dimension=4, bits=12, scale=100.0, clip_norm=1.0, total_noise=50.0)
        >>> silo = smm.silo_sum(round=0)
        >>> silo.add(np.full((1000, 4), 0.001))
        >>> silo.add(np.array([np.nan, 0, 0, 0]))
        >>> silo.records, silo.broken, smm.encode_silo(silo).shape
        (1001, 1, (4,))
    """

    def __init__(self, mechanism: SiloMechanism, round: int) -> None:
        whole(0, 2**64 - 1, round=round)
        self.mechanism, self.round = mechanism, int(round)
        self.stats, self.broken = EncodeStats(), 0
        self._grid = mechanism.fixed_point
        self._signs, self._kept = _NO_SIGNS, None
        seed, length, kept = mechanism.rotation_seed, self._grid.length, self._grid.kept
        if self._grid.rotates_records:
            self._signs = rotation_signs(seed, self.round, length)
        if kept < length:
            self._kept = choose(seed, self.round, length, kept)
        self._sums: SimpleQueue[NDArray[np.int64]] = SimpleQueue()
        self._lock = threading.Lock()
        self._encoded = False

    @property
    def records(self) -> int:
        """How many records were added, broken ones included. A secret of the silo."""
        return self.stats.participants

    def add(self, vectors: Any) -> None:
        """Add records' vectors: (d,), (records, d), or an iterable of such, which is streamed.

        float32 or float64, NumPy or torch CPU tensors, of the mechanism's dimension; none are modified. No
        records at all are fine. Only a wrong shape or dtype raises `InvalidInput`.
        """
        if self._encoded:
            raise InvalidInput("this sum was encoded already: start another one with mechanism.silo_sum")
        shape = getattr(vectors, "shape", None)
        if shape is not None and len(shape) == 2 and shape[0] == 0:
            return
        source = vectors if shape is not None or not isinstance(vectors, Iterable) else _filled(vectors)
        rows = max(1, min(_ROWS, (1 << 20) // self._grid.length))
        for_each(as_blocks(source, rows, self._grid.dimension, ahead=worker_count() > 1), self._add_block)

    @property
    def unit_radius(self) -> int:
        """The L2 norm that one record may have in fixed-point units, for `add_units`."""
        return math.isqrt(math.floor(self._grid.steps.squares))

    def add_units(self, total: NDArray[np.int64], records: int) -> None:
        """Add the exact sum of `records` records' vectors that are integers in fixed-point units already.

        total: (d,) int64; one unit is clip_norm / unit_radius, rounded up. The caller guarantees, since no
        sum can show it, that each record's integers have an L2 norm of at most `unit_radius`, are a function
        of that record alone, and were added exactly (modulo 2^64): otherwise the plan's ε does not hold.
        Raises `InvalidInput` where each record must be rotated before it is clipped: with the flat bound, or
        when only some coordinates are kept.
        """
        whole(0, records=records)
        if self._encoded:
            raise InvalidInput("this sum was encoded already: start another one with mechanism.silo_sum")
        if self._grid.rotates_records or self._grid.linf < self._grid.l2:
            raise InvalidInput(
                "total: this mechanism clips each record after rotating it, so sums cannot be added; plan "
                "with bound='gdp' or 'rdp' and all coordinates kept"
            )
        if not isinstance(total, np.ndarray) or total.dtype != np.int64 or total.shape != (self._grid.width,):
            raise InvalidInput(f"total: must be an int64 array of shape ({self._grid.width},)")
        with self._partial_sum() as running:
            running += total
        self.stats.add(EncodeStats(int(records)))

    def clipped_sum(self) -> NDArray[np.float64]:
        """NOT PRIVATE: the sum of the clipped vectors, float64 (d,), to measure the error of a simulation."""
        return self.mechanism.decode_units(self._total(), round=self.round)

    def _add_block(self, block: Block) -> None:
        rows = as_floats(block[1])
        with self._partial_sum() as total:
            counts = add_records(rows, self._signs, self._kept, self._grid, total)
        self.stats.add(
            EncodeStats(len(rows), counts.clipped, counts.clamped, squared_norms=counts.squared_norms)
        )
        with self._lock:
            self.broken += counts.broken

    @contextmanager
    def _partial_sum(self) -> Iterator[NDArray[np.int64]]:
        """A sum for this thread alone: integers may be added up in any order."""
        try:
            total = self._sums.get_nowait()
        except Empty:
            total = np.zeros(self._grid.width, np.int64)
        try:
            yield total
        finally:
            self._sums.put(total)

    def _total(self) -> NDArray[np.int64]:
        """The sum in units of 2^-f, (coordinates,), modulo 2^64."""
        total = np.zeros(self._grid.width, np.int64)
        parts = [self._sums.get() for _ in range(self._sums.qsize())]
        for part in parts:
            total += part
            self._sums.put(part)
        if self._grid.rotate and not self._grid.rotates_records:
            total = rotate_integers(total, self.mechanism.rotation_seed, self.round)
        return total

    def rounded(self, entropy: Entropy) -> NDArray[np.int64]:
        """The sum, each coordinate rounded stochastically to an integer, once.

        A second rounding of the same sum would be a second release.
        """
        with self._lock:
            if self._encoded:
                raise InvalidInput(
                    "this sum was encoded already: a second message with fresh noise would reveal more; send "
                    "the first one again"
                )
            self._encoded = True
        return round_sum(self._total(), self._grid.fraction_bits, entropy)


def _filled(blocks: Iterable[Any]) -> Iterator[Any]:
    """The blocks that hold a record."""
    return (block for block in blocks if len(block) > 0)
