"""The aggregator's side of a round, in the same phases as the client's.

For each phase X, `server.X(data)` takes one client's message and returns the sender's number, and
`server.close_X()` ends the phase: it returns the requests to send next, by participant, or at the end the
sum. A refused message raises `ProtocolError` and changes nothing. Too few participants raise `RoundFailed`;
the round is then over and its masks stay on.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from skelmix.arrays import WordArray
from skelmix.encoding.wrapping import unpack, wire_dtype
from skelmix.errors import InvalidInput, RoundFailed
from skelmix.noise import pieces
from skelmix.noise.entropy import system_entropy
from skelmix.secagg import masking, messages
from skelmix.secagg import settings as rules
from skelmix.secagg.excess import ExcessNoise
from skelmix.secagg.failures import (
    DuplicateMessage,
    MalformedMessage,
    NotAuthentic,
    OutOfOrder,
    UnknownSender,
    WrongRound,
)
from skelmix.secagg.graph import Graph, neighbourhood
from skelmix.secagg.keys import COMMITMENT_BYTES, advertisement_parts, survivors_parts, verify
from skelmix.secagg.messages import Message, Peer, sealed_bytes
from skelmix.secagg.recovery import Recovery
from skelmix.secagg.sets import as_integer, bitmap
from skelmix.secagg.settings import Phase, Settings
from skelmix.secagg.sharing import SHARE_BYTES
from skelmix.validation import whole
from skelmix.wording import counted

M = TypeVar("M", bound=Message)
Requests = dict[int, bytes]


class Server:
    """One round, with one accumulator of `dimension` words, whatever the number of participants.

    In every phase the transport may name the `sender` that it authenticated: a message in another's name is
    refused. Without it, honest-but-curious rounds believe the name in the message; malicious-model messages
    are signed.

    session: 16 public bytes that name the training run or the sum; drawn here when not given.

    Example, a whole round in one process (between machines, send what is passed here):

        >>> import numpy as np
        >>> from skelmix.secagg import Client, KeyPair
        >>> server = Server(Settings(dimension=2, bits=8, threshold=3))
        >>> clients = {i: Client(i, KeyPair.generate()) for i in range(3)}
        >>> for client in clients.values():
        ...     _ = server.advertise(client.advertise())
        >>> for i, request in server.close_advertise().items():
        ...     _ = server.share(clients[i].share(request))
        >>> for i, request in server.close_share().items():
        ...     _ = server.masked(clients[i].masked(request, np.array([i, 100], np.uint8)))
        >>> for i, request in server.close_masked().items():
        ...     _ = server.unmask(clients[i].unmask(request))
        >>> server.close_unmask()
        array([ 3, 44], dtype=uint8)
    """

    def __init__(self, settings: Settings, *, round: int = 0, session: bytes | None = None) -> None:
        whole(0, 2**64 - 1, round=round)
        self.settings = settings
        self.round = int(round)
        self.session = system_entropy().bytes(messages.SESSION_BYTES) if session is None else session
        if len(self.session) != messages.SESSION_BYTES:
            raise InvalidInput(f"session has {len(self.session)} bytes: must be {messages.SESSION_BYTES}")
        self.phase = Phase.ADVERTISE
        self.graph: Graph | None = None
        self._advertised: dict[int, messages.Advertisement] = {}
        self._keys: set[bytes] = set()  # public keys seen in this round, none of them twice
        self._roster: tuple[Peer, ...] = ()
        self._neighbourhoods: list[list[int]] = []
        self._transcript = self._roster_digest = b""
        self._shares: dict[int, messages.Shares] = {}
        self._survivors: set[int] = set()
        self._agreements: dict[int, bytes] = {}
        self._removed: dict[int, int] = {}  # survivor -> how many of its pieces of noise are removed
        self._revealed: dict[int, messages.UnmaskShares] = {}
        self._total = np.zeros(settings.dimension, wire_dtype(settings.bits))

    @property
    def survivors(self) -> tuple[int, ...]:
        """The participants whose masked vector is in the sum, in rising order."""
        return tuple(sorted(self._roster[index][1] for index in self._survivors))

    # phase by phase

    def advertise(self, data: bytes, sender: int | None = None) -> int:
        """Accept an advertisement, fresh or kept from an earlier round."""
        self._expect(Phase.ADVERTISE)
        message = messages.decode(data, messages.Advertisement, rules.limit_advertisement())
        if message.participant in self._advertised:
            raise DuplicateMessage(f"participant {message.participant} has already advertised")
        if sender is not None and message.participant != sender:
            raise UnknownSender(f"participant {sender} sent a message in another participant's name")
        if message.channel_key in self._keys:
            raise NotAuthentic(f"participant {message.participant} advertises another participant's key")
        if self.settings.malicious:
            parts = advertisement_parts(message.participant, message.channel_key)
            verify(message.identity_key, message.signature, b"advertisement", *parts)
        if len(self._advertised) >= messages.MOST_PARTICIPANTS:
            raise OutOfOrder(f"the round is full: {messages.MOST_PARTICIPANTS} participants")
        self._advertised[message.participant] = message
        self._keys.add(message.channel_key)
        return message.participant

    def close_advertise(self) -> Requests:
        """Fix roster, graph and transcript; the share request for each participant."""
        self._expect(Phase.ADVERTISE)
        self._enough(len(self._advertised), "advertised")
        graph = self.settings.graph(len(self._advertised))
        seed = system_entropy().bytes(32)
        self._roster = tuple(
            (index, participant, m.channel_key, m.identity_key, m.signature)
            for index, (participant, m) in enumerate(sorted(self._advertised.items()))
        )
        self._neighbourhoods = [neighbourhood(graph, seed, index) for index in range(graph.participants)]
        self._roster_digest = rules.roster_digest(self._roster)
        self._transcript = rules.transcript(
            self.settings, self.session, self.round, graph, seed, self._roster_digest
        )
        self.graph = graph
        self.phase = Phase.SHARE
        return {peer[1]: self._share_request(graph, seed, peer[0]) for peer in self._roster}

    def _share_request(self, graph: Graph, seed: bytes, index: int) -> bytes:
        settings = self.settings
        request = messages.ShareRequest(
            session=self.session,
            round=self.round,
            dimension=settings.dimension,
            bits=settings.bits,
            threshold=settings.threshold,
            colluding=settings.colluding,
            malicious=settings.malicious,
            noise=settings.noise,
            expansion=pieces.VERSION,
            context=settings.context,
            participants=graph.participants,
            degree=graph.degree,
            share_threshold=graph.share_threshold,
            graph_seed=seed,
            roster=self._roster_digest,
            index=index,
            neighbourhood=tuple(self._roster[i] for i in self._neighbourhoods[index]),
        )
        return messages.encode(request)

    def share(self, data: bytes, sender: int | None = None) -> int:
        """Accept a client's mask key and sealed shares."""
        count = len(self._excess.sizes)
        limit = rules.limit_shares(self._graph.degree, count)
        message = self._receive(Phase.SHARE, data, messages.Shares, limit, self._shares, sender)
        expected = [index for index in self._neighbourhoods[message.sender] if index != message.sender]
        if [index for index, _ in message.sealed] != expected:
            raise MalformedMessage("the sealed shares are not addressed to the sender's neighbours, in order")
        sizes = {len(sealed) for _, sealed in message.sealed} | {sealed_bytes(count)}
        if len(sizes) > 1 or len(message.commitments) != (1 + count) * COMMITMENT_BYTES:
            raise MalformedMessage(
                f"the shares are not of the secrets of a round with {count} pieces of noise"
            )
        if message.mask_key in self._keys:
            raise NotAuthentic("the mask key is one that was already used in this round")
        self._shares[message.sender] = message
        self._keys.add(message.mask_key)
        return self._roster[message.sender][1]

    def close_share(self) -> Requests:
        """The mask request for each participant that shared."""
        self._expect(Phase.SHARE)
        self._enough(len(self._shares), "shared keys")
        sharers = bitmap(set(self._shares), len(self._roster))
        outgoing: dict[int, list[tuple[int, bytes, bytes]]] = {index: [] for index in self._shares}
        for sender, message in sorted(self._shares.items()):
            for recipient, sealed in message.sealed:
                if recipient in outgoing:
                    outgoing[recipient].append((sender, message.mask_key, sealed))
        self.phase = Phase.MASKED
        return {
            self._roster[index][1]: messages.encode(
                messages.MaskRequest(self.session, self.round, sharers, tuple(rows))
            )
            for index, rows in outgoing.items()
        }

    def masked(self, data: bytes, sender: int | None = None) -> int:
        """Add a masked vector to the running sum; the message can be thrown away afterwards."""
        limit = rules.limit_masked_input(self.settings.payload_bytes)
        message = self._receive(Phase.MASKED, data, messages.MaskedInput, limit, self._survivors, sender)
        if message.sender not in self._shares:
            raise UnknownSender("a masked vector from a participant that shared no keys")
        try:
            vector = unpack(message.payload, self.settings.dimension, self.settings.bits)
        except InvalidInput as error:
            raise MalformedMessage(f"masked input: {error}") from error
        np.add(self._total, vector, out=self._total)
        self._survivors.add(message.sender)
        return self._roster[message.sender][1]

    def close_masked(self) -> Requests:
        """Fix the survivors: consistency requests in the malicious model, else unmask requests."""
        self._expect(Phase.MASKED)
        self._enough(len(self._survivors), "sent masked vectors")
        if not self.settings.malicious:
            return self._unmask_requests(self._survivors)
        self.phase = Phase.CONSISTENCY
        request = messages.ConsistencyRequest(self.session, self.round, self._survivor_bitmap())
        return self._to(self._survivors, messages.encode(request))

    def consistency(self, data: bytes, sender: int | None = None) -> int:
        """Accept a survivor's signature over the set of survivors (malicious model)."""
        limit = rules.limit_agreement()
        message = self._receive(Phase.CONSISTENCY, data, messages.Agreement, limit, self._agreements, sender)
        if message.sender not in self._survivors:
            raise UnknownSender("an agreement from a participant that did not survive")
        parts = survivors_parts(self._transcript, self._survivor_bitmap())
        verify(self._roster[message.sender][3], message.signature, b"survivors", *parts)
        self._agreements[message.sender] = message.signature
        return self._roster[message.sender][1]

    def close_consistency(self) -> Requests:
        """The unmask request, with all agreements, for each survivor that agreed."""
        self._expect(Phase.CONSISTENCY)
        self._enough(len(self._agreements), "agreed on the survivors")
        return self._unmask_requests(set(self._agreements))

    def _unmask_requests(self, recipients: set[int]) -> Requests:
        present = as_integer(self._survivors)
        self._removed = {i: len(self._excess.removed(present, i)) for i in self._survivors}
        request = messages.UnmaskRequest(
            self.session, self.round, self._survivor_bitmap(), tuple(sorted(self._agreements.items()))
        )
        self.phase = Phase.UNMASK
        return self._to(recipients, messages.encode(request))

    def unmask(self, data: bytes, sender: int | None = None) -> int:
        """Accept a survivor's shares."""
        limit = rules.limit_unmask_shares(self._graph.degree, len(self._excess.sizes))
        message = self._receive(Phase.UNMASK, data, messages.UnmaskShares, limit, self._revealed, sender)
        if message.sender not in self._survivors:
            raise UnknownSender("shares from a participant that did not survive")
        near = {index for index in self._neighbourhoods[message.sender] if index in self._shares}
        seeds, keys = [(i, len(s)) for i, s in message.seed_shares], [i for i, _ in message.key_shares]
        asked = [(i, (1 + self._removed[i]) * SHARE_BYTES) for i in sorted(near & self._survivors)]
        if seeds != asked or keys != sorted(near - self._survivors):
            raise MalformedMessage("the shares are not those that were asked for")
        self._revealed[message.sender] = message
        return self._roster[message.sender][1]

    def close_unmask(self) -> WordArray:
        """The sum of the survivors' vectors modulo 2^bits, (dimension,), smallest unsigned type.

        In a round with `noise` the excess is removed: Sk(noise, noise) is left, whoever dropped out.
        Raises `RoundFailed` when fewer than the threshold answered, a neighbourhood has too few answers, or
        the shares of a participant do not give what it published. Nothing is revealed then.
        """
        self._expect(Phase.UNMASK)
        self._enough(len(self._revealed), "answered the unmask request")
        try:
            left = Recovery(
                self._neighbourhoods,
                self._graph.share_threshold,
                self._transcript,
                self._excess,
                self._shares,
                self._survivors,
                self._revealed,
            ).leftovers()
        except RoundFailed:
            self.phase = Phase.FAILED
            raise
        masking.apply(self._total, left.added, left.removed)
        pieces.add_pieces(self._total, left.noise, remove=True)
        masking.reduce(self._total, self.settings.bits)
        self._shares, self._revealed = {}, {}
        self.phase = Phase.DONE
        return self._total

    # checks and small parts

    @property
    def _graph(self) -> Graph:
        if self.graph is None:
            raise OutOfOrder("the roster is still open: close_advertise comes first")
        return self.graph

    @property
    def _excess(self) -> ExcessNoise:
        return self.settings.excess(self._graph.participants)

    def _survivor_bitmap(self) -> bytes:
        return bitmap(self._survivors, len(self._roster))

    def _to(self, recipients: set[int], data: bytes) -> Requests:
        return {self._roster[index][1]: data for index in sorted(recipients)}

    def _expect(self, phase: Phase) -> None:
        if self.phase is not phase:
            raise OutOfOrder(f"the server is in phase {self.phase.value}, not {phase.value}")

    def _enough(self, count: int, did: str) -> None:
        if count < self.settings.threshold:
            self.phase = Phase.FAILED
            raise RoundFailed(
                f"{counted(count, 'participant')} {did}, the threshold is {self.settings.threshold}: no sum "
                "is opened; wait for more participants or plan for more dropouts"
            )

    def _receive(
        self, phase: Phase, data: bytes, kind: type[M], limit: int, seen: Any, sender: int | None
    ) -> M:
        """Decode and check what all client messages of a round have in common."""
        self._expect(phase)
        decoded = messages.decode(data, kind, limit)
        message: Any = decoded
        if (message.session, message.round) != (self.session, self.round):
            raise WrongRound("a message of another session or round: refused")
        if message.sender >= len(self._roster):
            raise UnknownSender(f"sender {message.sender} is not in the roster of {len(self._roster)}")
        if sender is not None and self._roster[message.sender][1] != sender:
            raise UnknownSender(f"participant {sender} sent a message in another participant's name")
        if message.sender in seen:
            raise DuplicateMessage(f"sender {message.sender} has already answered in phase {phase.value}")
        if self.settings.malicious and not isinstance(message, messages.Agreement):
            signed = messages.signed_part(message)
            verify(self._roster[message.sender][3], message.signature, b"message", self._transcript, signed)
        return decoded
