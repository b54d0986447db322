"""What a client checks before it answers. Each function raises or returns; none changes anything."""

from __future__ import annotations

from collections.abc import Mapping

from skelmix.errors import InvalidInput
from skelmix.noise.pieces import VERSION as EXPANSION
from skelmix.secagg import settings as rules
from skelmix.secagg.failures import MalformedMessage, NotAuthentic, UnsafeRequest
from skelmix.secagg.graph import Graph, neighbourhood, opens
from skelmix.secagg.keys import advertisement_parts, survivors_parts, verify
from skelmix.secagg.messages import MaskRequest, ShareRequest, UnmaskRequest, sealed_bytes
from skelmix.secagg.sets import contains, members
from skelmix.secagg.settings import Settings


def rules_of(request: ShareRequest) -> tuple[Settings, Graph]:
    """Settings and graph of a request, judged as they stand: the work is bounded by the bytes received."""
    if len(request.neighbourhood) != request.degree + 1:
        raise MalformedMessage(
            f"{len(request.neighbourhood)} neighbours shown, the degree is {request.degree}"
        )
    if request.expansion != EXPANSION:
        raise UnsafeRequest(
            f"the round expands seeds into noise by version {request.expansion}, this side by {EXPANSION}: "
            "the noise would not be removed; update the older side"
        )
    try:
        settings, asked = rules.settings_of(request)
        if settings.allow(asked):
            return settings, asked
    except InvalidInput as error:
        raise UnsafeRequest(f"the settings of the round are refused: {error}") from error
    raise UnsafeRequest("degree and Shamir threshold do not keep what the settings promise")


def same_context(request: ShareRequest, own: bytes) -> None:
    """Check that the round is for the plan, round and run under which this participant encodes its vector."""
    if request.context != own:
        raise UnsafeRequest(
            "the context of the round is not this participant's: the others may hold another plan or round, "
            "whose noise would not hide this vector; give everyone the same plan"
        )


def same_noise(request: ShareRequest, own: float) -> None:
    """Check that the protocol makes up for dropouts with the noise that this participant counts on.

    own: as in `Settings`; 0 for a vector that brings all of its noise.
    """
    if request.noise != own:
        raise UnsafeRequest(
            f"the round adds up to noise {request.noise:g}, this participant encodes for {own:g}: the sum "
            "would hold too little noise, or too much; give everyone the same plan"
        )


def keeps(request: ShareRequest, minimum: Settings) -> None:
    """Check that the round is for this participant's vectors and no weaker than the rules it insists on."""
    same_context(request, minimum.context)
    same_noise(request, minimum.noise)
    if (request.dimension, request.bits) != (minimum.dimension, minimum.bits):
        raise UnsafeRequest(
            f"the round is for {request.dimension} words of {request.bits} bits, "
            f"this participant joins for {minimum.dimension} of {minimum.bits}"
        )
    if request.threshold < minimum.threshold or request.colluding < minimum.colluding:
        raise UnsafeRequest(
            f"threshold {request.threshold} of {request.participants} against {request.colluding} colluders: "
            f"this participant insists on {minimum.threshold} against {minimum.colluding}"
        )
    if minimum.malicious and not request.malicious:
        raise UnsafeRequest("this participant joins only rounds secured against a malicious server")
    graph = rules.settings_of(request)[1]
    if not opens(graph, request.threshold, minimum.dropout_rate):
        raise UnsafeRequest(
            f"{graph.degree} neighbours, {graph.share_threshold} of whom must answer: by this participant's "
            "rules the sum may stay closed; if the plan states a dropout rate, give it in minimum_settings="
        )


def own_place(request: ShareRequest, graph: Graph, participant: int, channel_key: bytes) -> None:
    """Check the neighbourhood: the public graph's, with this participant's true key, and nobody twice."""
    indices = [peer[0] for peer in request.neighbourhood]
    outside = request.index >= graph.participants
    if outside or indices != neighbourhood(graph, request.graph_seed, request.index):
        raise MalformedMessage("the neighbourhood is not the one that the public graph seed gives")
    own = request.neighbourhood[indices.index(request.index)]
    if own[1:3] != (participant, channel_key):
        raise NotAuthentic("the roster lists another channel key or number for this participant")
    for column in (1, 2):
        if len({peer[column] for peer in request.neighbourhood}) < len(indices):
            raise UnsafeRequest("the roster lists a participant or a key twice")


