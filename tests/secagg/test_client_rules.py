"""A client's own rules have the last word, whatever the server says."""

import math
from dataclasses import replace

import pytest

from helpers.secagg_phases import CURIOUS, MALICIOUS, changed, refuses, up_to
from helpers.secure_rounds import cast
from skelmix.errors import CorruptState, PolicyViolation, ProtocolError
from skelmix.secagg import graph as graphs
from skelmix.secagg import messages
from skelmix.secagg.client import Client
from skelmix.secagg.failures import (
    NotAuthentic,
    UnsafeRequest,
)
from skelmix.secagg.joined_rounds import JoinedRounds
from skelmix.secagg.keys import Identity, KeyPair
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings


def test_settings_that_break_a_rule_are_refused_by_the_client_whatever_the_server_says():
    _, clients, requests = up_to("share", MALICIOUS)
    client = clients[10]
    for fields in (
        {"threshold": 2, "share_threshold": 2},
        {"share_threshold": 2},
        {"degree": 2},
        {"malicious": False},
        {"colluding": 3},
        {"participants": 5},
        {"index": 1},
        {"dimension": 5},
        {"context": b"another plan"},
        {"roster": bytes(32)},
        {"bits": 0},
        {"threshold": 0},
    ):
        request = changed(requests[10], messages.ShareRequest, **fields)
        refuses(ProtocolError, lambda: client.share(request), client.secret_state)  # noqa: B023
    client.share(requests[10])


def test_a_few_bytes_cannot_make_a_client_search(monkeypatch):
    """Number of participants, threshold and colluders are the server's words; work follows from rows only."""
    _, clients, requests = up_to("share", CURIOUS, n=3)
    calls = []
    for name in ("sparse", "_least_secret_threshold", "_largest_recoverable_threshold", "circle"):
        monkeypatch.setattr(graphs, name, lambda *a, name=name: calls.append(name))
    monkeypatch.setattr(graphs, "comb", lambda n, k: calls.append(k) or math.comb(n, k))
    huge = {"participants": 65536, "threshold": 33000, "colluding": 20000}
    for degree in (2, 4, 60, 32768, 65535):
        request = changed(requests[10], messages.ShareRequest, **huge, degree=degree)
        assert len(request) < 600
        refuses(ProtocolError, lambda: clients[10].share(request), clients[10].secret_state)  # noqa: B023
    assert len(calls) < 20
    assert set(calls) <= {0, 1, 2}, "binomials of no more than the rows sent"


def test_identities_come_from_trusted_and_not_from_the_server():
    server, clients = cast(3, replace(MALICIOUS, threshold=2))
    impostor = Client(12, KeyPair.generate(), identity=Identity.generate(), joined_rounds=JoinedRounds())
    for member in (clients[10], clients[11], impostor):
        server.advertise(member.advertise())
    requests = server.close_advertise()
    refuses(NotAuthentic, lambda: clients[10].share(requests[10]), clients[10].secret_state)
    with pytest.raises(UnsafeRequest, match="trusted"):
        impostor.share(requests[12])
    unarmed = Client(11, clients[11]._channel, joined_rounds=JoinedRounds())
    with pytest.raises(UnsafeRequest, match="identity"):
        unarmed.share(requests[11])


def test_a_roster_with_a_swapped_key_is_refused_by_its_owner():
    _, clients, requests = up_to("share", CURIOUS)
    request = messages.decode(requests[10], messages.ShareRequest, 10**5)
    peers = list(request.neighbourhood)
    peers[0] = (*peers[0][:2], KeyPair.generate().public, *peers[0][3:])
    refuses(
        NotAuthentic,
        lambda: clients[10].share(messages.encode(replace(request, neighbourhood=tuple(peers)))),
        clients[10].secret_state,
    )
    peers = list(request.neighbourhood)
    peers[2] = (2, *peers[1][1:])
    refuses(
        UnsafeRequest,
        lambda: clients[10].share(messages.encode(replace(request, neighbourhood=tuple(peers)))),
        clients[10].secret_state,
    )


