"""Clipped gradients of softmax regression over a batch, without a vector per record, and exactly.

A record's gradient is the outer product of its slope δ = probabilities - one-hot label and its input x, with
a 1 appended for the bias. So its norm is ‖δ‖·√(‖x‖² + 1), and the clipped sum over a batch is one matrix
product.

Inputs are whole multiples of 2^-10, as `scattering.features` makes them. For the products weights are rounded
to multiples of 2^-16 within ±64, and clipped slopes, towards zero, to about 2^-21 of the clip norm: every sum
is then of whole numbers below 2^53, which float64 adds without rounding, in any order. So what a record adds
is a function of that record and the model alone, whatever the batch's shape; its exact norm is at most the
clip norm; and removing a record changes the sum by exactly what it added.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from skelmix.errors import InvalidInput
from skelmix.validation import positive

INPUT_STEP = 2.0**-10
MOST_FEATURES = 2**14  # 15 bits of input, 22 of weight and 14 of sum are 51; 2^16 records of 36 bits are 52
MOST_RECORDS = 2**16
_WEIGHT_STEP, _WEIGHT_LIMIT = 2.0**-16, 2.0**6
_SLOPE_BITS = 21
_SHRINK = 1 - 2.0**-40  # more than the roundings of a norm and of its quotient, each of some 2^-52
_CHUNK = 512  # records turned into float64 at a time


def softmax_model(features: int, classes: int = 10) -> nn.Linear:
    """A linear layer with all weights zero: the problem is convex, so nothing is gained by a random start."""
    model = nn.Linear(features, classes)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def clipped_gradient_sum(
    model: nn.Linear, inputs: Tensor, targets: Tensor, clip_norm: float
) -> tuple[Tensor, Tensor]:
    """The sum over records of the clipped gradient of the cross-entropy, and who was within the clip norm.

    Each gradient is clipped to `clip_norm`. The sum is float64 (d,) in the layout of the model's parameters,
    weights first; the records within the clip norm are bool (k,).

    `inputs` is int16 (k, features) in units of 2^-10, `targets` int64 (k,). An empty batch makes zeros. The
    second answer is as secret as the records: it is what a private clip indicator is made of.

    Example:

        >>> total, within = clipped_gradient_sum(
        ...     softmax_model(2, 2), torch.tensor([[1024, 2048]]).short(), torch.tensor([0]), 10.0)
        >>> total.tolist(), within.tolist()
        ([-0.5, -1.0, 0.5, 1.0, -0.5, 0.5], [True])
    """
    _check(model, inputs, targets, clip_norm)
    slope_step = 2.0 ** (math.ceil(math.log2(clip_norm)) - _SLOPE_BITS)
    total = torch.zeros(model.out_features, model.in_features + 1, dtype=torch.float64)
    within = torch.zeros(len(inputs), dtype=torch.bool)
    for first in range(0, len(inputs), _CHUNK):
        rows = slice(first, first + _CHUNK)
        units = _with_bias(inputs[rows])
        slopes = _slopes(model, units, targets[rows])
        norms = gradient_norms(slopes, units)
        within[rows] = norms <= clip_norm * _SHRINK
        factors = torch.where(within[rows], 1.0, clip_norm * _SHRINK / norms)
        total += ((slopes * factors[:, None]) / slope_step).trunc().T @ units
    total *= slope_step * INPUT_STEP  # a power of two
    return torch.cat([total[:, :-1].flatten(), total[:, -1]]), within


def gradient_norms(slopes: Tensor, units: Tensor) -> Tensor:
    """The L2 norm of each outer product of a slope (k, classes) and an input (k, n), float64 (k,).

    Inputs are in units of 2^-10. No product is written out.
    """
    return slopes.square().sum(1).sqrt() * units.square().sum(1).sqrt() * INPUT_STEP


def _with_bias(inputs: Tensor) -> Tensor:
    ones = torch.full((len(inputs), 1), 1 / INPUT_STEP, dtype=torch.float64)
    return torch.cat([inputs.double(), ones], 1)


def _slopes(model: nn.Linear, units: Tensor, targets: Tensor) -> Tensor:
    """Derivatives of each record's cross-entropy by the outputs, float64 (k, classes)."""
    weights = torch.cat([model.weight.detach(), model.bias.detach()[:, None]], 1).double()
    whole = (weights.clamp(-_WEIGHT_LIMIT, _WEIGHT_LIMIT) / _WEIGHT_STEP).round()
    outputs = (units @ whole.T) * (INPUT_STEP * _WEIGHT_STEP)
    return torch.softmax(outputs, 1) - nn.functional.one_hot(targets, model.out_features)


def _check(model: nn.Linear, inputs: Tensor, targets: Tensor, clip_norm: float) -> None:
    positive(clip_norm=clip_norm)
    if not 2.0**-100 <= clip_norm <= 2.0**100:
        raise InvalidInput(f"clip_norm = {clip_norm}: must be within 2^-100..2^100; rescale the features")
    if model.bias is None or model.in_features >= MOST_FEATURES:
        raise InvalidInput(
            f"the model takes {model.in_features} features: give it a bias and fewer than {MOST_FEATURES}"
        )
    if inputs.dtype != torch.int16 or inputs.dim() != 2 or inputs.shape[1] != model.in_features:
        raise InvalidInput(
            f"inputs is {inputs.dtype} of shape {tuple(inputs.shape)}: must be int16 (records, "
            f"{model.in_features}), in units of 2^-10"
        )
    if targets.dtype != torch.int64 or targets.shape != inputs.shape[:1]:
        raise InvalidInput(
            f"targets is {targets.dtype} of shape {tuple(targets.shape)}: must be int64 ({len(inputs)},)"
        )
    if len(inputs) > MOST_RECORDS:
        raise InvalidInput(f"{len(inputs)} records at once: sum at most {MOST_RECORDS}, then add the sums")
    if not (torch.isfinite(model.weight).all() and torch.isfinite(model.bias).all()):
        raise InvalidInput("the model has NaN or infinity among its weights: lower the learning rate")
