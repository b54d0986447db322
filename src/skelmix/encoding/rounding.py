"""Exact stochastic rounding: a real number to one of its two neighbouring integers, without bias.

|x| = k + p is rounded to k + 1 with probability p, else to k, and the sign is put back. In binary floating
point p is an exact binary fraction: uniform bits are added to its bits, sixteen first, and a carry rounds
up; sixteen ones are a tie, and more bits decide. The main pass has no branches and vectorises; ties (one
coordinate in 65,536) are settled afterwards. No probability is rounded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from skelmix.encoding.threads import for_each
from skelmix.encoding.ties import cut_bits, settle_ties
from skelmix.errors import InvalidInput
from skelmix.noise.entropy import Entropy, system_entropy
from skelmix.noise.scratch_memory import scratch
from skelmix.noise.table import ExactSampler, buffers_for

_CHUNK = 1 << 20  # coordinates per pass: few crossings of the interpreter's lock, still in the shared cache
_TILE = 1 << 12  # columns whose sum stays in the first-level cache while several rows are added
_MOST_ROWS = 1 << 15  # as many small values add up within 32 bits
_BLOCK = 1 << 10  # coordinates that are searched again when one of them may have tied
_PARALLEL = 1 << 21  # with fewer coordinates, threads cost more than they save
_PARTS = 4  # fixed, so that a reproducible run does not depend on the number of cores
_LARGEST = 2**31 - 1
_NARROW = 2**15 - 2  # largest magnitude that, times 2^16 and plus sixteen bits, fits 32 bits
_ONES = 0xFFFF


class Floats(NamedTuple):
    """The constants of a float type that the kernels need; the last three are bit patterns."""

    unit: Any  # 2^16
    sign_off: Any
    narrow: Any  # up to here 32 bits do
    largest: Any


def floats_of(dtype: np.dtype[Any], largest: int = _LARGEST) -> Floats:
    """The constants for float32 or float64, magnitudes up to `largest`."""
    integer = _integer(dtype)
    below = dtype.type(largest)
    if float(below) > largest:  # 2^31 - 1 is no float32
        below = np.nextafter(below, dtype.type(0))
    sign_off = integer.type((1 << (8 * integer.itemsize - 1)) - 1)
    return Floats(dtype.type(65536.0), sign_off, dtype.type(_NARROW).view(integer), below.view(integer))


def bit_patterns(x: NDArray[Any]) -> NDArray[Any]:
    """The same memory as signed integers."""
    return x.view(_integer(x.dtype))


def _integer(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.int32 if dtype == np.float32 else np.int64)


def _too_large() -> InvalidInput:
    return InvalidInput(
        f"x has NaN, infinity or a magnitude above {_LARGEST} (2^31 - 1): lower the scale; discard the output"
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _largest(raw: Any, sign_off: Any) -> Any:
    """The largest bit pattern without sign: orders floats by magnitude, with infinity and NaN on top."""
    top = raw[0] & sign_off
    for i in range(raw.size):
        top = max(top, raw[i] & sign_off)
    return top


@njit(cache=True, nogil=True, inline="always")
def _drawn(magnitude: Any, word: Any, unit: Any, kind: Any) -> Any:
    """The magnitude times 2^16 without its lower bits, plus sixteen uniform bits (the word, inverted).

    The upper bits are the rounded magnitude; if the lower ones are all ones, a tie is possible.
    """
    return kind(kind(magnitude * unit) + (kind(word) ^ kind(_ONES)))


@njit(cache=True, nogil=True, error_model="numpy")
def _add_block(x: Any, words: Any, unit: Any, total: Any, kind: Any) -> Any:
    """total += x rounded, ties taken towards zero. Returns whether there may be a tie."""
    most, ones, zero = kind(0), kind(_ONES), unit - unit
    for i in range(x.size):
        drawn = _drawn(abs(x[i]), words[i], unit, kind)
        rounded = np.int32(drawn >> kind(16))
        total[i] += -rounded if x[i] < zero else rounded
        most = max(most, kind(drawn & ones))
    return most == ones


@njit(cache=True, nogil=True, error_model="numpy")
def _wrap_block(x: Any, words: Any, unit: Any, noise: Any, mask: Any, out: Any, kind: Any) -> Any:
    """out = (x rounded + noise) & mask, ties taken towards zero. Returns whether there may be a tie."""
    most, ones, zero = kind(0), kind(_ONES), unit - unit
    for i in range(x.size):
        drawn = _drawn(abs(x[i]), words[i], unit, kind)
        rounded = np.int32(drawn >> kind(16))
        out[i] = np.int32((-rounded if x[i] < zero else rounded) + np.int32(noise[i])) & mask
        most = max(most, kind(drawn & ones))
    return most == ones


@njit(cache=True, nogil=True)
def _collect(x: Any, words: Any, unit: Any, base: int, open_: Any, count: int) -> int:
    """Append base + i for each true tie: equal leading bits, and bits of p left."""
    for i in range(x.size):
        cut = cut_bits(abs(x[i]), unit)
        if np.int32(cut) == np.int32(words[i]) and cut > np.floor(cut):
            open_[count] = base + i
            count += 1
    return count


@njit(cache=True, nogil=True)
def _add_rows(
    x: Any, raw: Any, floats: Any, left: int, width: int, words: Any, total: Any, tile: Any, open_: Any
) -> int:
    """Add columns left..left+width of every row of x (_MOST_ROWS at most) into `total`, tile by tile.

    Small values are added in 32 bits first. Returns the number of ties, -1 if a value is too large.
    """
    count = 0
    for begin in range(0, width, _TILE):
        edge = min(begin + _TILE, width)
        tile[:] = 0
        for row in range(x.shape[0]):
            for start in range(begin, edge, _BLOCK):
                stop = min(start + _BLOCK, edge)
                top = _largest(raw[row, left + start : left + stop], floats.sign_off)
                if top > floats.largest:
                    return -1
                piece = x[row, left + start : left + stop]
                base = row * width + start
                piece_words = words[base : base + stop - start]
                if top <= floats.narrow:
                    tied = _add_block(
                        piece, piece_words, floats.unit, tile[start - begin : stop - begin], np.int32
                    )
                else:
                    tied = _add_block(
                        piece, piece_words, floats.unit, total[left + start : left + stop], np.int64
                    )
                if tied:
                    count = _collect(piece, piece_words, floats.unit, base, open_, count)
        sums = total[left + begin : left + edge]
        for i in range(sums.size):
            sums[i] += tile[i]
    return count


@njit(cache=True, nogil=True)
def wrap_chunk(x: Any, raw: Any, floats: Any, words: Any, noise: Any, mask: Any, out: Any, open_: Any) -> int:
    """out = (x rounded + noise) & mask. Returns the number of ties, -1 if a value is too large."""
    count = 0
    for start in range(0, x.size, _BLOCK):
        stop = min(start + _BLOCK, x.size)
        top = _largest(raw[start:stop], floats.sign_off)
        if top > floats.largest:
            return -1
        piece, piece_words = x[start:stop], words[start:stop]
        if top <= floats.narrow:
            tied = _wrap_block(
                piece, piece_words, floats.unit, noise[start:stop], mask, out[start:stop], np.int32
            )
        else:
            tied = _wrap_block(
                piece, piece_words, floats.unit, noise[start:stop], mask, out[start:stop], np.int64
            )
        if tied:
            count = _collect(piece, piece_words, floats.unit, start, open_, count)
    return count


def _checked(x: Any) -> NDArray[Any]:
    array = np.asarray(x)
    if array.dtype not in (np.float32, np.float64):
        raise InvalidInput(f"x has dtype {array.dtype}: must be float32 or float64")
    return np.asarray(array, order="C")


def _cuts(size: int, grain: int) -> list[tuple[int, int]]:
    step = -(-size // (_PARTS * grain)) * grain
    return [(start, min(start + step, size)) for start in range(0, size, step)]


def round_into_sum(x: Any, accumulator: NDArray[Any], entropy: Entropy | None = None) -> None:
    """Add every row of x, each coordinate stochastically rounded on its own, exactly, to `accumulator`.

    x is float32 or float64, (d,) or (k, d); `accumulator` is a C-contiguous int32 or int64 array (d,). An
    int32 sum wraps modulo 2^32 (harmless for a modulus of up to 32 bits). Zero rows change nothing. NaN,
    infinity and magnitudes above 2^31 - 1 raise InvalidInput, and the accumulator is void then.
    """
    rows = np.atleast_2d(_checked(x))
    if accumulator.dtype not in (np.int32, np.int64) or not accumulator.flags.c_contiguous:
        raise InvalidInput("accumulator: must be a C-contiguous int32 or int64 array")
    if rows.ndim != 2 or accumulator.shape != rows.shape[1:]:
        raise InvalidInput(
            f"x has shape {np.shape(x)}, accumulator {accumulator.shape}: must be (k, d) and (d,)"
        )
    entropy = system_entropy() if entropy is None else entropy
    width = rows.shape[1]
    if rows.size == 0:
        return
    if rows.size < _PARALLEL or width < _PARTS * _BLOCK:
        _add_columns(rows, 0, width, accumulator, entropy)
        return

    parts = [(left, right, entropy.spawn()) for left, right in _cuts(width, _BLOCK)]
    for_each(parts, lambda part: _add_columns(rows, part[0], part[1], accumulator, part[2]))


def _add_columns(rows: NDArray[Any], left: int, right: int, total: NDArray[Any], entropy: Entropy) -> None:
    floats, raw = floats_of(rows.dtype), bit_patterns(rows)
    step = min(_CHUNK, right - left)
    several = min(_CHUNK // step, _MOST_ROWS)
    with buffers_for(step * min(several, rows.shape[0])) as buffers, scratch(_TILE, np.int32) as tile:
        for start in range(left, right, step):
            width = min(step, right - start)
            for top in range(0, rows.shape[0], several):
                block = rows[top : top + several]
                words = buffers.words[: block.shape[0] * width]
                entropy.fill(words)
                bits = raw[top : top + several]
                ties = _add_rows(block, bits, floats, start, width, words, total, tile, buffers.open)
                if ties < 0:
                    raise _too_large()
                if ties:
                    row, column = np.divmod(buffers.open[:ties], width)
                    column += start
                    places = row.astype(np.int64) * rows.shape[1] + column
                    np.add.at(total, column, settle_ties(block.reshape(-1), places, floats, entropy))


def round_and_noise(
    x: Any,
    sampler: ExactSampler | None,
    out: NDArray[Any],
    entropy: Entropy | None = None,
    *,
    bits: int | None = None,
) -> NDArray[Any]:
    """out = (x stochastically rounded + a sample of the law) for each coordinate, in one pass; returns `out`.

    x is float32 or float64 of any shape, `out` C-contiguous of the same shape. An unsigned `out` holds the
    result modulo 2^bits (bits: its full width unless given); a signed one (int32, int64) the integer
    itself. Exact: see the module. Without a sampler it rounds only. Magnitudes above 2^31 - 1 (2^30 for a
    signed `out` with noise), NaN and infinity raise InvalidInput, and `out` is void then.
    """
    values = _checked(x)
    if out.shape != values.shape or not out.flags.c_contiguous:
        raise InvalidInput(
            f"out has shape {out.shape}: must be C-contiguous and of the shape of x, {values.shape}"
        )
    mask = wrap_mask(out.dtype, bits)
    entropy = system_entropy() if entropy is None else entropy
    largest = 1 << 30 if mask < 0 and sampler is not None else _LARGEST  # the sum fits 32 bits
    flat, target = values.reshape(-1), out.reshape(-1)
    if flat.size < _PARALLEL:
        _wrap_range(flat, sampler, target, mask, largest, entropy)
        return out

    def encode_part(part: tuple[int, int, Entropy]) -> None:
        left, right, own = part
        _wrap_range(flat[left:right], sampler, target[left:right], mask, largest, own)

    for_each([(left, right, entropy.spawn()) for left, right in _cuts(flat.size, _CHUNK)], encode_part)
    return out


def mask_word(mask: int) -> np.int32:
    """The lower 32 bits of a mask, as the kernels take it."""
    return np.uint32(mask & 0xFFFFFFFF).view(np.int32)


def wrap_mask(dtype: np.dtype[Any], bits: int | None) -> int:
    if dtype in (np.int32, np.int64) and bits is None:
        return -1
    if dtype.kind != "u" or dtype.itemsize > 4:
        raise InvalidInput(
            f"out has dtype {dtype}: must be uint8, uint16 or uint32, or int32 or int64 without bits"
        )
    width = 8 * dtype.itemsize
    if bits is not None and not 1 <= bits <= width:
        raise InvalidInput(f"bits = {bits}: must be in 1..{width} for {dtype}")
    return (1 << (width if bits is None else bits)) - 1


def _wrap_range(
    x: NDArray[Any],
    sampler: ExactSampler | None,
    out: NDArray[Any],
    mask: int,
    largest: int,
    entropy: Entropy,
) -> None:
    floats, raw = floats_of(x.dtype, largest), bit_patterns(x)
    size = min(_CHUNK, x.size)
    with buffers_for(size) as buffers, scratch(size, np.int8 if sampler is None else sampler.dtype) as noise:
        if sampler is None:
            noise[:] = 0
        for start in range(0, x.size, _CHUNK):
            piece, target = x[start : start + _CHUNK], out[start : start + _CHUNK]
            drawn = noise[: piece.size]
            if sampler is not None:
                sampler.fill(drawn, buffers, entropy)
            words = buffers.words[: piece.size]
            entropy.fill(words)
            bits = raw[start : start + _CHUNK]
            ties = wrap_chunk(piece, bits, floats, words, drawn, mask_word(mask), target, buffers.open)
            if ties < 0:
                raise _too_large()
            if ties:
                tied = buffers.open[:ties]
                steps = settle_ties(piece, tied, floats, entropy)
                add_at(target, tied, steps, mask)


def add_at(out: NDArray[Any], places: NDArray[Any], values: NDArray[np.int64], mask: int) -> None:
    """out[places] += values, keeping the bits of the mask; no place twice."""
    out[places] = ((out[places].astype(np.int64) + values) & mask).astype(out.dtype)


def round_stochastic(
    x: Any, *, out: NDArray[Any] | None = None, entropy: Entropy | None = None
) -> NDArray[Any]:
    """x stochastically rounded, exactly, as int32 (or into an `out` as in `round_and_noise`).

    E[result] = x and |result - x| < 1 for every coordinate; integers stay as they are.
    """
    target = np.empty(np.shape(x), np.int32) if out is None else out
    return round_and_noise(x, None, target, entropy)
