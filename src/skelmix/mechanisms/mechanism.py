"""A mechanism: what a participant sends, and what the aggregator makes of the sum, as one list of steps.

`encode` is Bao et al. 2022, Algorithm 4 (Algorithm 14 for the discrete Gaussian): rotate, scale, clip,
round, add noise, wrap; with `keep`, a public subset of the coordinates is chosen before the clip. `decode` is
Algorithm 6: unwrap, put the subset back, rotate back, scale back. With rotate=False and
scale=1 the steps are the paper's Algorithms 2 and 12, and in one dimension Algorithms 1 and 11.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skelmix import validation
from skelmix.encoding.rotation import rotate, unrotate
from skelmix.encoding.subset import rotate_and_gather, scatter
from skelmix.encoding.threads import for_each, worker_count
from skelmix.encoding.wrapping import add_rows, unwrap, wire_dtype, wrap, wrapped_coordinates
from skelmix.errors import InvalidInput
from skelmix.mechanisms.base import EncodeStats, Mechanism, Shares
from skelmix.mechanisms.blocks import Block, as_blocks, as_floats, counted_from, rows_of
from skelmix.mechanisms.clips import Clipped
from skelmix.noise.entropy import Entropy, SystemEntropy, system_entropy
from skelmix.noise.laws import BallLaw, Binomial, DiscreteGaussian, Law, Skellam
from skelmix.noise.scratch_memory import scratch
from skelmix.noise.table import ExactSampler, sampler

if TYPE_CHECKING:
    from skelmix.accounting.prediction import PredictedError

_LARGEST_TABLE = 1e8  # largest variance for which one draw replaces those of many participants
_GROUP, _WIDEST_SUMMAND = 16, 100.0  # discrete Gaussians whose sum has a table within 0.1 s
_WORTH_A_TABLE = 1 << 22  # draws


@contextmanager
def lent(sums: SimpleQueue[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
    """One of the sums, for this thread alone."""
    total = sums.get()
    try:
        yield total
    finally:
        sums.put(total)


def sending_integers(mechanism: Mechanism) -> IntegerMechanism:
    """The mechanism itself if its participants send integers; `InvalidInput` for the central Gaussian."""
    if not isinstance(mechanism, IntegerMechanism):
        raise InvalidInput(f"{mechanism.name} releases no integers; take a distributed mechanism, e.g. 'smm'")
    return mechanism


@dataclass(frozen=True)
class IntegerMechanism(Mechanism):
    """A mechanism whose participants send integers modulo 2^bits: everything but the central Gaussian.

    Example:

        >>> from skelmix.mechanisms import SkellamMixture
        >>> smm = SkellamMixture(dimension=4, bits=12, scale=100.0, clip_norm=1.0, total_noise=50.0)
        >>> smm.modulus, smm.encode(np.zeros(4), round=0).dtype.name
        (4096, 'uint16')
    """

    @property
    def modulus(self) -> int:
        """m = 2^bits."""
        return 1 << self.bits

    def encode(
        self, vectors: Any, *, round: int, shares: Shares = None, entropy: Entropy | None = None
    ) -> NDArray[Any]:
        """What each participant sends in this round: integers in 0..2^bits - 1, smallest unsigned dtype.

        vectors: (d,) or (participants, d), float32 or float64, NumPy or a torch CPU tensor; not modified.
        Returns (coordinates,) or (participants, coordinates). shares: how many participants' noise makes up
        `total_noise` in this round. NaN, infinity, wrong shapes and zero participants raise `InvalidInput`.
        """
        array, single = rows_of(vectors, self.dimension)
        out = np.empty((array.shape[0], self.coordinates), wire_dtype(self.bits))
        draws = self._sampler(shares)

        def participant(block: tuple[Block, Entropy]) -> None:
            (start, rows), source = block
            self._encode_block((start, rows), round, draws, out[start : start + len(rows)], source)

        for_each(
            self._with_entropy(as_blocks(array, self._rows_at_once, self.dimension), entropy), participant
        )
        return out[0] if single else out

    def encode_sum(
        self,
        vectors: Any,
        *,
        round: int,
        shares: Shares = None,
        participants: int | None = None,
        entropy: Entropy | None = None,
        stats: EncodeStats | None = None,
    ) -> NDArray[Any]:
        """The sum modulo 2^bits of what the participants would send, (coordinates,), for simulation.

        It has the law of adding up `encode`.

        vectors: an array, or an iterable of (d,) vectors and (k, d) blocks, streamed:
        memory is O(threads·d) whatever the number of participants. participants: how many add noise, at
        least as many as vectors (the default); any more of them hold the zero vector. The noise of many is
        one draw where their sum has a table: Skellam and binomial, and sixteen discrete Gaussians at a time.
        """
        sums: SimpleQueue[NDArray[np.int64]] = SimpleQueue()
        for _ in range(worker_count()):
            sums.put(np.zeros(self.coordinates, np.int64))
        seen = EncodeStats()

        def add(block: tuple[Block, Entropy]) -> None:
            (start, rows), source = block
            with self._prepared(start, rows, round) as (x, clipped), lent(sums) as total:
                self._round_into(x, total, source)
            norms = clipped.squared_norms * self.padded_dimension / self.coordinates
            seen.add(EncodeStats(len(x), clipped.rows, clipped.coordinates, squared_norms=norms))

        blocks = as_blocks(vectors, self._rows_at_once, self.dimension, ahead=worker_count() > 1)
        for_each(self._with_entropy(blocks, entropy), add)
        if seen.participants == 0:
            raise InvalidInput("vectors is empty: at least one participant is needed")
        noisy = seen.participants if participants is None else participants
        validation.whole(seen.participants, participants=noisy)
        self._add_noise(sums, noisy, shares, entropy)
        total = sum((sums.get() for _ in range(sums.qsize())), np.zeros(self.coordinates, np.int64))
        if stats is not None:
            seen.wrapped_coordinates = self.overflow(total)
            stats.add(seen)
        return wrap(total, self.bits)

    def decode(self, total: Any, *, round: int) -> NDArray[np.float64]:
        """The estimate of the sum of the participants' (clipped) vectors, from their sum modulo 2^bits.

        float64 (d,).
        """
        z = np.asarray(total)
        if z.shape != (self.coordinates,) or z.dtype.kind not in "iu":
            raise InvalidInput(
                f"total has shape {z.shape}, dtype {z.dtype}: must be ({self.coordinates},) integers"
            )
        return self._decoded(unwrap(z, self.bits).astype(np.float64), round)

    def _decoded(self, values: NDArray[np.float64], round: int) -> NDArray[np.float64]:
        """Back from the integer grid: rotate and scale back."""
        if not self.rotate:
            return values / self.scale
        if self.keep is not None:
            values = scatter(values, self.rotation_seed, round, length=self.padded_dimension)
        return unrotate(values, self.rotation_seed, round, dimension=self.dimension, scale=1.0 / self.scale)

    def overflow(self, sums: NDArray[Any]) -> int:
        """How many coordinates of a true integer sum wrap around, and so decode wrongly.

        Known in simulation only.
        """
        return wrapped_coordinates(sums, self.bits)

    def _encode_block(
        self, block: Block, round: int, draws: ExactSampler | None, out: NDArray[Any], entropy: Entropy
    ) -> None:
        """out = what these rows' participants send."""
        with self._prepared(*block, round) as (x, _):
            self._round_and_noise(x, draws, out, entropy)

    @contextmanager
    def _prepared(self, start: int, rows: Any, round: int) -> Iterator[tuple[NDArray[Any], Clipped]]:
        """Rotate, scale, choose and clip: the floats that are rounded next.

        Their memory is lent for the block.
        """
        given = as_floats(rows)
        with counted_from(start), scratch((len(given), self.coordinates), given.dtype) as x:
            if self.keep is not None:
                length = self.padded_dimension
                rotate_and_gather(given, self.rotation_seed, round, scale=self.scale, length=length, out=x)
            elif self.rotate:
                rotate(given, self.rotation_seed, round, scale=self.scale, out=x)
            else:
                with np.errstate(over="ignore", invalid="ignore"):  # the clip finds it, and says so
                    np.multiply(given, given.dtype.type(self.scale), out=x)
            yield x, self._clip(x)

    @abstractmethod
    def _clip(self, x: NDArray[Any]) -> Clipped:
        """Clip the rows of x in place."""

    @abstractmethod
    def _round_and_noise(
        self, x: NDArray[Any], draws: ExactSampler | None, out: NDArray[Any], entropy: Entropy
    ) -> None:
        """out = (x rounded to integers, plus noise) mod 2^bits."""

    @abstractmethod
    def _round_into(self, x: NDArray[Any], total: NDArray[np.int64], entropy: Entropy) -> None:
        """total += the rows of x, rounded to integers."""

    # The noise

    @abstractmethod
    def participant_law(self, shares: Shares = None) -> BallLaw | None:
        """The law of one participant's noise per coordinate; None without noise.

        It is exactly 1/shares of `total_noise`.
        """

    def total_law(self, participants: int, shares: Shares = None) -> Law | None:
        """The law of the noise in the sum of this many participants."""
        law = self.participant_law(shares)
        return None if law is None else law.sum_of(participants)

    def noise_variance(self, participants: int, shares: Shares = None) -> float:
        """Variance of a coordinate of the summed noise on the integer grid.

        Each participant adds 1/shares of the noise.
        """
        law = self.participant_law(shares)
        return 0.0 if law is None else participants * law.variance

    def predicted_error(
        self, uploads: int, alignment: float, *, vectors: float | None = None, shares: Shares = None
    ) -> PredictedError:
        from skelmix.accounting.prediction import predict

        return predict(
            noise_variance=self.noise_variance(uploads, shares),
            participants=uploads if vectors is None else vectors,
            roundings=uploads,
            norm=self.clip_norm,
            scale=self.scale,
            dimension=self.padded_dimension,
            bits=self.bits,
            alignment=alignment,
            keep=self.keep,
            radius=self.radius,
            **self._clip_effects(),
        )

    def _clip_effects(self) -> dict[str, Any]:
        """What `predict` must know about a clip that does more than bound the L2 norm."""
        return {}

    def _shares(self, shares: Shares) -> Fraction:
        count = self.shares if shares is None else shares
        if not isinstance(count, Fraction):
            validation.whole(1, shares=count)
        validation.positive(shares=count)
        return Fraction(count)

    def _sampler(self, shares: Shares) -> ExactSampler | None:
        law = self.participant_law(shares)
        return None if law is None else sampler(law)

    def _add_noise(
        self,
        sums: SimpleQueue[NDArray[np.int64]],
        participants: int,
        shares: Shares,
        entropy: Entropy | None,
    ) -> None:
        """Add the noise of all participants to the sums, with as few draws as its exact law allows."""
        law = self.participant_law(shares)
        if law is None:
            return

        def draw(part: tuple[tuple[BallLaw, int], Entropy]) -> None:
            (part_law, draws), source = part
            with scratch((draws, self.coordinates), sampler(part_law).dtype) as noise:
                sampler(part_law).sample(noise.shape, out=noise, entropy=source)
                with lent(sums) as total:
                    add_rows(noise, total)

        for_each(self._with_entropy(self._draws(law, participants), entropy), draw)

    def _draws(self, law: BallLaw, participants: int) -> Iterator[tuple[BallLaw, int]]:
        """The laws, with the number of draws of each, that add up to the noise of all participants."""
        if isinstance(law, Skellam | Binomial):  # closed under sums
            at_once = max(1, int(_LARGEST_TABLE / law.variance))
            for done in range(0, participants, at_once):
                yield law.sum_of(min(at_once, participants - done)), 1
            return
        single = participants
        worth = participants * self.coordinates >= _WORTH_A_TABLE
        if worth and isinstance(law, DiscreteGaussian) and law.parameter <= _WIDEST_SUMMAND:
            groups, single = divmod(participants, _GROUP)
            yield from self._in_blocks(law.sum_of(_GROUP), groups)
        yield from self._in_blocks(law, single)

    def _in_blocks(self, law: BallLaw, draws: int) -> Iterator[tuple[BallLaw, int]]:
        at_once = max(1, (1 << 20) // self.coordinates)
        for done in range(0, draws, at_once):
            yield law, min(at_once, draws - done)

    @property
    def _rows_at_once(self) -> int:
        return max(1, (1 << 20) // self.padded_dimension)

    @staticmethod
    def _with_entropy(items: Iterable[Any], entropy: Entropy | None) -> Iterator[tuple[Any, Entropy]]:
        """Pair each item with a stream of randomness.

        The system's entropy serves all threads. Any other is split item by item, so that the draws do not
        depend on how threads are scheduled.
        """
        source = system_entropy() if entropy is None else entropy
        for item in items:
            yield item, source if isinstance(source, SystemEntropy) else source.spawn()
