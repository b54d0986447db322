"""Forward and backward pass of a stack of linear layers, one record at a time: numba kernels.

A batched matrix product may change the last bits of one row with the number of rows and with the row's place
among them. These kernels see one record at a time, keep a fixed order of additions and allow the compiler no
reordering and no fused operations. So a record's result is a sequence of IEEE operations on that record and
the weights alone, whatever other records come with it.

The stack is a list of operations (`Stack`). Values between operations lie end to end in one scratch line.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

LINEAR, IDENTITY, RELU, LEAKY_RELU, TANH, SIGMOID, SILU, ELU, SOFTPLUS, GELU, GELU_TANH = range(11)
_HALF_ROOT_2, _DENSITY_AT_0 = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)
_GELU_SCALE, _GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


class Stack(NamedTuple):
    """A stack as the kernels read it, one entry per operation."""

    codes: NDArray[np.int64]
    inputs: NDArray[np.int64]  # width before the operation
    outputs: NDArray[np.int64]  # width after it
    weights_at: NDArray[np.int64]  # place of a linear layer's weights in the vector of all weights
    has_bias: NDArray[np.bool_]
    parameters: NDArray[np.float64]  # (operations, 2): of an activation
    values_at: NDArray[np.int64]  # place of the operation's result in the scratch line


@njit(nogil=True, cache=True, error_model="numpy")
def _activate(code: int, x: float, first: float, second: float) -> float:
    """The activation's value; NaN stays NaN."""
    if code == RELU:
        return 0.0 if x <= 0.0 else x
    if code == LEAKY_RELU:
        return first * x if x <= 0.0 else x
    if code == TANH:
        return math.tanh(x)
    if code == SIGMOID:
        return 1.0 / (1.0 + math.exp(-x))
    if code == SILU:
        return x / (1.0 + math.exp(-x))
    if code == ELU:
        return first * math.expm1(x) if x <= 0.0 else x
    if code == SOFTPLUS:
        return x if first * x > second else math.log1p(math.exp(first * x)) / first
    if code == GELU:
        return 0.5 * x * (1.0 + math.erf(x * _HALF_ROOT_2))
    if code == GELU_TANH:
        return 0.5 * x * (1.0 + math.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x)))
    return x


@njit(nogil=True, cache=True, error_model="numpy")
def _derivative(code: int, x: float, first: float, second: float) -> float:
    """The activation's derivative at x."""
    if code == RELU:
        return 0.0 if x <= 0.0 else 1.0
    if code == LEAKY_RELU:
        return first if x <= 0.0 else 1.0
    if code == TANH:
        value = math.tanh(x)
        return 1.0 - value * value
    if code == SIGMOID:
        value = 1.0 / (1.0 + math.exp(-x))
        return value * (1.0 - value)
    if code == SILU:
        value = 1.0 / (1.0 + math.exp(-x))
        return value * (1.0 + x * (1.0 - value))
    if code == ELU:
        return first * math.exp(x) if x <= 0.0 else 1.0
    if code == SOFTPLUS:
        return 1.0 if first * x > second else 1.0 / (1.0 + math.exp(-first * x))
    if code == GELU:
        density = _DENSITY_AT_0 * math.exp(-0.5 * x * x)
        return 0.5 * (1.0 + math.erf(x * _HALF_ROOT_2)) + x * density
    if code == GELU_TANH:
        value = math.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x))
        slope = _GELU_SCALE * (1.0 + 3.0 * _GELU_CUBE * x * x)
        return 0.5 * (1.0 + value) + 0.5 * x * (1.0 - value * value) * slope
    return 1.0


@njit(nogil=True, cache=True)
def _add_columns(matrix: Any, x: Any, out: Any) -> None:
    """out += Σ_i x[i]·matrix[i], the rows added in their order, four per pass; (n, m), (n,), (m,)."""
    whole = x.size - x.size % 4
    for i in range(0, whole, 4):
        a, b, c, d = x[i], x[i + 1], x[i + 2], x[i + 3]
        r0, r1, r2, r3 = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        for j in range(out.size):
            out[j] = (((out[j] + a * r0[j]) + b * r1[j]) + c * r2[j]) + d * r3[j]
    for i in range(whole, x.size):
        a, r0 = x[i], matrix[i]
        for j in range(out.size):
            out[j] += a * r0[j]


