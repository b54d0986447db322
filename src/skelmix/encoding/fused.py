"""A participant's whole side in one pass over each vector (Bao et al. 2022, Algorithm 4).

Rotate, scale, choose coordinates, clip, round, add noise, wrap: row by row, so that a row stays in the cache
from the first step to the last.

It is made of the kernels of `rotation`, `subset`, `clipping`, `rounding` and of the noise table: step by step
they give the same integers from the same random words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.encoding.clipping import clip_l2_rows, clip_linf_rows, float_at_most, product_error, refuse_row
from skelmix.encoding.rotation import padded, rotate_rows, rotation_factor, rotation_signs
from skelmix.encoding.rounding import (
    add_at,
    bit_patterns,
    floats_of,
    mask_word,
    wrap_chunk,
    wrap_mask,
)
from skelmix.encoding.subset import choose, gather_line
from skelmix.encoding.ties import settle_ties
from skelmix.noise.entropy import Entropy
from skelmix.noise.scratch_memory import scratch
from skelmix.noise.table import ExactSampler, buffers_for, gather

_ALL = np.empty(0, np.int32)  # stands for "all coordinates"
_ALL.setflags(write=False)


def encode_rows(
    rows: NDArray[Any],
    seed: bytes,
    round: int,
    *,
    scale: float,
    l2: float,
    linf: float,
    sampler: ExactSampler,
    out: NDArray[Any],
    bits: int,
    entropy: Entropy,
) -> None:
    """Encode each row: out = (clipped and rounded scale·H·D·row, plus noise) mod 2^bits.

    The clip is to norm `l2` and then to `linf` per coordinate.

    rows is a C-contiguous (n, d) array of float32 or float64, `out` C-contiguous and unsigned, (n, padded d),
    or (n, keep): then only the round's subset of coordinates is clipped and sent. linf may be infinite. Meant
    for about 2^20 coordinates at once. A row with NaN or infinity raises `InvalidInput`, and `out` is void
    then.
    """
    length, width, kind = padded(rows.shape[1]), out.shape[1], rows.dtype
    places = _ALL if width == length else choose(seed, round, length, width)
    floats, mask = floats_of(kind), wrap_mask(out.dtype, bits)
    with (
        scratch(out.shape, kind) as x,
        scratch((1, length if places.size else 0), kind) as turned,
        buffers_for(x.size) as rounds,
        buffers_for(x.size) as draws,
        scratch(width, sampler.dtype) as noise,
    ):
        entropy.fill(draws.words)
        entropy.fill(rounds.words)
        bad, ties, left_out = _encode_lines(
            rows,
            rotation_signs(seed, round, length),
            rotation_factor(scale, length, kind),
            turned,
            places,
            l2,
            product_error(kind),
            float_at_most(linf, kind),
            x,
            bit_patterns(x),
            floats,
            rounds.words,
            draws.words,
            sampler.values,
            sampler.sentinel,
            noise,
            mask_word(mask),
            out,
            rounds.open,
            draws.open,
        )
        refuse_row(bad)
        flat = out.reshape(-1)
        if left_out:
            places = draws.open[:left_out]
            add_at(flat, places, sampler.settle(draws.words, places, entropy), mask)
        if ties:
            places = rounds.open[:ties]
            add_at(flat, places, settle_ties(x.reshape(-1), places, floats, entropy), mask)


@njit(nogil=True, cache=True)
def _encode_lines(
    rows: Any, signs: Any, factor: Any, turned: Any, places: Any, l2: float, error: float, linf: Any, x: Any,
    raw: Any, floats: Any, words: Any, draws: Any, values: Any, sentinel: Any, noise: Any, mask: Any,
    out: Any, ties: Any, open_: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Encode all rows; what is left open is returned for the caller to settle.

    Returns the row that is not finite (-1: none), the number of ties, and the number of places whose noise is
    still open and not yet added.
    """
    width = x.shape[1]
    changed, squares = np.zeros(1, np.bool_), np.zeros(1)
    tied, left_out = 0, 0
    for row in range(x.shape[0]):
        base, line = row * width, x[row : row + 1]
        if places.size == 0:
            rotate_rows(rows[row : row + 1], signs, factor, line)
        else:
            rotate_rows(rows[row : row + 1], signs, factor, turned)
            gather_line(turned[0], places, x[row])
        if clip_l2_rows(line, l2, error, changed, squares) >= 0:
            return row, 0, 0
        if linf < np.inf:
            clip_linf_rows(line, linf)
        open_count = gather(draws[base : base + width], values, sentinel, noise, open_[left_out:])
        for j in range(left_out, left_out + open_count):
            noise[open_[j]] = 0
            open_[j] += base
        left_out += open_count
        row_words = words[base : base + width]
        open_count = wrap_chunk(x[row], raw[row], floats, row_words, noise, mask, out[row], ties[tied:])
        if open_count < 0:
            return row, 0, 0
        for j in range(tied, tied + open_count):
            ties[j] += base
        tied += open_count
    return -1, tied, left_out
