"""Records' gradients of a plain stack of linear layers, each computed on its own by `stack_kernels`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from skelmix.federated import stack_kernels as kernels
from skelmix.federated.feature_units import FeatureUnits
from skelmix.federated.linear_gradients import Loss, hooked, plain_stack
from skelmix.federated.record_draws import fixed_draws
from skelmix.federated.stack_kernels import Stack
from skelmix.noise.scratch_memory import scratch

_ACTIVATIONS: dict[type[nn.Module], Callable[[Any], tuple[int, float, float]]] = {
    nn.Identity: lambda layer: (kernels.IDENTITY, 0.0, 0.0),
    nn.ReLU: lambda layer: (kernels.RELU, 0.0, 0.0),
    nn.LeakyReLU: lambda layer: (kernels.LEAKY_RELU, layer.negative_slope, 0.0),
    nn.Tanh: lambda layer: (kernels.TANH, 0.0, 0.0),
    nn.Sigmoid: lambda layer: (kernels.SIGMOID, 0.0, 0.0),
    nn.SiLU: lambda layer: (kernels.SILU, 0.0, 0.0),
    nn.ELU: lambda layer: (kernels.ELU, layer.alpha, 0.0),
    nn.Softplus: lambda layer: (kernels.SOFTPLUS, layer.beta, layer.threshold),
    nn.GELU: lambda layer: (kernels.GELU if layer.approximate == "none" else kernels.GELU_TANH, 0.0, 0.0),
}


class LinearStack:
    """The gradients of a stack's records, a row per unit; `of` makes one, or None for any other model.

    Flattened inputs of float32, one vector per record.
    """

    def __init__(self, linear: list[nn.Linear], stack: Stack) -> None:
        self._linear, self._stack = linear, stack
        self.width, self.outputs = int(stack.inputs[0]), int(stack.outputs[-1])

    @staticmethod
    def of(model: nn.Module) -> LinearStack | None:
        """The stack of a model, read from its layers; None when the kernels do not know them all."""
        layers = plain_stack(model)
        if layers is None:
            return None
        steps = [layer for layer in layers if not isinstance(layer, nn.Flatten | FeatureUnits)]
        linear = [layer for layer in steps if isinstance(layer, nn.Linear)]
        width, at, values_at = linear[0].in_features, 0, 0
        rows: list[tuple[int, int, int, int, bool, tuple[float, float], int]] = []
        for layer in steps:
            if isinstance(layer, nn.Linear):
                if layer.in_features != width:
                    return None  # calling the model says what is wrong
                bias = layer.bias is not None
                rows.append((kernels.LINEAR, width, layer.out_features, at, bias, (0.0, 0.0), values_at))
                at += layer.weight.numel() + layer.out_features * bias
                width = layer.out_features
            else:
                code, first, second = _ACTIVATIONS[type(layer)](layer)
                rows.append((code, width, width, 0, False, (first, second), values_at))
            values_at += width
        kinds = (np.int64, np.int64, np.int64, np.int64, np.bool_, np.float64, np.int64)
        columns = zip(*rows, strict=True)
        return LinearStack(linear, Stack(*(np.array(c, k) for c, k in zip(columns, kinds, strict=True))))

    def weights(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The present weights in the order of a vector, and the same with each matrix transposed."""
        plain, turned = list[NDArray[np.float32]](), list[NDArray[np.float32]]()
        for layer in self._linear:
            matrix = layer.weight.detach().numpy()
            bias = [] if layer.bias is None else [layer.bias.detach().numpy()]
            plain += [matrix.reshape(-1), *bias]
            turned += [matrix.T.reshape(-1), *bias]
        return np.concatenate(plain), np.concatenate(turned)

    def write(
        self,
        weights: tuple[NDArray[np.float32], NDArray[np.float32]],
        inputs: NDArray[np.float32],
        targets: Tensor,
        units: NDArray[np.int64],
        loss: Loss,
        out: NDArray[np.float32],
        *,
        go_on: bool = False,
    ) -> None:
        """out[u] = sum of the gradients of the records of unit u.

        inputs (records, width); units (records,): ascending from 0 without gaps, the unit of each record.
        go_on: unit 0 has begun in an earlier call, to which its records here are added.
        """
        plain, transposed = weights
        classes = _classes(loss, targets)
        with (
            scratch((len(inputs), int(self._stack.values_at[-1]) + self.outputs), np.float32) as values,
            scratch((len(inputs), self.outputs), np.float32) as slopes,
            scratch((2, int(self._stack.inputs.max())), np.float32) as work,
        ):
            kernels.forward(self._stack, plain, transposed, inputs, values)
            outputs = values[:, -self.outputs :]
            if classes is not None:
                kernels.cross_entropy_slopes(outputs, classes, slopes)
            else:
                _slopes_by_torch(loss, outputs, targets, slopes)
            kernels.backward(self._stack, plain, inputs, values, slopes, units, work, out, go_on)


def _classes(loss: Loss, targets: Tensor) -> NDArray[np.int64] | None:
    """The records' classes, when the loss is plain cross-entropy of classes; else None."""
    plain = loss is nn.functional.cross_entropy or (
        type(loss) is nn.CrossEntropyLoss
        and loss.weight is None
        and loss.label_smoothing == 0
        and loss.ignore_index == -100
        and not hooked(loss)
    )
    known = plain and targets.dim() == 1 and targets.dtype == torch.int64
    return targets.contiguous().numpy() if known else None


def _slopes_by_torch(
    loss: Loss, outputs: NDArray[np.float32], targets: Tensor, slopes: NDArray[np.float32]
) -> None:
    """slopes[r] = the derivative of record r's loss by its outputs, as in a batch of one.

    A loss that fails for a record leaves NaN, which counts as a zero record.
    """
    output = torch.empty(1, outputs.shape[1])
    with fixed_draws() as start_again:
        for record in range(len(outputs)):
            output.copy_(torch.from_numpy(outputs[record]))
            given = output.detach().requires_grad_()
            start_again()
            try:
                value = loss(given, targets[record : record + 1].clone()).mean()
                slopes[record] = torch.autograd.grad(value, given)[0].numpy()
            except KeyboardInterrupt:  # of the operator, not of a record
                raise
            except BaseException:  # whatever a record does, it may not stop its silo
                slopes[record] = np.nan
