"""Features kept as 16-bit integers, half the memory of float32, and turned into numbers by the model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

STEP = 2.0**-10  # features are multiples of it


class FeatureUnits(nn.Module):
    """A first layer without weights: int16 features in units of `STEP` become float32, exactly."""

    def forward(self, units: Tensor) -> Tensor:
        return units.float().mul_(STEP)


def in_float32(units: NDArray[np.int16]) -> NDArray[np.float32]:
    """What `FeatureUnits` gives, by NumPy."""
    return units.astype(np.float32) * np.float32(STEP)


def feature_model(features: int, classes: int = 10) -> nn.Sequential:
    """Softmax regression of int16 features, as `scattering_network.features` makes them.

    All weights begin at zero: the problem is convex, so nothing is gained by a random start.
    """
    linear = nn.Linear(features, classes)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(FeatureUnits(), linear)
