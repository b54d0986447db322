"""Per-participant gradients of a stack of linear layers: outer products, with no detour through torch.func.

For y = Wx + b a participant's gradient is the sum over its records of δ xᵀ (and δ), δ the derivative of its
loss by y (Goodfellow 2015). One backward pass gives all δ, since no layer of the stack mixes examples. The
products are written straight into the caller's buffer, or, where only the sum of the clipped gradients is
wanted, never: the norm of δ xᵀ is ‖δ‖·‖x‖, and the sum is one product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import vmap

from skelmix.encoding.clipping import sum_of_squares
from skelmix.federated.feature_units import FeatureUnits

Loss = Callable[[Tensor, Tensor], Tensor]
_ELEMENTWISE = (
    nn.ReLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.GELU,
    nn.SiLU,
    nn.ELU,
    nn.LeakyReLU,
    nn.Softplus,
    nn.Identity,
)


def hooked(module: nn.Module) -> bool:
    """Whether hooks change or watch what goes through the module."""
    names = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    return any(getattr(module, name) for name in names)


def plain_stack(model: nn.Module) -> list[nn.Module] | None:
    """The layers in order, when they are linear or elementwise, after a flattening or units; else None."""
    if type(model) is not nn.Sequential or hooked(model):
        return None
    layers = list(model)
    for place, layer in enumerate(layers):
        plain_linear = type(layer) is nn.Linear and all(p.requires_grad for p in layer.parameters())
        flattening = type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)
        first = place == 0 and (flattening or type(layer) is FeatureUnits)
        if not (plain_linear or first or type(layer) in _ELEMENTWISE):
            return None
        if getattr(layer, "inplace", False):  # it overwrites the outputs whose slopes are wanted
            return None
        if hooked(layer):
            return None
    tied = len({id(p) for layer in layers for p in layer.parameters()}) < sum(
        1 for x in layers for _ in x.parameters()
    )
    return None if tied or not any(isinstance(layer, nn.Linear) for layer in layers) else layers


@dataclass(frozen=True)
class OuterProducts:
    """The gradients of k participants with r records each.

    By layer: what entered it, (k, r, inputs), and the slopes of the loss by what left it, (k, r, outputs).
    """

    layers: Sequence[nn.Linear]
    entered: Sequence[Tensor]
    slopes: Sequence[Tensor]

    def write(self, first: int, last: int, out: Tensor) -> None:
        """Write the gradients of participants first..last-1 into out, (last - first, d)."""
        at = 0
        for layer, x, slope in zip(self.layers, self.entered, self.slopes, strict=True):
            at = _write_layer(layer, x[first:last], slope[first:last], out, at)

    def norms(self) -> NDArray[np.float64]:
        """Upper bounds (k,) on the L2 norms of the gradients of participants with one record each."""
        squares = np.zeros(len(self.entered[0]))
        for layer, x, slope in zip(self.layers, self.entered, self.slopes, strict=True):
            squares += _squares(slope) * (_squares(x) + (layer.bias is not None))
        return np.sqrt(squares)

    def weighted_sum(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of the gradients of participants with one record each, times these weights (k,).

        Those with weight zero are left out, so they may be NaN or infinite.
        """
        kept = torch.from_numpy(np.flatnonzero(weights))
        factors = torch.from_numpy(weights)[kept, None]
        parts = []
        for layer, x, slope in zip(self.layers, self.entered, self.slopes, strict=True):
            weighted = (factors * slope[kept, 0]).float()
            parts.append((weighted.T @ x[kept, 0]).flatten())
            if layer.bias is not None:
                parts.append(weighted.sum(0))
        return torch.cat(parts).double().numpy()


def _squares(vectors: Tensor) -> NDArray[np.float64]:
    """Upper bounds (k,) on the squared L2 norms of (k, 1, n)."""
    return np.array([sum_of_squares(row) for row in vectors[:, 0].numpy()])


def stack_gradients(model: nn.Module, loss: Loss) -> Callable[[Tensor, Tensor], OuterProducts] | None:
    """A function that computes the gradients of k participants in one pass, or None.

    Its arguments are inputs (k, r, ...) and targets (k, r, ...). None when the model is not a plain stack:
    use the general way through torch.func then.
    """
    layers = plain_stack(model)
    if layers is None:
        return None
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    participant_losses = vmap(lambda outputs, targets: loss(outputs, targets).mean())

    def one_pass(inputs: Tensor, targets: Tensor) -> OuterProducts:
        count, records = inputs.shape[:2]
        value = inputs.flatten(0, 1)
        entered, left = [], []
        for layer in layers:
            if isinstance(layer, nn.Linear):
                entered.append(value.detach().unflatten(0, (count, records)))
                value = layer(value)
                left.append(value)
            else:
                value = layer(value)
        total = participant_losses(value.unflatten(0, (count, records)), targets).sum()
        slopes = [slope.unflatten(0, (count, records)) for slope in torch.autograd.grad(total, left)]
        return OuterProducts(linear, entered, slopes)

    return one_pass


def _write_layer(layer: nn.Linear, x: Tensor, slope: Tensor, out: Tensor, at: int) -> int:
    """Write one layer's gradients, Σ δ xᵀ and Σ δ over the records, from column `at` on.

    Returns the next column.
    """
    width = layer.weight.numel()
    weight = out[:, at : at + width].view(len(out), *layer.weight.shape)
    if x.shape[1] == 1:
        torch.mul(slope.transpose(1, 2), x, out=weight)
    else:
        torch.bmm(slope.transpose(1, 2), x, out=weight)
    at += width
    if layer.bias is not None:
        torch.sum(slope, 1, out=out[:, at : at + layer.out_features])
        at += layer.out_features
    return at