def test_the_participant_s_own_policy_has_the_last_word():
    _, clients, requests = up_to("share", CURIOUS)

    def policy(request):
        if request.threshold < 4:
            raise PolicyViolation("four at least")

    refuses(PolicyViolation, lambda: clients[10].share(requests[10], accept=policy), clients[10].secret_state)


def insisting(server: Server, minimum: Settings | None, n: int) -> tuple[Client, bytes]:
    """The first of n clients of the malicious model, with its own rules, and the request that it gets."""
    _, clients = cast(n, Settings(4, 8, n, malicious=True))
    for client in clients.values():
        server.advertise(client.advertise())
        client._minimum_settings = minimum
    return clients[10], server.close_advertise()[10]


def test_in_the_malicious_model_a_client_without_rules_of_its_own_joins_nothing():
    client, request = insisting(Server(replace(MALICIOUS, threshold=4)), None, 4)
    refuses(UnsafeRequest, lambda: client.share(request), client.secret_state)
    refuses(UnsafeRequest, lambda: client.share(request, accept=lambda asked: None), client.secret_state)
    client, named = insisting(Server(replace(MALICIOUS, threshold=4, context=b"plan")), None, 4)
    client.share(named, accept=lambda asked: None)  # an explicit look at a round with a context


def test_a_threshold_of_two_in_fifty_is_refused():
    """Whatever the server does: with the settings forged, or in a small round of its friends."""
    fifty = replace(MALICIOUS, threshold=26)
    client, request = insisting(Server(fifty), fifty, 50)
    for fields in ({"threshold": 2}, {"threshold": 2, "share_threshold": 2}):
        forged = changed(request, messages.ShareRequest, **fields)
        refuses(UnsafeRequest, lambda: client.share(forged), client.secret_state)  # noqa: B023
    client.share(request)
    small, request = insisting(Server(replace(MALICIOUS, threshold=2)), fifty, 3)
    refuses(UnsafeRequest, lambda: small.share(request), small.secret_state)
    with pytest.raises(UnsafeRequest, match=r"threshold 2 of 3 .* insists on 26"):
        small.share(request)


@pytest.mark.parametrize(
    ("stronger", "message"),
    [
        ({"threshold": 5}, "insists on 5"),
        ({"colluding": 1}, "against 1"),
        ({"dimension": 5}, "4 words of 8 bits"),
        ({"bits": 7}, "4 words of 8 bits"),
        ({"context": b"plan A, round 0"}, "same plan"),
    ],
)
def test_a_round_weaker_than_the_participant_s_rules_is_refused(stronger, message):
    offered = replace(MALICIOUS, threshold=4)
    client, request = insisting(Server(offered), replace(offered, **stronger), 4)
    with pytest.raises(UnsafeRequest, match=message):
        client.share(request)
    same, request = insisting(Server(offered), offered, 4)
    same.share(request)


def test_an_honest_but_curious_round_asks_for_nothing_but_holds_what_was_asked_for():
    _, clients, requests = up_to("share", CURIOUS)
    clients[11]._minimum_settings = replace(CURIOUS, malicious=True)
    with pytest.raises(UnsafeRequest, match="malicious"):
        clients[11].share(requests[11])
    clients[10].share(requests[10])


def test_no_round_is_joined_twice_in_the_malicious_model():
    _, clients, requests = up_to("share", MALICIOUS)
    first = clients[10]
    kept = {"identity": first._identity, "trusted": first._trusted}
    with pytest.raises(UnsafeRequest, match="joined_rounds"):
        Client(10, first._channel, **kept).share(requests[10])
    second = Client(10, first._channel, joined_rounds=first._joined_rounds, **kept)
    first.share(requests[10])
    refuses(UnsafeRequest, lambda: second.share(requests[10]), second.secret_state)
    restored = JoinedRounds.from_bytes(first._joined_rounds.to_bytes())
    with pytest.raises(UnsafeRequest, match="joined before"):
        restored.join(b"s" * 16, 0)
    restored.join(b"s" * 16, 1)
    restored.join(b"t" * 16, 0)


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x92\x01\x91\x92\xa1x\x00", b"\x92\x02\x90", b"\x92\x01\x05"]
)
def test_a_damaged_list_of_joined_rounds_is_refused(data):
    with pytest.raises(CorruptState):
        JoinedRounds.from_bytes(data)
