"""Which models can be trained privately: every layer must treat each example by itself."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from skelmix.errors import InvalidInput

_MOST_GROUPS = 32


def validate(model: nn.Module) -> None:
    """Raise `InvalidInput`, with every offending layer and what to use instead, unless the model can train.

    Refused are layers that mix the examples of a batch or keep statistics of them (batch normalisation,
    instance normalisation with running statistics), unless they are frozen by `.eval()` and have statistics
    to go by; embeddings with a max_norm, which rescale the rows that examples look up; weights that are not
    float32 on the CPU; and models without a trainable weight. `Trainer` calls it; call it before planning.

    Example:

        >>> validate(nn.Sequential(nn.Conv2d(1, 8, 3), nn.GroupNorm(4, 8)))
        >>> try:
        ...     validate(nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)))
        ... except InvalidInput as error:
        ...     print(error)
        1 layer mixes examples or keeps statistics of them, which no noise protects: '1' (BatchNorm2d), use \
torch.nn.GroupNorm(8, 8), or freeze it with .eval()
    """
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"model is a {type(model).__name__}: pass a torch.nn.Module")
    lazy = [name for name, value in model.named_parameters() if is_lazy(value)]
    if lazy:
        raise InvalidInput(f"parameter {', '.join(lazy)} has no shape yet: call the model once, on zeros")
    if not any(value.requires_grad for value in model.parameters()):
        raise InvalidInput("the model has no trainable parameter: set requires_grad on those to be trained")
    mixing = [
        f"{name or 'the model'!r} ({type(module).__name__}), {_remedy(module)}"
        for name, module in model.named_modules()
        if _mixes_examples(module)
    ]
    if mixing:
        many = len(mixing) > 1
        raise InvalidInput(
            f"{len(mixing)} layer{'s mix' if many else ' mixes'} examples or {'keep' if many else 'keeps'} "
            f"statistics of them, which no noise protects: {'; '.join(mixing)}"
        )
    odd = [
        f"{name!r} is {value.dtype} on {value.device}"
        for name, value in model.named_parameters()
        if value.dtype != torch.float32 or value.device.type != "cpu"
    ]
    if odd:
        raise InvalidInput(f"parameter {', '.join(odd)}: use float32 on the CPU, model.float().cpu()")


def _mixes_examples(module: nn.Module) -> bool:
    """Whether the layer, as it is set now, makes one example's output or a buffer depend on others.

    Batch normalisation without running statistics does so in either mode, and so does an embedding with a
    max_norm, whose weights then show which rows were looked up.
    """
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return module.max_norm is not None
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        return bool(module.training and module.track_running_stats)
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return bool(module.training or module.running_mean is None)
    return False


def _remedy(module: nn.Module) -> str:
    """A layer of the same size that treats each example by itself, or how to keep this one."""
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return "use max_norm=None"
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        return "use track_running_stats=False, or freeze it with .eval()"
    features = int(getattr(module, "num_features", 0))
    groups = max((g for g in range(1, _MOST_GROUPS + 1) if features % g == 0), default=1)
    use = f"use torch.nn.GroupNorm({groups}, {features})" if features else "use torch.nn.GroupNorm"
    return use if getattr(module, "running_mean", None) is None else f"{use}, or freeze it with .eval()"
