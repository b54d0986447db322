"""How many bytes a participant uploads in one round: the masked vector, and what the protocol adds to it."""

from __future__ import annotations

from functools import lru_cache

from skelmix.secagg.excess import ExcessNoise
from skelmix.secagg.graph import choose
from skelmix.secagg.keys import COMMITMENT_BYTES, KEY_BYTES
from skelmix.secagg.messages import (
    SESSION_BYTES,
    MaskedInput,
    Shares,
    UnmaskShares,
    encode,
    sealed_bytes,
)
from skelmix.secagg.sharing import SHARE_BYTES

_LATE_ROUND = 1 << 31  # a round number that takes as many bytes as any that occurs


@lru_cache(maxsize=256)
def protocol_bytes(
    participants: int,
    threshold: int,
    colluding: int = 0,
    *,
    excess: bool = False,
    dropout_rate: float | None = None,
) -> int:
    """Bytes that one participant uploads in a round beside the packed vector itself, at most.

    excess: whether the round removes excess noise (`Settings.noise`). dropout_rate: as in `Settings`.
    An honest-but-curious round without signatures, in which nobody drops out; a dropout changes a few bytes.
    Messages of that shape are made and measured. The advertisement, sent once and not in every round, is not
    counted, nor is the envelope of whatever carries the messages.
    """
    degree = choose(participants, threshold, colluding=colluding, dropout_rate=dropout_rate).degree
    pieces = len(ExcessNoise(float(excess), participants, threshold, colluding).sizes)
    session, last = bytes(SESSION_BYTES), participants - 1
    sealed = tuple((last, bytes(sealed_bytes(pieces))) for _ in range(degree))
    opened = tuple((last, bytes((1 + pieces) * SHARE_BYTES)) for _ in range(degree + 1))
    key = bytes(KEY_BYTES)
    messages = (
        Shares(session, _LATE_ROUND, last, key, bytes((1 + pieces) * COMMITMENT_BYTES), sealed, b""),
        MaskedInput(session, _LATE_ROUND, last, b"", b""),
        UnmaskShares(session, _LATE_ROUND, last, opened, (), b""),
    )
    return sum(len(encode(message)) for message in messages) + 4  # the vector's length takes up to 5 bytes
