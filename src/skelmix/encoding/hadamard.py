"""Fast Walsh-Hadamard transform of one row, natural (Sylvester) order, not normalised: numba kernels.

The transform is log2(d) butterfly stages, one per bit of the index, and stages on different bits commute.
They are grouped to touch memory rarely: six stages inside 64 elements held in vector registers, up to six
more inside a block that stays in the first-level cache, the rest three at a time over rows that lie `step`
apart, each of which is read contiguously.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

BLOCK = 4096  # elements transformed together: 16 KiB of float32, 32 KiB of float64
_TILE = 64


@intrinsic
def _tile_in_registers(typingctx: Any, array: Any, start: Any) -> Any:
    """Six butterfly stages on array[start : start + 64] (1-D, C-contiguous), as eight vectors of eight lanes.

    Written as LLVM vectors because the loop vectoriser does not find the three stages *inside* a vector.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array_type = signature.args[0]
        view = context.make_array(array_type)(context, builder, args[0])
        scalar = context.get_data_type(array_type.dtype)
        vector = ir.VectorType(scalar, 8)
        width = 4 if array_type.dtype == types.float32 else 8
        base = builder.gep(view.data, [args[1]])
        places = [
            builder.bitcast(builder.gep(base, [ir.Constant(ir.IntType(64), 8 * i)]), vector.as_pointer())
            for i in range(8)
        ]
        rows = [builder.load(place, align=width) for place in places]
        for bit in (1, 2, 4):
            swap = ir.Constant(ir.VectorType(ir.IntType(32), 8), [lane ^ bit for lane in range(8)])
            signs = ir.Constant(vector, [-1.0 if lane & bit else 1.0 for lane in range(8)])
            rows = [
                # x·(±1) + y is exact before its one rounding, fused or not: contraction changes no result
                builder.fadd(
                    builder.fmul(row, signs, flags=("contract",)),
                    builder.shuffle_vector(row, row, swap),
                    flags=("contract",),
                )
                for row in rows
            ]
        for bit in (1, 2, 4):
            rows = [
                builder.fsub(rows[i ^ bit], rows[i]) if i & bit else builder.fadd(rows[i], rows[i ^ bit])
                for i in range(8)
            ]
        for row, place in zip(rows, places, strict=True):
            builder.store(row, place, align=width)
        return context.get_dummy_value()

    return types.void(array, start), codegen


@njit(inline="always")
def _butterfly8(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    a, b, c, d, e, f, g, h = a + b, a - b, c + d, c - d, e + f, e - f, g + h, g - h
    a, b, c, d, e, f, g, h = a + c, b + d, a - c, b - d, e + g, f + h, e - g, f - h
    return a + e, b + f, c + g, d + h, a - e, b - f, c - g, d - h


@njit(nogil=True, cache=True)
def _stages(x: Any, step: int) -> None:
    """All stages of x (1-D, length a power of two) whose butterflies span `step` or more, three at a time."""
    n = x.size
    while step * 8 <= n:
        for i in range(0, n, 8 * step):
            r0, r1, r2, r3 = x[i : i + step], x[i + step :], x[i + 2 * step :], x[i + 3 * step :]
            r4, r5, r6, r7 = x[i + 4 * step :], x[i + 5 * step :], x[i + 6 * step :], x[i + 7 * step :]
            for j in range(step):
                r0[j], r1[j], r2[j], r3[j], r4[j], r5[j], r6[j], r7[j] = _butterfly8(
                    r0[j], r1[j], r2[j], r3[j], r4[j], r5[j], r6[j], r7[j]
                )
        step *= 8
    while step < n:
        for i in range(0, n, 2 * step):
            low, high = x[i : i + step], x[i + step : i + 2 * step]
            for j in range(step):
                low[j], high[j] = low[j] + high[j], low[j] - high[j]
        step *= 2


@njit(nogil=True, cache=True)
def transform_block(x: Any) -> None:
    """The unnormalised transform of one block of at most BLOCK elements (1-D, length a power of two), in
    place."""
    n = x.size
    if n < _TILE:
        _stages(x, 1)
        return
    for i in range(0, n, _TILE):
        _tile_in_registers(x, i)  # type: ignore[call-arg]
    _stages(x, _TILE)


@njit(nogil=True, cache=True)
def finish(x: Any) -> None:
    """The stages that span blocks, for x whose blocks are transformed, in place."""
    _stages(x, BLOCK)
