"""Every mechanism in every variant, small enough for one contract suite."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.mechanisms import (
    Binomial,
    CentralGaussian,
    DiscreteGaussian,
    FlatClip,
    GaussianMixture,
    MixtureClip,
    Skellam,
    SkellamMixture,
)
from skelmix.mechanisms.base import Mechanism
from skelmix.mechanisms.mechanism import IntegerMechanism

D, N = 50, 6
COMMON: dict[str, Any] = {
    "dimension": D,
    "bits": 16,
    "scale": 64.0,
    "clip_norm": 1.0,
    "shares": N,
    "rotation_seed": bytes(range(32)),
}
DISTRIBUTED: dict[str, IntegerMechanism] = {
    "smm": SkellamMixture(**COMMON, total_noise=9.0),
    "smm-flat": SkellamMixture(**COMMON, total_noise=9.0, clip=FlatClip(40.0)),
    "smm-paper": SkellamMixture(**COMMON, total_noise=9.0, clip=MixtureClip(linf=60)),
    "smm-kept": SkellamMixture(**COMMON, total_noise=9.0, keep=24, clip_slack=0.5),
    "smm-flat-kept": SkellamMixture(**COMMON, total_noise=9.0, keep=40, clip=FlatClip(40.0)),
    "smm-plain": SkellamMixture(**COMMON, total_noise=9.0, rotate=False),
    "dgm": GaussianMixture(**COMMON, total_noise=9.0),
    "dgm-kept": GaussianMixture(**COMMON, total_noise=9.0, keep=56, clip_slack=1.0),
    "dgm-paper": GaussianMixture(**COMMON, total_noise=9.0, clip=MixtureClip(linf=60)),
    "skellam": Skellam(**COMMON, total_noise=9.0),
    "ddg": DiscreteGaussian(**COMMON, total_noise=9.0),
    "ddg-tf": DiscreteGaussian(**COMMON, total_noise=9.0, round_sigma_up=True),
    "cpsgd": Binomial(**COMMON, total_noise=100.0),
}
ALL: dict[str, Mechanism] = {
    **DISTRIBUTED,
    "gaussian": CentralGaussian(**{**COMMON, "scale": 1.0}, total_noise=0.01),
}


def vectors(rows: int = N, dtype: Any = np.float32, length: float = 0.9) -> NDArray[Any]:
    """Vectors of this length in random directions, the same ones each time."""
    x = np.random.default_rng(5).normal(size=(rows, D))
    return np.asarray(length * x / np.linalg.norm(x, axis=1, keepdims=True), dtype)


def noise_deviation(mechanism: IntegerMechanism) -> float:
    """The standard deviation of a decoded coordinate: the noise of the kept ones is spread over all."""
    spread = mechanism.padded_dimension / mechanism.coordinates
    return float(np.sqrt(spread * (mechanism.noise_variance(N) + N / 4)) / mechanism.scale)
