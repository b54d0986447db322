"""What a client keeps of a round between two phases, and its stored form: SECRETS INCLUDED.

The bytes end with the SHA-256 of the rest: a state that was cut, overwritten or bit-flipped is noticed and
not used. The digest is no defence against somebody who can write the state; whoever can read it has the
secrets anyway.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import msgpack

from skelmix.errors import CorruptState, InvalidInput
from skelmix.secagg import messages
from skelmix.secagg.excess import ExcessNoise
from skelmix.secagg.failures import MalformedMessage
from skelmix.secagg.messages import ShareRequest
from skelmix.secagg.settings import Phase, excess_of, transcript_of
from skelmix.secagg.sharing import SHARE_BYTES

VERSION = 4
DIGEST_BYTES = 32


class Secrets(dict[int, bytes]):
    """Secrets by neighbour; the representation shows how many, and nothing else."""

    def __repr__(self) -> str:
        return f"<{len(self)} secrets>"


@dataclass(slots=True)
class Round:
    """All that a client keeps between phases. Contains secrets; its representation shows none of them."""

    request: ShareRequest
    mask_secret: bytearray = field(repr=False)
    seed: bytearray = field(repr=False)
    pieces: bytearray = field(repr=False)  # the secrets of this client's noise, one after the other
    own_shares: bytes = field(repr=False)  # shares of its own secrets, in the order of `held`
    held: Secrets = field(default_factory=Secrets)  # neighbour -> shares of its seed, mask key and pieces
    sharers: bytes = b""
    survivors: bytes = b""

    @property
    def transcript(self) -> bytes:
        """The transcript of this round, as this client sees it."""
        return transcript_of(self.request)

    @property
    def excess(self) -> ExcessNoise:
        """The pieces of noise of this round."""
        return excess_of(self.request)

    def erase_masks(self) -> None:
        for secret in (self.mask_secret, self.seed, self.pieces):
            secret[:] = bytes(len(secret))


def with_digest(body: bytes) -> bytes:
    """The body and its SHA-256."""
    return body + hashlib.sha256(body).digest()


def to_bytes(participant: int, phase: Phase, state: Round | None) -> bytes:
    """The stored form of a participant's round; `from_bytes` is its inverse."""
    body: list[Any] = [VERSION, participant, phase.value]
    if state is not None:
        body += [
            messages.encode(state.request),
            bytes(state.mask_secret),
            bytes(state.seed),
            bytes(state.pieces),
            state.own_shares,
            sorted(state.held.items()),
            state.sharers,
            state.survivors,
        ]
    return with_digest(msgpack.packb(body, use_bin_type=True))


def from_bytes(data: bytes, participant: int) -> tuple[Phase, Round | None]:
    """Phase and round of this participant; `CorruptState` for anything that `to_bytes` did not write."""
    body = data[:-DIGEST_BYTES]
    if with_digest(body) != data:
        raise CorruptState("the stored state of a secure-aggregation client is damaged: abandon the round")
    try:
        version, owner, phase, *rest = msgpack.unpackb(body, use_list=False)
        stored_phase, state = Phase(phase), _round(*rest) if rest else None
    except (ValueError, TypeError, InvalidInput, MalformedMessage, msgpack.UnpackException) as error:
        raise CorruptState(
            "the stored state of a secure-aggregation client is not one: abandon the round"
        ) from error
    if version != VERSION or owner != participant:
        raise CorruptState("the stored state belongs to another version or participant: abandon the round")
    return stored_phase, state


def _round(
    raw: bytes,
    mask_secret: bytes,
    seed: bytes,
    pieces: bytes,
    own: bytes,
    held: Any,
    sharers: bytes,
    survivors: bytes,
) -> Round:
    # bytearray(number) would be an array of that length
    if not all(type(part) is bytes for part in (raw, mask_secret, seed, pieces, own, sharers, survivors)):
        raise TypeError("bytes are expected")
    request = messages.decode(raw, ShareRequest, len(raw))
    shares = (2 + len(excess_of(request).sizes)) * SHARE_BYTES
    known = [own, *(shares_held for _, shares_held in held)]
    if len(pieces) != shares - 2 * SHARE_BYTES:
        raise TypeError("a secret of each piece is expected")
    if not all(type(i) is int for i, _ in held) or any(
        type(s) is not bytes or len(s) != shares for s in known
    ):
        raise TypeError("shares of each secret are expected")
    return Round(
        request,
        bytearray(mask_secret),
        bytearray(seed),
        bytearray(pieces),
        own,
        Secrets(held),
        sharers,
        survivors,
    )
