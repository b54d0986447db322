"""What a run learns: a data set as tensors, a model, its loss, and its score on test data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from skelmix.datasets.catalogue import Images, load
from skelmix.datasets.shakespeare import load_speakers
from skelmix.datasets.text import character_windows, split_people
from skelmix.errors import InvalidInput
from skelmix.federated.characters import CharacterModel, Perplexity, character_clients, character_loss
from skelmix.federated.clients import Clients
from skelmix.federated.feature_cache import cached_features
from skelmix.federated.feature_units import feature_model
from skelmix.federated.gradients import Loss
from skelmix.federated.recipes import Accuracy, build_model, clients_of, seeded

TEXT = "shakespeare"
_GROUPS = 27  # groups of channels that are normalised together, per colour
_WINDOWS = 16  # most windows of 32 characters taken from one speaker


@dataclass(frozen=True, eq=False)
class Task:
    """A data set, a model, a loss and an accuracy.

    labels: the classes of the training records; None when the records belong to people already, as the
    partition of `clients` says. new_model(seed): the model with its first weights, which a seed makes
    repeatable. perplexity: of text.
    """

    clients: Clients
    labels: NDArray[np.int64] | None
    new_model: Callable[[int | None], nn.Module]
    loss: Loss
    evaluate: Callable[[nn.Module], float]
    perplexity: Perplexity | None = None


def task_of(dataset: str, model: str, say: Callable[[str], None] = lambda text: None) -> Task:
    """The task of training this model on this data set.

    model: `linear` (softmax regression on scattering features), `characters` (next character of a text), or
    what `build_model` knows, which sees pixels. say: hears what takes long.
    """
    if (dataset == TEXT) != (model == "characters"):
        raise InvalidInput(
            f"dataset = {dataset!r}, model = {model!r}: the model characters and the data set {TEXT} go "
            "together; leave out the model, or take another"
        )
    if dataset == TEXT:
        return _text()
    images = load(dataset)
    return feature_task(images, say) if model == "linear" else _on_pixels(images, model)


def _on_pixels(images: Images, name: str) -> Task:
    def new_model(seed: int | None) -> nn.Module:
        return build_model(name, pixels=images.train_images[0].size, classes=images.classes, seed=seed)

    return Task(clients_of(images), images.train_labels, new_model, cross_entropy, Accuracy(images))


def feature_task(images: Images, say: Callable[[str], None] = lambda text: None) -> Task:
    """Softmax regression on scattering features of images.

    The features take minutes, once: they are kept in the cache. They are as secret as the images.
    """
    colours = 3 if images.train_images.ndim == 4 else 1
    total, done = len(images.train_images) + len(images.test_images), 0

    def heard(count: int) -> None:
        nonlocal done
        done += count
        say(f"computing features of {total} images, once: {done / total:.0%}")

    def of(pixels: NDArray[np.uint8]) -> Tensor:
        return torch.from_numpy(cached_features(pixels, _GROUPS * colours, report=heard))

    train, test = of(images.train_images), of(images.test_images)
    labels = torch.from_numpy(images.train_labels.copy())
    score = Accuracy.of(test, torch.from_numpy(images.test_labels.copy()))

    def new_model(seed: int | None) -> nn.Module:
        return feature_model(train.shape[1], images.classes)

    return Task(Clients(train, labels), images.train_labels, new_model, cross_entropy, score)


def _text() -> Task:
    """Text of speakers, who are the participants; tested on speakers that training has not seen."""
    train, test = split_people(load_speakers())
    clients = character_clients(character_windows(train, most=_WINDOWS))
    held_out = character_windows(test, most=_WINDOWS)
    score = Perplexity(held_out)

    def new_model(seed: int | None) -> nn.Module:
        with seeded(seed):
            return CharacterModel()

    return Task(clients, None, new_model, character_loss, Accuracy.of(score.inputs, score.targets), score)