@njit(nogil=True, cache=True)
def forward(stack: Any, weights: Any, transposed: Any, inputs: Any, values: Any) -> None:
    """values[r] = what each operation makes of record r, end to end.

    weights: all of them, float32, in the model's order; transposed: each weight matrix transposed, at the
    same place. inputs (records, width) and values (records, Σ outputs), float32.
    """
    for record in range(inputs.shape[0]):
        x, line = inputs[record], values[record]
        for step in range(stack.codes.size):
            width, start, after = stack.outputs[step], stack.weights_at[step], stack.values_at[step]
            y = line[after : after + width]
            if stack.codes[step] == LINEAR:
                size = x.size * width
                y[:] = np.float32(0.0)
                if stack.has_bias[step]:
                    y[:] = weights[start + size : start + size + width]
                _add_columns(transposed[start : start + size].reshape((x.size, width)), x, y)
            else:
                first, second = stack.parameters[step, 0], stack.parameters[step, 1]
                for j in range(width):
                    y[j] = np.float32(_activate(stack.codes[step], np.float64(x[j]), first, second))
            x = y


@njit(nogil=True, cache=True, error_model="numpy")
def cross_entropy_slopes(outputs: Any, classes: Any, slopes: Any) -> None:
    """slopes[r] = derivative of record r's cross-entropy by its outputs; NaN for an unknown class."""
    for record in range(outputs.shape[0]):
        line, slope, target = outputs[record], slopes[record], classes[record]
        top = line[0]
        for value in line:
            top = max(top, value)
        total = 0.0
        for value in line:
            total += math.exp(np.float64(value) - np.float64(top))
        for j in range(line.size):
            share = math.exp(np.float64(line[j]) - np.float64(top)) / total
            slope[j] = np.float32(share - (1.0 if j == target else 0.0))
        if not 0 <= target < line.size:
            slope[:] = np.float32(np.nan)


@njit(nogil=True, cache=True)
def backward(
    stack: Any,
    weights: Any,
    inputs: Any,
    values: Any,
    slopes: Any,
    units: Any,
    work: Any,
    out: Any,
    go_on: bool,
) -> None:
    """out[units[r]] += gradient of record r's loss by the weights, given its slopes by the outputs.

    units: ascending, the records of one unit next to each other in their own order. work: (2, largest width)
    float32. The first record of a unit overwrites its row of out, but with go_on the first unit has begun in
    an earlier call.
    """
    for record in range(inputs.shape[0]):
        row = out[units[record]]
        fresh = not go_on if record == 0 else units[record] != units[record - 1]
        line, slope, side = values[record], slopes[record], 0
        for step in range(stack.codes.size - 1, -1, -1):
            width, start, wide = stack.outputs[step], stack.weights_at[step], stack.inputs[step]
            place = stack.values_at[step] - wide
            x = inputs[record] if step == 0 else line[place : place + wide]
            buffer = work[side]
            before = buffer[:wide]
            if stack.codes[step] == LINEAR:
                _add_layer(row[start:], x, slope, stack.has_bias[step], fresh)
                if start == 0:
                    break  # nothing before it is trained
                before[:] = np.float32(0.0)
                matrix = weights[start : start + width * wide].reshape((width, wide))
                _add_columns(matrix, slope, before)
            else:
                first, second = stack.parameters[step, 0], stack.parameters[step, 1]
                for j in range(wide):
                    rate = _derivative(stack.codes[step], np.float64(x[j]), first, second)
                    before[j] = np.float32(np.float64(slope[j]) * rate)
            slope = before
            side = 1 - side


@njit(nogil=True, cache=True)
def _add_layer(row: Any, x: Any, slope: Any, bias: bool, fresh: bool) -> None:
    """Add slope·xᵀ, and slope for the bias, to the layer's part of a gradient, or write them there."""
    for j in range(slope.size):
        part, rate = row[j * x.size : (j + 1) * x.size], slope[j]
        if fresh:
            for i in range(x.size):
                part[i] = rate * x[i]
        else:
            for i in range(x.size):
                part[i] += rate * x[i]
    if bias:
        part = row[slope.size * x.size : (slope.size * x.size) + slope.size]
        for j in range(slope.size):
            part[j] = slope[j] if fresh else part[j] + slope[j]