def roster_is_trusted(request: ShareRequest, trusted: Mapping[int, bytes]) -> None:
    """Malicious model: check that every key is signed by a trusted identity and that the digest matches."""
    for _, participant, channel_key, identity_key, signature in request.neighbourhood:
        if trusted.get(participant) != identity_key:
            raise NotAuthentic(f"participant {participant} is listed under an identity that is not trusted")
        parts = advertisement_parts(participant, channel_key)
        verify(identity_key, signature, b"advertisement", *parts)
    if rules.roster_digest(request.neighbourhood) != request.roster:  # the graph is full: everyone is in it
        raise NotAuthentic("the roster's digest is not that of the participants shown")


def encoded_for(request: ShareRequest, participants: int | None) -> None:
    """Check that the vector was encoded for as many participants as the round has: its noise is K/n of them.

    participants: None if the caller does not say, which is enough only where the vector brings all its noise.
    """
    if not request.noise:
        return
    if participants is None:
        raise InvalidInput(
            f"participants is missing: the round adds up to noise {request.noise:g}, of which each vector "
            "brings its part; pass the number of participants for which the vector was encoded"
        )
    if participants != request.participants:
        raise UnsafeRequest(
            f"the round has {request.participants} participants, the vector was encoded for {participants}: "
            "the sum would hold another noise than planned; encode it for those who are in the round"
        )


def delivered(request: ShareRequest, delivery: MaskRequest) -> dict[int, bytes]:
    """The mask keys of the neighbours that shared; enough of them for the sum to be recoverable."""
    sharers = members(delivery.sharers, request.participants)
    near = {peer[0] for peer in request.neighbourhood if contains(sharers, peer[0])}
    keys = {index: mask_key for index, mask_key, _ in delivery.sealed}
    complete = request.index in near and set(keys) == near - {request.index}
    size = sealed_bytes(len(rules.excess_of(request).sizes))
    complete = complete and all(len(sealed) == size for _, _, sealed in delivery.sealed)
    if not complete or len(keys) < len(delivery.sealed):
        raise MalformedMessage("the sealed shares delivered are not those of the neighbours that shared")
    if sharers.bit_count() < request.threshold or len(near) < request.share_threshold:
        raise UnsafeRequest(
            f"{sharers.bit_count()} have shared, {len(near)} of them in this neighbourhood: "
            "too few to recover the sum"
        )
    return keys


def survivors_of(request: ShareRequest, sharers: bytes, shown: bytes) -> int:
    """Check the survivors shown (an integer set): enough of them, this client among them, all sharers."""
    survivors = members(shown, request.participants)
    if survivors & ~members(sharers, request.participants):
        raise UnsafeRequest("a survivor is listed who never shared: refused")
    if not contains(survivors, request.index):
        raise UnsafeRequest("this client is not among the survivors: it has nothing to reveal")
    if survivors.bit_count() < request.threshold:
        raise UnsafeRequest(
            f"{survivors.bit_count()} survivors, the threshold is {request.threshold}: "
            "opening the sum would reveal too much"
        )
    return survivors


def all_agree(request: ShareRequest, signed: bytes, shown: UnmaskRequest, survivors: int) -> None:
    """Malicious model: check that `threshold` survivors, and this client, signed these survivors."""
    if shown.survivors != signed:
        raise UnsafeRequest("the survivors are not those that this client signed: refused")
    signers = {index for index, _ in shown.agreements}
    distinct = len(signers) == len(shown.agreements) and all(contains(survivors, i) for i in signers)
    if not distinct or len(signers) < request.threshold:
        raise UnsafeRequest(f"{len(signers)} agreements on the survivors, {request.threshold} are needed")
    identities = {peer[0]: peer[3] for peer in request.neighbourhood}
    parts = survivors_parts(rules.transcript_of(request), shown.survivors)
    for index, signature in shown.agreements:
        verify(identities[index], signature, b"survivors", *parts)
