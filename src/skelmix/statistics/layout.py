"""A question as one vector per record: which entry means what, and how much weight each block has.

Weights come from the question alone. Block b with sensitivity s_b has weight w_b = importance^¼ / s_b, which
minimises Σ_b importance_b · (mean squared error per entry of b, relative to s_b) under one privacy budget;
with equal importance every block gets the same error relative to its public range. The L2 sensitivity of the
stacked vector is √(Σ_b w_b² s_b²). A block that counts missing values is not in that sum: a record is in it
*instead* of being in the column's other blocks, so it may weigh as much as those together.

In fixed point, a record's vector has integer entries: block b's entries are t·A_b, rounded, for |t| <= 1 and
an integer amplitude A_b, and Σ_b A_b² <= radius² holds in exact arithmetic, with missing values as above. So
no record is longer than the radius, whatever it holds, and nothing is ever clipped. With `rows` > 1,
amplitudes are that many times smaller, and an owner of up to that many records stays within the radius.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.statistics.blocks import MOMENTS, Block, Cells, Missing, blocks_of, columns_beside_count
from skelmix.statistics.queries import Query, Question
from skelmix.validation import whole

MOST_NUMBERS = 1 << 22  # in one vector: somebody else's question must not fill a party's memory
MOST_RADIUS = 1 << 44  # products with values in [-1, 1] keep their fraction, sums of 2^19 records fit int64


@dataclass(frozen=True)
class Layout:
    """Where each answer's numbers stand in the vector of a record.

    Example:

        >>> from skelmix.statistics import parse_question
        >>> layout = Layout(parse_question("count; histogram(sex: F|M); mean(age, 0..110)"))
        >>> layout.dimension, round(layout.sensitivity, 3)
        (6, 1.732)
    """

    question: Question

    @cached_property
    def _beside_count(self) -> frozenset[str]:
        return columns_beside_count(self.question.queries)

    @cached_property
    def _importance(self) -> dict[Block, float]:
        largest: dict[Block, float] = {}
        for query, importance in zip(self.question.queries, self.question.importance, strict=True):
            for block in blocks_of(query, self._beside_count):
                largest[block] = max(importance, largest.get(block, 0.0))
        return largest

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Each block once, however many queries use it."""
        return tuple(self._importance)

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The weight of each block; that of `Missing` follows from the column's others."""
        own = [self._importance[block] ** 0.25 / block.sensitivity for block in self.blocks]
        lengths = [weight * block.sensitivity for weight, block in zip(own, self.blocks, strict=True)]
        return tuple(
            math.hypot(*(lengths[place] for place in self._moments[block.column]))
            if isinstance(block, Missing)
            else weight
            for weight, block in zip(own, self.blocks, strict=True)
        )

    @cached_property
    def _moments(self) -> dict[str, list[int]]:
        """For each column, the blocks in which a record that misses it has nothing."""
        places: dict[str, list[int]] = {}
        for place, block in enumerate(self.blocks):
            if isinstance(block, MOMENTS):
                places.setdefault(block.column, []).append(place)
        return places

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        ends = np.cumsum([block.size for block in self.blocks]).tolist()
        return (0, *ends[:-1])

    @cached_property
    def dimension(self) -> int:
        """The length of the vector; `InvalidInput` where it is too long, or bins have no edges."""
        size = sum(block.size for block in self.blocks)
        if size > MOST_NUMBERS:
            raise InvalidInput(
                f"the question asks for {size:,} numbers, more than {MOST_NUMBERS:,}: take wider bins or "
                "fewer queries"
            )
        for block in self.blocks:
            if isinstance(block, Cells):
                block.check()
        return size

    @cached_property
    def sensitivity(self) -> float:
        """L2 norm of the largest possible record."""
        return math.sqrt(math.fsum(length**2 for length in self._lengths))

    @property
    def _lengths(self) -> list[float]:
        """What each block adds to the longest record; nothing for `Missing`."""
        return [
            0.0 if isinstance(block, Missing) else weight * block.sensitivity
            for weight, block in zip(self.weights, self.blocks, strict=True)
        ]

    def place(self, block: Block) -> slice:
        """The entries of a block in the vector."""
        start = self.offsets[self.blocks.index(block)]
        return slice(start, start + block.size)

    def places(self, query: Query) -> tuple[slice, ...]:
        """The entries that answer a query, one slice per block."""
        return tuple(self.place(block) for block in blocks_of(query, self._beside_count))

    def counts_and_moments(self, query: Query) -> tuple[list[int], list[int]]:
        """The entries of a sum, mean or variance: those that count its values, and those that add them up.

        The values are as many as the first counter says, less the second if there is one. A sum needs none
        where it is added up as it stands.
        """
        counters: list[int] = []
        moments: list[int] = []
        for block in blocks_of(query, self._beside_count):
            (moments if isinstance(block, MOMENTS) else counters).append(self.place(block).start)
        return counters, moments

    def amplitudes(self, radius: int, rows: int = 1) -> tuple[int, ...]:
        """The integer amplitude of each block: `rows` records together are no longer than `radius`.

        radius: the L2 norm that one record (or owner) may have, in fixed-point units, 2^16..2^44.
        """
        whole(1 << 16, MOST_RADIUS, radius=radius)
        whole(1, 1 << 20, rows=rows)
        integers = [math.floor(radius * (length / self.sensitivity) / rows) for length in self._lengths]
        # floats may be a little large
        while rows**2 * sum(amplitude**2 for amplitude in integers) > radius**2:
            integers = [max(0, amplitude - 1) for amplitude in integers]
        for place, block in enumerate(self.blocks):
            if isinstance(block, Missing):
                integers[place] = math.isqrt(
                    sum(integers[other] ** 2 for other in self._moments[block.column])
                )
        if min(integers) < 1 << 8:
            raise InvalidInput(
                f"radius = {radius}: too small for {len(integers)} blocks and {rows} record(s) per owner; "
                "use more fractional bits, ask fewer queries or bound the records per owner more tightly"
            )
        return tuple(integers)

    def entry_units(self, radius: int, rows: int = 1) -> NDArray[np.float64]:
        """What 1 in each entry of the decoded sum is worth in the answer's own units.

        The decoded sum is in units of the clip norm: a record as long as the radius has norm 1 there.
        """
        units = [
            radius / amplitude * block.sensitivity
            for amplitude, block in zip(self.amplitudes(radius, rows), self.blocks, strict=True)
        ]
        return np.repeat(units, [block.size for block in self.blocks])
