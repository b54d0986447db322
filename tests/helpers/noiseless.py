"""Mechanisms without noise, to look at rounding and wrapping alone."""

import copy
from typing import TypeVar

from skelmix.mechanisms.base import Mechanism

Kind = TypeVar("Kind", bound=Mechanism)


def noiseless(mechanism: Kind) -> Kind:
    """NOT PRIVATE: the same steps without any noise. It has no bound, and no constructor makes it."""
    bare = copy.copy(mechanism)
    object.__setattr__(bare, "total_noise", 0.0)
    return bare
