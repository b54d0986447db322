"""All mechanisms by name, and the way from plain data back to a mechanism."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from skelmix.encoding.rotation import SEED_BYTES
from skelmix.errors import InvalidInput
from skelmix.mechanisms.base import Mechanism
from skelmix.mechanisms.binomial import Binomial
from skelmix.mechanisms.central_gaussian import CentralGaussian
from skelmix.mechanisms.clips import clip_from_dict
from skelmix.mechanisms.discrete_gaussian import DiscreteGaussian
from skelmix.mechanisms.gaussian_mixture import GaussianMixture
from skelmix.mechanisms.skellam import Skellam
from skelmix.mechanisms.skellam_mixture import SkellamMixture

MECHANISMS: dict[str, type[Mechanism]] = {
    kind.name: kind
    for kind in (SkellamMixture, GaussianMixture, Skellam, DiscreteGaussian, Binomial, CentralGaussian)
}


def mechanism_from_dict(data: Any) -> Mechanism:
    """The mechanism that `Mechanism.to_dict` described.

    Every field must be there, and no other: else `InvalidInput`.

    Example:

        >>> mechanism = Skellam(dimension=4, bits=12, scale=10.0, clip_norm=1.0, total_noise=50.0)
        >>> mechanism_from_dict(mechanism.to_dict()) == mechanism
        True
    """
    if not isinstance(data, dict) or data.get("name") not in MECHANISMS:
        raise InvalidInput(f"mechanism: must be an object whose name is one of {', '.join(MECHANISMS)}")
    kind = MECHANISMS[data["name"]]
    given = {key: value for key, value in data.items() if key != "name"}
    expected = {field.name for field in fields(kind)}
    if given.keys() != expected:
        odd = sorted(map(str, given.keys() ^ expected))
        raise InvalidInput(f"mechanism {kind.name}: unknown or missing fields {', '.join(odd)}")
    given["rotation_seed"] = _seed(given["rotation_seed"])
    if "clip" in given:
        given["clip"] = clip_from_dict(given["clip"])
    return kind(**given)


def _seed(text: Any) -> bytes:
    if not isinstance(text, str) or len(text) != 2 * SEED_BYTES:
        raise InvalidInput(f"rotation_seed: must be {2 * SEED_BYTES} hexadecimal digits")
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise InvalidInput(f"rotation_seed: must be {2 * SEED_BYTES} hexadecimal digits") from error
