"""How the vectors of a round are added: "protocol", "simulated" or "none", in every engine and command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast, get_args

from skelmix.errors import InvalidInput
from skelmix.validation import one_of

if TYPE_CHECKING:
    from skelmix.mechanisms import Mechanism

#: "protocol": by secure aggregation. "simulated": by the same modular sum that the protocol computes.
#: "none": by an aggregator that is trusted with every vector, for mechanisms that are not distributed.
Secure = Literal["protocol", "simulated", "none"]


def secure_of(word: str) -> Secure:
    """The user's word for how vectors are added, checked."""
    one_of(get_args(Secure), secure=word)
    return cast(Secure, word)


def check_secure(secure: str, mechanism: Mechanism) -> None:
    """Raise `InvalidInput` when the mechanism's vectors cannot be added in this way."""
    secure_of(secure)
    if secure == "protocol" and not mechanism.distributed:
        raise InvalidInput(
            f"secure = 'protocol': {mechanism.name} is not distributed, it trusts its aggregator "
            "with every vector; pass 'none' to use it as a reference"
        )
    if secure == "none" and mechanism.distributed:
        raise InvalidInput(
            f"secure = 'none': {mechanism.name} is distributed, and its noise is meant for a sum that hides "
            "the vectors; pass 'protocol', or 'simulated' to add them in the clear"
        )
