"""The participant's side of a round: advertise, share, masked, (consistency), unmask.

Each method takes the server's message as bytes and returns the answer as bytes. A refused message raises and
leaves the client as it was. Nothing leaves in the clear but the masked vector and, for each neighbour, one of
two shares: that of its mask key, or that of its self mask together with those of the noise to be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from skelmix.encoding.wrapping import pack
from skelmix.noise.entropy import Entropy, system_entropy
from skelmix.noise.pieces import add_pieces
from skelmix.secagg import checks, masking, messages, sharing, stored
from skelmix.secagg import settings as rules
from skelmix.secagg.failures import OutOfOrder, UnsafeRequest, WrongRound
from skelmix.secagg.joined_rounds import JoinedRounds
from skelmix.secagg.keys import (
    Identity,
    KeyPair,
    advertisement_parts,
    commitment,
    mask_key_pair,
    pair_mask_key,
    seal,
    self_mask_key,
    share_key,
    survivors_parts,
    unseal,
)
from skelmix.secagg.messages import Message, ShareRequest
from skelmix.secagg.sets import contains
from skelmix.secagg.settings import Phase, Settings
from skelmix.secagg.stored import Round, Secrets
from skelmix.validation import whole

Accept = Callable[[ShareRequest], None]


class Client:
    """One participant in one round; its channel key, identity and list of joined rounds serve many.

    participant: the long-lived number of this participant, in [0, 2^64).
    channel: its long-lived X25519 key.
    identity, trusted, joined_rounds: needed in the malicious model: the signing key, every participant's
      Ed25519 public key as learnt from a source that the server does not control, and the rounds joined so
      far.
    minimum_settings: the weakest rules that this participant joins under: its own dimension, bits and
      context, which the round must have exactly, and the smallest threshold and number of colluders.
      Mandatory in the malicious model, unless `share` gets `accept`: what a malicious server says about its
      round is worth nothing.

    Example (a whole round: see `Server`):

        >>> from skelmix.secagg import KeyPair
        >>> Client(7, KeyPair.generate()).phase.name
        'SHARE'
    """

    def __init__(
        self,
        participant: int,
        channel: KeyPair,
        *,
        identity: Identity | None = None,
        trusted: Mapping[int, bytes] | None = None,
        joined_rounds: JoinedRounds | None = None,
        minimum_settings: Settings | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        whole(0, 2**64 - 1, participant=participant)
        self.participant = int(participant)
        self.phase = Phase.SHARE
        self._channel = channel
        self._identity = identity
        self._trusted = trusted
        self._joined_rounds = joined_rounds
        self._minimum_settings = minimum_settings
        self._entropy = entropy or system_entropy()
        self._round: Round | None = None
        self._agreed = Secrets()  # channel secrets, kept for the next phase but never written out

    def advertise(self) -> bytes:
        """The long-lived public keys. May be called at any time; the same bytes serve every round."""
        public = self._channel.public
        if self._identity is None:
            return messages.encode(messages.Advertisement(self.participant, public, b"", b""))
        signature = self._identity.sign(b"advertisement", *advertisement_parts(self.participant, public))
        return messages.encode(
            messages.Advertisement(self.participant, public, self._identity.public, signature)
        )

    def share(self, data: bytes, accept: Accept | None = None) -> bytes:
        """Draw this round's secrets and seal shares of them for the neighbours.

        `accept` sees the decoded request and raises (say `PolicyViolation`) when the participant does not
        want such a round: context, dimension, bits, threshold, threat model, round number. Nothing is drawn
        by then. In the malicious model a client with neither `accept` nor `minimum_settings` raises
        `UnsafeRequest`, and so does an empty context without `minimum_settings`, which compares it; `accept`
        must compare it itself. In the honest-but-curious model the server's word is enough.
        """
        self._expect(Phase.SHARE)
        limit = rules.limit_share_request(messages.MOST_PARTICIPANTS)
        request = messages.decode(data, ShareRequest, limit)
        self._check(request, accept is not None)
        if accept is not None:
            accept(request)
        drawn = [sharing.draw_secret(self._entropy) for _ in range(2 + len(rules.excess_of(request).sizes))]
        encoded, own_shares, agreed = self._shared(request, drawn)
        if self._joined_rounds is not None:
            self._joined_rounds.join(request.session, request.round)
        seed, mask_secret, *pieces = map(bytearray, drawn)
        self._round = Round(request, mask_secret, seed, bytearray().join(pieces), own_shares)
        self._agreed = agreed
        self.phase = Phase.MASKED
        return encoded

    def _shared(self, request: ShareRequest, secrets: list[bytes]) -> tuple[bytes, bytes, Secrets]:
        """The answer with the sealed shares of all secrets, this client's own shares, and channel secrets."""
        seed, mask_secret, *pieces = secrets
        index, transcript = request.index, rules.transcript_of(request)
        mask = mask_key_pair(mask_secret, transcript, index)
        count, t = len(request.neighbourhood), request.share_threshold
        tables = [sharing.split(secret, t, count, entropy=self._entropy) for secret in secrets]
        own_shares, agreed, sealed = b"", Secrets(), []
        for peer, *shares in zip(request.neighbourhood, *tables, strict=True):
            if peer[0] == index:
                own_shares = b"".join(shares)
                continue
            agreed[peer[0]] = self._channel.agree(peer[2])
            key = share_key(agreed[peer[0]], transcript, index, peer[0], mask.public)
            sealed.append((peer[0], seal(key, b"".join(shares), transcript)))
        answer = messages.Shares(
            session=request.session,
            round=request.round,
            sender=index,
            mask_key=mask.public,
            commitments=b"".join(
                commitment(secret, transcript, index, place) for place, secret in enumerate((seed, *pieces))
            ),
            sealed=tuple(sealed),
            signature=b"",
        )
        return self._encode(answer, request), own_shares, agreed

    def masked(self, data: bytes, vector: Any, *, participants: int | None = None) -> bytes:
        """The masked vector. `vector`: (dimension,) integers in [0, 2^bits); it is not modified.

        In a round with noise K the vector of each of n participants brings Sk(K/n, K/n) per coordinate; this
        client's pieces of excess noise are added here. There `participants` is mandatory: the n for which the
        vector was encoded (`accept` of `share` sees the round's). Another n than the round's is refused.
        Refuses when fewer than the threshold have shared, or too few neighbours to recover this client's
        masks. The mask secrets are erased once the answer is made.
        """
        self._expect(Phase.MASKED)
        state = self._state()
        request, transcript = state.request, state.transcript
        checks.encoded_for(request, participants)
        limit = rules.limit_mask_request(request.participants, request.degree, len(state.excess.sizes))
        delivery = messages.decode(data, messages.MaskRequest, limit)
        self._same_round(delivery)
        peers = checks.delivered(request, delivery)
        held = self._open(delivery)
        mask = mask_key_pair(bytes(state.mask_secret), transcript, request.index)
        own = (request.index, mask.public)
        added = [self_mask_key(bytes(state.seed), transcript, request.index)]
        removed: list[bytes] = []
        for index, mask_key in peers.items():
            key = pair_mask_key(mask.agree(mask_key), transcript, own, (index, mask_key))
            (added if request.index < index else removed).append(key)
        words = masking.words(vector, request.dimension, request.bits)
        pieces = enumerate(sharing.parts(bytes(state.pieces)))
        add_pieces(words, state.excess.expandable(pieces, transcript, request.index))
        masking.apply(words, added, removed)
        masking.reduce(words, request.bits)
        answer = messages.MaskedInput(
            request.session, request.round, request.index, pack(words, request.bits), b""
        )
        encoded = self._encode(answer, request)
        state.held = held
        state.sharers = delivery.sharers
        state.erase_masks()
        self._agreed = Secrets()
        self.phase = Phase.CONSISTENCY if request.malicious else Phase.UNMASK
        return encoded

    def consistency(self, data: bytes) -> bytes:
        """Malicious model: sign the one set of survivors that this client will unmask for."""
        self._expect(Phase.CONSISTENCY)
        state = self._state()
        request = state.request
        limit = rules.limit_consistency_request(request.participants)
        shown = messages.decode(data, messages.ConsistencyRequest, limit)
        self._same_round(shown)
        checks.survivors_of(request, state.sharers, shown.survivors)
        signature = self._signer().sign(b"survivors", *survivors_parts(state.transcript, shown.survivors))
        state.survivors = shown.survivors
        self.phase = Phase.UNMASK
        return messages.encode(messages.Agreement(request.session, request.round, request.index, signature))

    def unmask(self, data: bytes) -> bytes:
        """For each neighbour that shared: a share of its self-mask seed if it survived, else of its mask key.

        With a survivor's seed go the shares of the pieces of its noise that exceed what it keeps among these
        survivors, computed here, and never those of a piece that it keeps.
        Answers once. Refuses a set of survivors below the threshold, without this client, or beyond those who
        shared; in the malicious model also a set other than the signed one, or without `threshold` valid
        agreements on it. All secrets of the round are dropped afterwards.
        """
        self._expect(Phase.UNMASK)
        state = self._state()
        request = state.request
        shown = messages.decode(
            data, messages.UnmaskRequest, rules.limit_unmask_request(request.participants)
        )
        self._same_round(shown)
        survivors = checks.survivors_of(request, state.sharers, shown.survivors)
        if request.malicious:
            checks.all_agree(request, state.survivors, shown, survivors)
        seeds, keys = [], []
        for index, held in [(request.index, state.own_shares), *state.held.items()]:
            seed, key, *pieces = sharing.parts(held)
            if contains(survivors, index):
                removed = [pieces[piece] for piece in state.excess.removed(survivors, index)]
                seeds.append((index, b"".join((seed, *removed))))
            else:
                keys.append((index, key))
        answer = messages.UnmaskShares(
            request.session, request.round, request.index, tuple(sorted(seeds)), tuple(sorted(keys)), b""
        )
        encoded = self._encode(answer, request)
        self.abandon()
        self.phase = Phase.DONE
        return encoded

    def abandon(self) -> None:
        """Erase what can be erased and take no further part in this round."""
        if self._round is not None:
            self._round.erase_masks()
        self._round = None
        self._agreed = Secrets()
        self.phase = Phase.FAILED

    def secret_state(self) -> bytes:
        """All that the next phase needs, SECRETS INCLUDED, for a client served by several processes.

        Store it where only this participant reads it, and replace it before the answer of a phase leaves the
        machine: an old state brought back would answer a second time. Channel key, identity and joined
        rounds are not part of it.
        """
        return stored.to_bytes(self.participant, self.phase, self._round)

    def restore(self, secret_state: bytes) -> None:
        """Continue from the same participant's `secret_state()`; else `CorruptState`, and no change.

        For a new client only: one that has shared, finished or given up raises `OutOfOrder`, since an
        older state would let it open a second set of survivors.
        """
        self._expect(Phase.SHARE)
        self.phase, self._round = stored.from_bytes(secret_state, self.participant)
        self._agreed = Secrets()

    def _expect(self, phase: Phase) -> None:
        if self.phase is not phase:
            raise OutOfOrder(
                f"the client is in phase {self.phase.value}, not {phase.value}; "
                "a new round needs a new Client"
            )

    def _state(self) -> Round:
        if self._round is None:
            raise OutOfOrder("the client holds no round")
        return self._round

    def _signer(self) -> Identity:
        if self._identity is None:
            raise UnsafeRequest(
                "the malicious model needs an identity: pass identity= and trusted= to Client"
            )
        return self._identity

    def _encode(self, answer: Message, request: ShareRequest) -> bytes:
        if not request.malicious:
            return messages.encode(answer)
        signature = self._signer().sign(
            b"message", rules.transcript_of(request), messages.signed_part(answer)
        )
        return messages.encode(replace(answer, signature=signature))  # type: ignore[call-arg]

    def _same_round(self, message: Any) -> None:
        request = self._state().request
        if (message.session, message.round) != (request.session, request.round):
            raise WrongRound("a request of another session or round: refused")

    def _check(self, request: ShareRequest, judged: bool) -> None:
        if self._joined_rounds is not None:
            self._joined_rounds.check(request.session, request.round)
        elif request.malicious:
            raise UnsafeRequest("the malicious model needs joined_rounds=: no round may be joined twice")
        settings, graph = checks.rules_of(request)
        checks.own_place(request, graph, self.participant, self._channel.public)
        if settings.malicious:
            signer, trusted = self._signer(), dict(self._trusted or {})
            if trusted.setdefault(self.participant, signer.public) != signer.public or self._trusted is None:
                raise UnsafeRequest(
                    "the malicious model needs trusted=: every participant's identity key, from elsewhere"
                )
            checks.roster_is_trusted(request, trusted)
        elif self._trusted is not None:
            raise UnsafeRequest("this client was made for the malicious model; the server asks for less")
        if self._minimum_settings is not None:
            checks.keeps(request, self._minimum_settings)
        elif request.malicious and not judged:
            raise UnsafeRequest(
                "the malicious model needs minimum_settings=, the weakest rules that this participant joins "
                "under, or accept=: size and threshold are not the server's to choose"
            )
        elif request.malicious and not request.context:
            raise UnsafeRequest(
                "the round has no context, so participants may hold other plans: give Settings(context=), "
                "and compare it in accept=, or pass minimum_settings="
            )

    def _open(self, delivery: messages.MaskRequest) -> Secrets:
        request, transcript = self._state().request, self._state().transcript
        channels = {peer[0]: peer[2] for peer in request.neighbourhood}
        held = Secrets()
        for index, mask_key, sealed in delivery.sealed:
            shared = self._agreed.get(index) or self._channel.agree(channels[index])
            key = share_key(shared, transcript, index, request.index, mask_key)
            held[index] = unseal(key, sealed, transcript)
        return held
