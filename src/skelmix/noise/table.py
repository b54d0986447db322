"""Exact samples of any certified integer law, nearly as fast as the random bits can be generated.

Sixteen uniform bits select one of 2^16 entries. An entry holds the value wherever the whole interval of its
index lies inside one step of the CDF; elsewhere it holds a sentinel, 48 more bits are drawn, and the 64-bit
number is searched in the certified table floor(F(k)·2^64); where 64 bits leave the answer open (probability
below 2^-40) ball arithmetic and more bits settle it. The sample follows the law exactly: no probability is
rounded anywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.noise.certified import resolve, thresholds
from skelmix.noise.entropy import Entropy, system_entropy
from skelmix.noise.laws import BallLaw, DiscreteGaussianSum
from skelmix.noise.scratch_memory import scratch
from skelmix.validation import whole

CHUNK = 1 << 17  # samples per pass: words, table and output stay in the second-level cache
_BLOCK = 64  # samples checked for open places at a time
_MOST_VARIANCE = 2.1e8  # a Skellam rate of 10^8 has 2·10^8; larger tables would not pay
_MOST_SUMMED = 4e6  # largest copies²·variance of a sum of discrete Gaussians, its polynomial's degree squared
_NEGLIGIBLE = -128 * np.log(2)


@njit(cache=True, nogil=True)
def gather(words: Any, values: Any, sentinel: Any, out: Any, open_: Any) -> int:
    """out[i] = values[words[i]]; the places that hold the sentinel go to `open_`. Returns how many.

    Two plain passes: a loop that gathers and compares at once is several times slower.
    """
    for i in range(words.size):
        out[i] = values[words[i]]
    count = 0
    whole_blocks = words.size // _BLOCK * _BLOCK
    for start in range(0, whole_blocks, _BLOCK):
        any_tie = np.int8(0)
        for i in range(_BLOCK):
            any_tie |= np.int8(out[start + i] == sentinel)
        if any_tie:
            for i in range(start, start + _BLOCK):
                open_[count] = i
                count += out[i] == sentinel
    for i in range(whole_blocks, words.size):
        open_[count] = i
        count += out[i] == sentinel
    return count


@njit(cache=True, nogil=True)
def _search(
    words: Any, places: Any, more: Any, steps: Any, guide: Any, first: int, out: Any, undecided: Any
) -> int:
    """Look up the open places in the 64-bit table: out[j] is the value at places[j].

    Returns how many places even that leaves open: their j go to `undecided`, their 64 bits to more[j].
    """
    count = 0
    last = np.uint64(0xFFFFFFFFFFFFFFFF)
    for j in range(places.size):
        top = np.int64(words[places[j]])
        drawn = (np.uint64(top) << np.uint64(48)) | (more[j] >> np.uint64(16))
        low, high = guide[top], guide[top + 1]
        while low < high:  # the first step >= drawn
            middle = (low + high) >> 1
            if steps[middle] < drawn:
                low = middle + 1
            else:
                high = middle
        out[j] = first + low
        if (low < steps.size and steps[low] == drawn) or drawn == 0 or drawn == last:
            more[j] = drawn
            undecided[count] = j
            count += 1
    return count


class ExactSampler:
    """Draws from one law, exactly. Made by `sampler(law)`; it holds no randomness, threads may share it.

    `dtype` is the smallest signed integer type into which a sample fits but for a probability below 2^-128
    (then OverflowError is raised; nothing wraps or is truncated).
    """

    def __init__(self, law: BallLaw) -> None:
        self.law = law
        first, steps = thresholds(law, 64)
        self.first = first
        self.steps = np.array(steps, dtype=np.uint64)
        low, high = law.support_bound(_NEGLIGIBLE)
        width = next(b for b in (8, 16, 32) if -(1 << (b - 1)) < low and high < 1 << (b - 1))
        self.dtype: np.dtype[Any] = np.dtype(f"int{width}")
        self.largest = (1 << (width - 1)) - 1
        self.sentinel = self.dtype.type(-self.largest - 1)
        self.values, self.guide = self._first_level()

    def _first_level(self) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """The value for each index, and how many steps lie below its interval.

        The interval of an index lies inside one step of the CDF unless it holds a step.
        """
        held = (self.steps >> np.uint64(48)).astype(np.int64)
        runs = np.diff(held, prepend=-1, append=1 << 16)
        guide = np.repeat(np.arange(runs.size, dtype=np.int32), runs)
        values = np.repeat(np.arange(self.first, self.first + runs.size).astype(self.dtype), runs)[:-1]
        values[held] = self.sentinel
        values[0] = values[-1] = self.sentinel  # all zeros and all ones stand for the tails
        return values, guide

    def sample(
        self, shape: int | tuple[int, ...], *, out: NDArray[Any] | None = None, entropy: Entropy | None = None
    ) -> NDArray[Any]:
        """Independent samples of the law, in `out` if given (C-contiguous, signed, no narrower than `dtype`).

        An empty shape gives an empty array; a negative one, or no integer, raises InvalidInput. Memory beyond
        the output is constant (under 3 MiB).
        """
        sizes = shape if isinstance(shape, tuple) else (shape,)
        for size in sizes:
            whole(0, shape=size)
        if out is None:
            out = np.empty(sizes, self.dtype)
        elif out.shape != sizes:
            raise InvalidInput(f"out has shape {out.shape}: must be {sizes}; pass np.empty({sizes}, dtype)")
        if out.dtype.kind != "i" or out.dtype.itemsize < self.dtype.itemsize or not out.flags.c_contiguous:
            raise InvalidInput(
                f"out: must be C-contiguous and of a signed integer dtype no narrower than {self.dtype}"
            )
        flat = out.reshape(-1)
        entropy = system_entropy() if entropy is None else entropy
        with buffers_for(min(CHUNK, flat.size)) as buffers:
            for start in range(0, flat.size, CHUNK):
                self.fill(flat[start : start + CHUNK], buffers, entropy)
        return out

    def fill(self, out: NDArray[Any], buffers: Buffers, entropy: Entropy) -> None:
        """Fill a one-dimensional `out` no longer than the buffers."""
        words = buffers.words[: out.size]
        entropy.fill(words)
        count = gather(words, self.values, self.sentinel, out, buffers.open)
        if count:
            places = buffers.open[:count]
            out[places] = self.settle(words, places, entropy)

    def settle(self, words: NDArray[Any], places: NDArray[Any], entropy: Entropy) -> NDArray[np.int64]:
        """The samples at the places that `gather` left open: 48 more bits each, then as many as it takes."""
        more, values = np.empty(places.size, np.uint64), np.empty(places.size, np.int64)
        undecided = np.empty(places.size, np.int64)
        entropy.fill(more)
        left = _search(words, places, more, self.steps, self.guide, self.first, values, undecided)
        for j in undecided[:left]:
            values[j] = self._extend(int(more[j]), entropy)
        return values

    def _extend(self, drawn: int, entropy: Entropy) -> int:
        value = resolve(
            self.law,
            drawn << 64 | entropy.integers_below(1 << 64),
            128,
            lambda: entropy.integers_below(1 << 64),
        )
        if abs(value) > self.largest:
            raise OverflowError(
                f"a sample of {self.law} does not fit {self.dtype}: an event of probability below 2^-128"
            )
        return value


@dataclass(frozen=True)
class Buffers:
    """Working memory of one sampling loop: uniform words and, for repairs, positions (one more)."""

    words: NDArray[np.uint16]
    open: NDArray[np.int32]


@contextmanager
def buffers_for(size: int) -> Iterator[Buffers]:
    """Buffers for `size` samples, valid within the block."""
    with scratch(size, np.uint16) as words, scratch(size + 1, np.int32) as places:
        yield Buffers(words, places)


@functools.lru_cache(maxsize=128)  # a law that is not closed under sums has one for each size of a cohort
def _sampler(law: BallLaw) -> ExactSampler:
    return ExactSampler(law)


def sampler(law: BallLaw) -> ExactSampler:
    """The exact sampler of a law, from a bounded cache.

    Variances up to 2·10^8 (a Skellam rate of 10^8) are supported. A larger table would not pay:
    `InvalidInput` says what to do instead.
    """
    if isinstance(law, DiscreteGaussianSum) and law.copies**2 * law.parameter > _MOST_SUMMED:
        raise InvalidInput(f"{law!r} has no table: draw its summands, or sums of a few, and add them up")
    about = float(getattr(law, "parameter", 0.0)) or law.variance  # the exact variance is a long sum
    if about > _MOST_VARIANCE:
        raise InvalidInput(
            f"{law!r} has variance {about:.3g}: exact tables reach variance 2e8 (Skellam rate 1e8); "
            "lower the scale or split the noise into a sum of several draws"
        )
    return _sampler(law)


def forget_tables() -> None:
    """Empty the cache, so that a benchmark pays for its tables."""
    _sampler.cache_clear()
    thresholds.cache_clear()
