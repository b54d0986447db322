"""Which rounds a participant has joined, so that it joins none twice.

Channel keys live longer than a round. A malicious server that ran one (session, round) twice with the same
participants could deliver the shares of one run in the other, call a participant a survivor here and a
dropout there, and collect both of its secrets. Two rounds with different names share no key, so joining each
name once is enough.
"""

from __future__ import annotations

import msgpack

from skelmix.errors import CorruptState
from skelmix.secagg.failures import UnsafeRequest
from skelmix.secagg.messages import SESSION_BYTES


class JoinedRounds:
    """The last round joined in each session: rounds are joined in rising order, each at most once.

    Keep it as long as the channel key: store `to_bytes()` before an answer of phase "share" leaves the
    machine.

    Example: `JoinedRounds.from_bytes(JoinedRounds().to_bytes())`.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, int] = {}

    def check(self, session: bytes, round: int) -> None:
        """Raise `UnsafeRequest` when this round, or a later one of the session, was joined before."""
        if round <= self._last.get(session, -1):
            raise UnsafeRequest(
                f"round {round} or a later one of this session was joined before: each round is joined once"
            )

    def join(self, session: bytes, round: int) -> None:
        """Remember the round; raises as `check` does."""
        self.check(session, round)
        self._last[session] = round

    def to_bytes(self) -> bytes:
        """The record as bytes; `from_bytes` reads them."""
        packed: bytes = msgpack.packb([1, sorted(self._last.items())], use_bin_type=True)
        return packed

    @classmethod
    def from_bytes(cls, data: bytes) -> JoinedRounds:
        """The inverse of `to_bytes`; anything else raises `CorruptState`."""
        result = cls()
        try:
            version, rows = msgpack.unpackb(data, use_list=False)
            sound = version == 1 and all(
                type(s) is bytes and len(s) == SESSION_BYTES and type(r) is int and r >= 0 for s, r in rows
            )
            result._last = dict(rows)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise CorruptState("the list of joined rounds is damaged: make new channel keys") from error
        if not sound:
            raise CorruptState("the list of joined rounds is damaged: make new channel keys")
        return result
