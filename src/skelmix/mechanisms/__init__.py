"""The mechanisms, loaded when they are first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.mechanisms.base import EncodeStats, Mechanism
    from skelmix.mechanisms.binomial import Binomial
    from skelmix.mechanisms.central_gaussian import CentralGaussian
    from skelmix.mechanisms.clips import FlatClip, L2Clip, MixtureClip
    from skelmix.mechanisms.discrete_gaussian import DiscreteGaussian
    from skelmix.mechanisms.gaussian_mixture import GaussianMixture
    from skelmix.mechanisms.mechanism import IntegerMechanism
    from skelmix.mechanisms.registry import mechanism_from_dict
    from skelmix.mechanisms.silo_sum import SiloSum
    from skelmix.mechanisms.skellam import Skellam
    from skelmix.mechanisms.skellam_mixture import SkellamMixture

__all__ = [
    "Binomial",
    "CentralGaussian",
    "DiscreteGaussian",
    "EncodeStats",
    "FlatClip",
    "GaussianMixture",
    "IntegerMechanism",
    "L2Clip",
    "Mechanism",
    "MixtureClip",
    "SiloSum",
    "Skellam",
    "SkellamMixture",
    "mechanism_from_dict",
]

_HOMES = {
    "binomial": ("Binomial",),
    "central_gaussian": ("CentralGaussian",),
    "discrete_gaussian": ("DiscreteGaussian",),
    "base": ("EncodeStats", "Mechanism"),
    "clips": ("FlatClip", "L2Clip", "MixtureClip"),
    "gaussian_mixture": ("GaussianMixture",),
    "mechanism": ("IntegerMechanism",),
    "silo_sum": ("SiloSum",),
    "skellam": ("Skellam",),
    "skellam_mixture": ("SkellamMixture",),
    "registry": ("mechanism_from_dict",),
}

__getattr__ = lazily(__name__, _HOMES)
