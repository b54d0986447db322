"""Hadamard matrices of orders 12, 20 and 28: with powers of two they give rotations of almost any length.

Paley's second construction: a symmetric conference matrix C of order h (zeros on the diagonal, ±1 elsewhere,
C² = (h - 1)·I) makes H = [[C + I, C - I], [C - I, -C - I]] of order 2h, with entries ±1, H = Hᵀ and
H² = 2h·I. So H is its own transpose, and a decoder applies the same matrix as the encoder. C comes from the
squares of a finite field of h - 1 elements: 5, 9 or 13.

The kernels apply H to rows that lie `step` apart. With u = a + b and v = a - b for the two halves (a, b),
H·(a, b) = (C·u + v, C·v - u): half the additions of the whole matrix.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

ORDERS = (12, 20, 28)
"""The available orders: 1.5·8, 1.25·16 and 1.75·16."""

_FIELDS = {12: (5, 1), 20: (3, 2), 28: (13, 1)}  # order -> (p, degree) of the field


@lru_cache
def conference_matrix(order: int) -> NDArray[np.int8]:
    """The symmetric conference matrix C of half the order.

    C_ij = 1 if the difference of the field's elements i and j is a square, -1 if it is not, bordered by ones.
    """
    prime, degree = _FIELDS[order]
    elements = [(a, b) for b in range(prime if degree == 2 else 1) for a in range(prime)]

    def product(x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
        """The product in the field of nine elements, a + b·i with i² = -1 (-1 is no square modulo 3)."""
        return (x[0] * y[0] - x[1] * y[1]) % prime, (x[0] * y[1] + x[1] * y[0]) % prime

    squares = {product(x, x) for x in elements} - {(0, 0)}
    matrix = np.ones((order // 2, order // 2), np.int8)
    for i, x in enumerate(elements):
        for j, y in enumerate(elements):
            difference = (x[0] - y[0]) % prime, (x[1] - y[1]) % prime
            matrix[i + 1, j + 1] = 1 if difference in squares else -1
    np.fill_diagonal(matrix, 0)
    matrix.setflags(write=False)
    return matrix


def _mixer(order: int, lanes: int) -> Any:
    """An intrinsic (array, start, step): x = H·x for the `order` rows array[start + i·step : … + lanes].

    The rows are read before any is written. Unrolled, on vectors: the additions are those of the matrix.
    """
    half, rows_of_c = order // 2, conference_matrix(order).tolist()

    @intrinsic
    def mix(typingctx: Any, array: Any, start: Any, step: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array_type = signature.args[0]
            kind = array_type.dtype
            view = context.make_array(array_type)(context, builder, args[0])
            scalar = context.get_data_type(kind)
            vector = scalar if lanes == 1 else ir.VectorType(scalar, lanes)
            add, subtract = (
                (builder.add, builder.sub)
                if isinstance(kind, types.Integer)
                else (builder.fadd, builder.fsub)
            )
            places, offset = [], args[1]
            for _ in range(order):
                place = builder.gep(view.data, [offset])
                places.append(builder.bitcast(place, vector.as_pointer()))
                offset = builder.add(offset, args[2])
            rows = [builder.load(place, align=kind.bitwidth // 8) for place in places]
            u = [add(rows[i], rows[half + i]) for i in range(half)]
            v = [subtract(rows[i], rows[half + i]) for i in range(half)]
            for i, signs in enumerate(rows_of_c):
                lead = 1 if i == 0 else 0  # C_ij = 1 there
                upper, lower = v[i], subtract(v[lead], u[i])
                for j, sign in enumerate(signs):
                    combine = add if sign > 0 else subtract
                    upper = combine(upper, u[j]) if sign else upper
                    lower = combine(lower, v[j]) if sign and j != lead else lower
                builder.store(upper, places[i], align=kind.bitwidth // 8)
                builder.store(lower, places[half + i], align=kind.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(array, start, step), codegen

    return mix


_mix12_by_8, _mix20_by_8, _mix28_by_8 = (_mixer(order, 8) for order in ORDERS)
_mix12_by_4, _mix20_by_4, _mix28_by_4 = (_mixer(order, 4) for order in ORDERS)
_mix12_by_1, _mix20_by_1, _mix28_by_1 = (_mixer(order, 1) for order in ORDERS)


@njit(nogil=True, cache=True)
def mix(x: Any, order: int, step: int) -> None:
    """Apply H of this order (12, 20 or 28) in place: x = (I ⊗ H ⊗ I_step)·x.

    H acts across rows of `step` elements, for each group of order·step elements of x (1-D).
    """
    lanes = 8 if step % 8 == 0 else 4 if step % 4 == 0 else 1
    for group in range(0, x.size, order * step):
        for start in range(group, group + step, lanes):
            if lanes == 8:
                _mix_8_lanes(x, order, start, step)
            elif lanes == 4:
                _mix_4_lanes(x, order, start, step)
            else:
                _mix_1_lane(x, order, start, step)


@njit(inline="always")
def _mix_8_lanes(x: Any, order: int, start: int, step: int) -> None:
    if order == 12:
        _mix12_by_8(x, start, step)
    elif order == 20:
        _mix20_by_8(x, start, step)
    else:
        _mix28_by_8(x, start, step)


@njit(inline="always")
def _mix_4_lanes(x: Any, order: int, start: int, step: int) -> None:
    if order == 12:
        _mix12_by_4(x, start, step)
    elif order == 20:
        _mix20_by_4(x, start, step)
    else:
        _mix28_by_4(x, start, step)


@njit(inline="always")
def _mix_1_lane(x: Any, order: int, start: int, step: int) -> None:
    if order == 12:
        _mix12_by_1(x, start, step)
    elif order == 20:
        _mix20_by_1(x, start, step)
    else:
        _mix28_by_1(x, start, step)
