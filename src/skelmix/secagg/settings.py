"""What both sides of a round agree on (vectors, threshold, threat model), and what follows from it."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from skelmix.errors import InvalidInput
from skelmix.noise import pieces
from skelmix.secagg import graph as graphs
from skelmix.secagg.excess import ExcessNoise
from skelmix.secagg.graph import Graph
from skelmix.secagg.keys import COMMITMENT_BYTES, KEY_BYTES, SIGNATURE_BYTES, digest, number
from skelmix.secagg.messages import (
    MOST_CONTEXT_BYTES,
    MOST_COORDINATES,
    MOST_PARTICIPANTS,
    Peer,
    ShareRequest,
    sealed_bytes,
)
from skelmix.secagg.sharing import SHARE_BYTES
from skelmix.validation import bits as check_bits
from skelmix.validation import fraction, non_negative, whole


class Phase(Enum):
    """The phases of a round, the same on both sides. A client in phase X waits for the request of X.

    Example: `client.phase is Phase.MASKED`.
    """

    ADVERTISE = "advertise"
    SHARE = "share"
    MASKED = "masked"
    CONSISTENCY = "consistency"
    UNMASK = "unmask"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Settings:
    """The rules of a round.

    dimension, bits: vectors of `dimension` words of Z_{2^bits}.
    threshold: the least number of survivors whose sum may be opened (a plan's `min_survivors`).
    colluding: how many participants may pool what they know with the server.
    malicious: False, the server is honest but curious; True, it may send anything to anyone: identities,
      signatures and the consistency check are then mandatory, the graph is full, and 2·threshold >
      participants + colluding.
    full_graph: take the full graph whatever the number of participants.
    noise: K, where the noise of the sum is to be exactly Sk(K, K), whoever drops out: each of n participants
      brings its vector with noise Sk(K/n, K/n) in it, the protocol adds more for those who may be missing,
      and the server removes what the survivors turn out not to need. 0: the vectors bring all of their noise.
    context: up to 64 bytes that name what the vectors mean, such as a digest of the plan and the round that
      they were encoded under. Participants with different contexts share no key, so no sum of theirs opens.
    dropout_rate: where a plan states it (`Cohort.assumed_dropout_rate`), the largest probability with which a
      participant fails to answer, independently of the others. The server's choice of a sparse graph then
      rests on it, with fewer neighbours; so does what a client with such `minimum_settings` joins. It decides
      whether rounds open, never what they reveal, and no message states it. None: no law.

    Example:

        >>> Settings(dimension=1_000, bits=8, threshold=36, colluding=4).threshold
        36
    """

    dimension: int
    bits: int
    threshold: int
    colluding: int = 0
    malicious: bool = False
    full_graph: bool = False
    context: bytes = b""
    noise: float = 0.0
    dropout_rate: float | None = None

    def __post_init__(self) -> None:
        whole(1, MOST_COORDINATES, dimension=self.dimension)
        check_bits(self.bits)
        whole(1, MOST_PARTICIPANTS, threshold=self.threshold)
        whole(0, MOST_PARTICIPANTS, colluding=self.colluding)
        non_negative(noise=self.noise)
        if self.dropout_rate is not None:
            fraction(dropout_rate=self.dropout_rate)
            object.__setattr__(self, "dropout_rate", float(self.dropout_rate))
        object.__setattr__(self, "noise", float(self.noise))
        if not isinstance(self.context, bytes) or len(self.context) > MOST_CONTEXT_BYTES:
            raise InvalidInput(
                f"context = {self.context!r}: must be bytes, at most {MOST_CONTEXT_BYTES}; pass a digest"
            )

    def graph(self, participants: int) -> Graph:
        """Degree and Shamir threshold for this many participants; `InvalidInput` when a rule is broken."""
        self._check(participants)
        return graphs.choose(
            participants,
            self.threshold,
            colluding=self.colluding,
            full=self.full_graph or self.malicious,
            dropout_rate=self.dropout_rate,
        )

    def allow(self, graph: Graph) -> bool:
        """Whether a graph that somebody else chose is as secret as `graph()`; `InvalidInput` as there.

        The full graph, or, unless the server may be malicious, a ring lattice that `meets` the conditions. It
        is judged as it is, not searched for: the work grows with its degree, whatever else it claims. Whether
        it opens as often is another question: `checks.keeps`.
        """
        self._check(graph.participants)
        if graph.full:
            return graph.share_threshold == self.threshold
        return not self.malicious and graphs.meets(graph, self.threshold, self.colluding)

    def _check(self, participants: int) -> None:
        """The rules that hold in every graph.

        Any threat model: threshold > colluding, and at least 2 (1 only for a lone participant). Malicious
        server: 2·threshold > participants + colluding, for otherwise two disjoint groups of honest clients
        could be made to open two different sums, or both masks of one participant.
        """
        whole(1, MOST_PARTICIPANTS, participants=participants)
        if self.threshold < min(2, participants):
            raise InvalidInput(
                f"threshold = {self.threshold}: a sum of one vector hides nothing; pass at least 2"
            )
        if self.malicious and 2 * self.threshold <= participants + self.colluding:
            raise InvalidInput(
                f"threshold = {self.threshold}: against a malicious server it must exceed "
                f"(participants + colluding)/2 = {(participants + self.colluding) / 2}; raise the threshold"
            )
        graphs.check(participants, self.threshold, self.colluding)
        if self.excess(participants).no_table:
            raise InvalidInput(
                f"noise = {self.noise:g}: a piece of it has a rate beyond exact tables, which are for more "
                "than 0 and at most 1e8; choose another scale"
            )

    def excess(self, participants: int) -> ExcessNoise:
        """The pieces of noise that are removed again when fewer drop out than may."""
        return ExcessNoise(self.noise, participants, self.threshold, self.colluding)

    @property
    def payload_bytes(self) -> int:
        """The size of a packed vector: ⌈dimension · bits / 8⌉ bytes."""
        return (self.dimension * self.bits + 7) // 8


def roster_digest(roster: Iterable[Peer]) -> bytes:
    """SHA-256 over everyone who takes part: index, number, channel key and identity key of each."""
    peers = [b"".join((number(p[0]), number(p[1]), p[2], p[3].ljust(KEY_BYTES, b"\0"))) for p in roster]
    return digest(b"roster", *peers)


def transcript(
    settings: Settings, session: bytes, round: int, graph: Graph, seed: bytes, roster: bytes
) -> bytes:
    """SHA-256 over all that the round depends on, the context included; `roster` is a `roster_digest`.

    It salts every key and is part of everything that is signed: two views of a round share no key.
    """
    rules = (
        settings.dimension,
        settings.bits,
        settings.threshold,
        settings.colluding,
        int(settings.malicious),
    )
    shape = (graph.participants, graph.degree, graph.share_threshold)
    numbers = map(number, (round, *rules, *shape, pieces.VERSION))
    noise = struct.pack(">d", settings.noise)
    return digest(b"transcript", session, *numbers, noise, settings.context, seed, roster)


def settings_of(request: ShareRequest) -> tuple[Settings, Graph]:
    """The settings and the graph that a request states; `InvalidInput` when there are no such settings."""
    settings = Settings(
        request.dimension,
        request.bits,
        request.threshold,
        request.colluding,
        request.malicious,
        context=request.context,
        noise=request.noise,
    )
    return settings, Graph(request.participants, request.degree, request.share_threshold)


def excess_of(request: ShareRequest) -> ExcessNoise:
    """The pieces of noise of a round, from what the request states."""
    return ExcessNoise(request.noise, request.participants, request.threshold, request.colluding)


def transcript_of(request: ShareRequest) -> bytes:
    """The transcript as this participant sees the round: computed here, never taken from the server."""
    settings, graph = settings_of(request)
    return transcript(settings, request.session, request.round, graph, request.graph_seed, request.roster)


# Upper limits in bytes, checked before a message is decoded. An index takes at most 3 bytes, a byte string 3
# to 5 of head.
_FRAME = 256
_ROW = 16  # bytes, as _FRAME


def limit_advertisement() -> int:
    return _FRAME


def limit_share_request(participants: int) -> int:
    return 2 * _FRAME + participants * (2 * KEY_BYTES + SIGNATURE_BYTES + 2 * _ROW)


def limit_shares(degree: int, pieces: int) -> int:
    return 2 * _FRAME + pieces * COMMITMENT_BYTES + degree * (sealed_bytes(pieces) + _ROW)


def limit_mask_request(participants: int, degree: int, pieces: int) -> int:
    return _FRAME + participants + degree * (KEY_BYTES + sealed_bytes(pieces) + _ROW)


def limit_masked_input(payload_bytes: int) -> int:
    return _FRAME + payload_bytes


def limit_consistency_request(participants: int) -> int:
    return _FRAME + participants


def limit_agreement() -> int:
    return _FRAME


def limit_unmask_request(participants: int) -> int:
    return _FRAME + participants + participants * (SIGNATURE_BYTES + _ROW)


def limit_unmask_shares(degree: int, pieces: int) -> int:
    return _FRAME + (degree + 1) * ((1 + pieces) * SHARE_BYTES + _ROW)
