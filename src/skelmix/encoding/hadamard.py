"""Fast Hadamard transform of one row, entries ±1, not normalised: numba kernels for floats and integers.

A length is 2^j or m·2^j with m = 12, 20 or 28. The matrix is H_2 ⊗ … ⊗ H_2 (Walsh-Hadamard, natural order),
with a factor H_m before the last six (or fewer) H_2 where there is one. It is symmetric, so that it is its
own inverse up to the length.

The transform is one stage per factor, and stages of different factors commute. They are grouped to touch
memory rarely: six stages inside 64 elements held in vector registers, the stage of H_m over 64·m elements and
a few more inside a block that stays in the first-level cache, the rest three at a time over rows that lie
`step` apart, each of which is read contiguously. Integers wrap around.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

from skelmix.encoding.paley import mix

_BLOCK = 4096  # most elements transformed together: 16 KiB of float32, 32 KiB of float64
_TILE = 64


def _tile(elements: int) -> Any:
    """An intrinsic (array, start): all butterfly stages of `elements` neighbours, array[start : ], in place.

    elements: a power of two from 2 to 64. They are held as vectors of eight lanes; where they are fewer than
    eight, the tile is of eight all the same, and transforms 8/elements groups.

    Written as LLVM vectors because the loop vectoriser does not find the stages *inside* a vector.
    """
    count = max(1, elements // 8)
    lane_bits, row_bits = ([bit for bit in (1, 2, 4) if bit < limit] for limit in (elements, count))

    @intrinsic
    def tile(typingctx: Any, array: Any, start: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array_type = signature.args[0]
            view = context.make_array(array_type)(context, builder, args[0])
            vector = ir.VectorType(context.get_data_type(array_type.dtype), 8)
            integer = isinstance(array_type.dtype, types.Integer)
            add, subtract = (builder.add, builder.sub) if integer else (builder.fadd, builder.fsub)
            width = array_type.dtype.bitwidth // 8
            base = builder.gep(view.data, [args[1]])
            lanes = ir.VectorType(ir.IntType(32), 8)
            places = [
                builder.bitcast(builder.gep(base, [ir.Constant(ir.IntType(64), 8 * i)]), vector.as_pointer())
                for i in range(count)
            ]
            rows = [builder.load(place, align=width) for place in places]
            for bit in lane_bits:
                swap = ir.Constant(lanes, [lane ^ bit for lane in range(8)])
                if integer:
                    pick = ir.Constant(lanes, [lane + (lane & bit and 8) for lane in range(8)])
                    zero = ir.Constant(vector, [0] * 8)
                    signed = [builder.shuffle_vector(row, builder.sub(zero, row), pick) for row in rows]
                else:
                    # x·(±1) + y is exact before its one rounding, fused or not: contraction changes nothing
                    signs = ir.Constant(vector, [-1.0 if lane & bit else 1.0 for lane in range(8)])
                    signed = [builder.fmul(row, signs, flags=("contract",)) for row in rows]
                swapped = [builder.shuffle_vector(row, row, swap) for row in rows]
                flags = () if integer else ("contract",)
                rows = [add(upper, other, flags=flags) for upper, other in zip(signed, swapped, strict=True)]
            for bit in row_bits:
                rows = [
                    subtract(rows[i ^ bit], rows[i]) if i & bit else add(rows[i], rows[i ^ bit])
                    for i in range(count)
                ]
            for row, place in zip(rows, places, strict=True):
                builder.store(row, place, align=width)
            return context.get_dummy_value()

        return types.void(array, start), codegen

    return tile


_tile2, _tile4, _tile8, _tile16, _tile32, _tile64 = (_tile(1 << i) for i in range(1, 7))


@njit(nogil=True, cache=True)
def _tiles(x: Any, inner: int) -> None:
    """All stages of each `inner` neighbours of x, 1 to 64; x is a multiple of 8 long if inner > 1."""
    if inner == 1:
        return
    for start in range(0, x.size, max(inner, 8)):
        if inner == 64:
            _tile64(x, start)
        elif inner == 32:
            _tile32(x, start)
        elif inner == 16:
            _tile16(x, start)
        elif inner == 8:
            _tile8(x, start)
        elif inner == 4:
            _tile4(x, start)
        else:
            _tile2(x, start)


@njit(inline="always")
def _butterfly8(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, kind: Any) -> Any:
    """Three stages on eight numbers; `kind` keeps each sum in their own type, since numba widens int32."""
    a, b, c, d = kind(a + b), kind(a - b), kind(c + d), kind(c - d)
    e, f, g, h = kind(e + f), kind(e - f), kind(g + h), kind(g - h)
    a, b, c, d = kind(a + c), kind(b + d), kind(a - c), kind(b - d)
    e, f, g, h = kind(e + g), kind(f + h), kind(e - g), kind(f - h)
    return a + e, b + f, c + g, d + h, a - e, b - f, c - g, d - h


@njit(nogil=True, cache=True)
def _stages(x: Any, step: int) -> None:
    """All stages of x whose butterflies span `step` or more, three at a time.

    x is one-dimensional, `step` times a power of two long.
    """
    n = x.size
    kind = x.dtype.type
    while step * 8 <= n:
        for i in range(0, n, 8 * step):
            r0, r1, r2, r3 = x[i : i + step], x[i + step :], x[i + 2 * step :], x[i + 3 * step :]
            r4, r5, r6, r7 = x[i + 4 * step :], x[i + 5 * step :], x[i + 6 * step :], x[i + 7 * step :]
            for j in range(step):
                r0[j], r1[j], r2[j], r3[j], r4[j], r5[j], r6[j], r7[j] = _butterfly8(
                    r0[j], r1[j], r2[j], r3[j], r4[j], r5[j], r6[j], r7[j], kind
                )
        step *= 8
    while step < n:
        for i in range(0, n, 2 * step):
            low, high = x[i : i + step], x[i + step : i + 2 * step]
            for j in range(step):
                low[j], high[j] = low[j] + high[j], low[j] - high[j]
        step *= 2


@njit(nogil=True, cache=True)
def layout(length: int) -> tuple[int, int, int]:
    """How a length is transformed: (m, step, block).

    m: order of the factor that is not a power of two (1: none). step: distance between its rows. block: the
    elements that are transformed together.
    """
    odd = length
    while odd % 2 == 0:
        odd //= 2
    if odd == 1:
        return 1, 1, min(length, _BLOCK)
    order = 4 * odd
    step = min(length // order, _TILE)
    block = order * step
    while 2 * block <= min(length, _BLOCK):
        block *= 2
    return order, step, block


@njit(nogil=True, cache=True)
def transform_block(x: Any, order: int, step: int) -> None:
    """The transform of one block (1-D, `layout`) in place."""
    inner = min(x.size, _TILE) if order == 1 else step
    if x.size < 8:
        _stages(x, 1)
        return
    _tiles(x, inner)
    if order > 1:
        mix(x, order, step)
        inner = order * step
    _stages(x, inner)


@njit(nogil=True, cache=True)
def finish(x: Any, block: int) -> None:
    """The stages that span blocks, for x whose blocks are transformed, in place."""
    _stages(x, block)
