"""A rehearsal of a whole round on zeros before the first one, so that a mistake costs no privacy."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from skelmix.datasets.partition import equal_shares
from skelmix.errors import InvalidInput, SkelmixError
from skelmix.federated.clients import Clients
from skelmix.federated.gradients import Gradients, Loss, trainable
from skelmix.federated.records import RecordGradients
from skelmix.federated.silo_clients import SiloClients


def rehearse(
    model: nn.Module, loss: Loss, clients: Clients | SiloClients, gradients: Gradients | RecordGradients
) -> None:
    """Model, loss and gradients on zeros of the records' shape and type; `InvalidInput` says what fails."""
    for held in clients.silos if isinstance(clients, SiloClients) else (clients,):
        inputs, targets = torch.zeros_like(held.inputs[:1]), torch.zeros_like(held.targets[:1])
        with _left_as_it_was(model):
            _try_loss(model, loss, inputs, _extremes(held.targets))
            try:
                zeros = Clients(inputs.repeat_interleave(2, 0), targets.repeat_interleave(2, 0))
                if (held.partition.sizes > 1).any():
                    zeros = Clients(zeros.inputs, zeros.targets, equal_shares(2, 2))
                for _ in gradients.blocks(zeros, np.arange(len(zeros))):
                    pass
            except SkelmixError:
                raise
            except Exception as error:
                raise InvalidInput(
                    "a participant's own gradient cannot be computed by torch.func: "
                    f"{_said(error)}. Use no in-place changes, and no branches that depend on data"
                ) from error


def check_some_finite(clients: Clients | SiloClients) -> None:
    """Refuse data of which not one record is finite; reads no further than the first record that is.

    The error depends on the data, so only whoever holds all of it may see it. A single broken record causes
    none.
    """
    holders = clients.silos if isinstance(clients, SiloClients) else (clients,)
    for held in holders:
        for start in range(0, len(held.inputs), 1024):
            block = slice(start, start + 1024)
            if bool((_finite(held.inputs[block]) & _finite(held.targets[block])).any()):
                return
    count = sum(len(held.inputs) for held in holders)
    raise InvalidInput(
        f"all {count:,} records hold NaN or infinity, so there is nothing to learn from; check how they were "
        "read or scaled. Nothing was charged"
    )


def _finite(records: torch.Tensor) -> torch.Tensor:
    return records.isfinite().reshape(len(records), -1).all(1)


def _extremes(targets: torch.Tensor) -> list[torch.Tensor]:
    """A target of zeros; for class labels also the smallest and the largest, which must have an output."""
    zero = torch.zeros_like(targets[:1])
    if targets.is_floating_point() or targets.dtype == torch.bool:
        return [zero]
    return [torch.full_like(zero, int(value)) for value in (targets.min(), targets.max())]


def _try_loss(model: nn.Module, loss: Loss, inputs: torch.Tensor, targets: list[torch.Tensor]) -> None:
    what = f"records of shape {tuple(inputs.shape[1:])} and type {inputs.dtype}"
    try:
        with torch.no_grad():
            outputs = model(inputs)
    except Exception as error:
        raise InvalidInput(
            f"the model does not take {what}: {_said(error)}. Change the records' shape or type (images for "
            "convolutions are (channels, height, width), float32), or the model"
        ) from error
    for target in targets:
        shown = f" {int(target)}" if target.numel() == 1 and not target.is_floating_point() else ""
        try:
            with torch.no_grad(), warnings.catch_warnings():
                # MSELoss and its kin only warn, and compare each output with each target
                warnings.filterwarnings("error", message="Using a target size")
                value = loss(outputs, target)
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                raise TypeError(f"it returns {type(value).__name__}, not a tensor of real numbers")
            if value.shape != ():
                raise TypeError(
                    f"it returns shape {tuple(value.shape)}, not one number: use reduction='mean'"
                )
        except Exception as error:
            raise InvalidInput(
                f"the loss does not take outputs of shape {tuple(outputs.shape)} with the target{shown} of "
                f"shape {tuple(target.shape)} and type {target.dtype}: {_said(error)}. Labels of a cross-"
                "entropy are int64 of shape (records,), counted from 0 and fewer than the outputs"
            ) from error


def check_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any, rounds: int) -> None:
    """Refuse an optimiser or a scheduler that does not fit the model or the plan's rounds.

    Refused are optimisers of other parameters, steps that need arguments, and schedulers that end early.
    """
    held = {id(value) for group in optimizer.param_groups for value in group["params"]}
    missing = [name for name, value in trainable(model).items() if id(value) not in held]
    if missing:
        raise InvalidInput(
            f"the optimizer does not hold {len(missing)} of the model's trainable parameters (for one "
            f"{missing[0]!r}), so training would not change them: make it from this model's parameters(); "
            "freeze what is not to be trained with requires_grad_(False)"
        )
    _check_step(optimizer, "optimizer")
    if scheduler is not None:
        if getattr(scheduler, "optimizer", optimizer) is not optimizer:
            raise InvalidInput("the scheduler is of another optimizer: make it from the one that is passed")
        _check_step(scheduler, "scheduler")
        steps = getattr(scheduler, "total_steps", None)  # of OneCycleLR, which raises after the last one
        if steps is not None and steps < rounds:
            raise InvalidInput(
                f"scheduler = {type(scheduler).__name__}: it ends after {steps} steps, the plan has {rounds} "
                f"rounds with one step each; make it with total_steps={rounds}"
            )


def _check_step(stepping: Any, name: str) -> None:
    if not callable(getattr(stepping, "step", None)):
        raise InvalidInput(
            f"{name} is a {type(stepping).__name__}: it has no step(); pass one of torch.optim"
        )
    needed = [
        parameter.name
        for parameter in inspect.signature(stepping.step).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.name != "self"  # a scheduler wraps its optimiser's step, unbound
    ]
    if needed:
        raise InvalidInput(
            f"{name} = {type(stepping).__name__}: its step() needs {', '.join(needed)}, which a private "
            "round does not have; choose another, such as torch.optim.SGD, Adam, or a scheduler over rounds"
        )


def checked_evaluation(
    model: nn.Module, evaluate: Callable[[nn.Module], float]
) -> Callable[[nn.Module], float]:
    """`evaluate`, called once on the untrained model: a mistake in it shows before anything is spent.

    What is returned leaves the model's modes as they were: an `evaluate` that ends with `model.train()` would
    wake layers that were frozen by `.eval()`, one without it would put all others to sleep.
    """

    def score(model: nn.Module) -> float:
        with _left_as_it_was(model):
            return float(evaluate(model))

    try:
        score(model)
    except Exception as error:
        raise InvalidInput(
            f"evaluate fails on the untrained model: {_said(error)}. It takes the model and returns a number"
        ) from error
    return score


@contextmanager
def _left_as_it_was(model: nn.Module) -> Iterator[None]:
    """Restore the modules' modes and torch's random state after the block."""
    modes = {module: module.training for module in model.modules()}
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, training in modes.items():
            module.training = training


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300].rstrip('.')}"
