"""What client and server refuse, that a refusal changes nothing, and that secrets go once used."""

import math
from dataclasses import replace

import numpy as np
import pytest

from helpers.secure_rounds import cast, play
from skelmix.errors import CorruptState, InvalidInput, PolicyViolation, ProtocolError, RoundFailed
from skelmix.secagg import graph as graphs
from skelmix.secagg import messages, stored
from skelmix.secagg.client import Client
from skelmix.secagg.failures import (
    DuplicateMessage,
    MalformedMessage,
    NotAuthentic,
    OutOfOrder,
    UnknownSender,
    UnsafeRequest,
    WrongRound,
)
from skelmix.secagg.joined_rounds import JoinedRounds
from skelmix.secagg.keys import Identity, KeyPair
from skelmix.secagg.messages import bitmap
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Phase, Settings

CURIOUS = Settings(dimension=4, bits=8, threshold=3)
MALICIOUS = Settings(dimension=4, bits=8, threshold=3, malicious=True)
BOTH = pytest.mark.parametrize("settings", [CURIOUS, MALICIOUS], ids=["curious", "malicious"])
ONES = np.ones(4, np.uint8)


def changed(data: bytes, kind, **fields) -> bytes:
    return messages.encode(replace(messages.decode(data, kind, 10**6), **fields))


def up_to(phase: str, settings: Settings, n: int = 4, silent: frozenset[int] = frozenset(), round: int = 0):
    """Server, clients and the open requests at the beginning of `phase`; the silent send no masked vector."""
    server, clients = cast(n, settings, round=round)
    for client in clients.values():
        server.advertise(client.advertise())
    requests = server.close_advertise()
    if phase == "share":
        return server, clients, requests
    for p, data in requests.items():
        server.share(clients[p].share(data))
    requests = server.close_share()
    if phase == "masked":
        return server, clients, requests
    for p, data in requests.items():
        if p not in silent:
            server.masked(clients[p].masked(data, ONES))
    requests = server.close_masked()
    if phase == "consistency" or not settings.malicious:
        return server, clients, requests
    for p, data in requests.items():
        server.consistency(clients[p].consistency(data))
    return server, clients, server.close_consistency()


def refuses(error, act, *state):
    """`act` raises `error`, and what `state` returns before is what it returns after."""
    before = [look() for look in state]
    with pytest.raises(error):
        act()
    assert [look() for look in state] == before


def view(server):
    return lambda: (
        server.phase,
        dict(server._advertised),
        dict(server._shares),
        set(server._survivors),
        dict(server._agreements),
        dict(server._revealed),
        server._total.tolist(),
    )


@BOTH
def test_calls_out_of_order_are_refused_on_both_sides(settings):
    phases = ["share", "masked", "consistency", "unmask"]
    for now in phases if settings.malicious else ["share", "masked", "unmask"]:
        server, clients, requests = up_to(now, settings)
        client, data = clients[10], requests[10]
        for other in phases:
            if other == now:
                continue
            call = getattr(client, other)
            arguments = (data, ONES) if other == "masked" else (data,)
            refuses(OutOfOrder, lambda: call(*arguments), client.secret_state)  # noqa: B023
            refuses(OutOfOrder, lambda: getattr(server, other)(b""), view(server))  # noqa: B023
            refuses(OutOfOrder, getattr(server, f"close_{other}"), view(server))
        refuses(OutOfOrder, lambda: server.advertise(client.advertise()), view(server))  # noqa: B023


@BOTH
def test_duplicates_strangers_and_other_rounds_are_refused_by_the_server(settings):
    for phase in ["share", "masked", *(["consistency"] if settings.malicious else []), "unmask"]:
        server, clients, requests = up_to(phase, settings)
        other_server, other_clients, other_requests = up_to(phase, settings, round=1)
        arguments = (ONES,) if phase == "masked" else ()
        answer = getattr(clients[10], phase)(requests[10], *arguments)
        foreign = getattr(other_clients[10], phase)(other_requests[10], *arguments)
        accept = getattr(server, phase)
        kind = type(decode_any(answer))
        refuses(WrongRound, lambda: accept(foreign), view(server))  # noqa: B023
        refuses(UnknownSender, lambda: accept(changed(answer, kind, sender=4)), view(server))  # noqa: B023
        refuses(UnknownSender, lambda: accept(answer, sender=11), view(server))  # noqa: B023
        for wrong in (answer[:-1], answer + b"\0", b"", answer * 2, answer + bytes(10**6)):
            refuses(MalformedMessage, lambda: accept(wrong), view(server))  # noqa: B023
        assert accept(answer, sender=10) == 10
        refuses(DuplicateMessage, lambda: accept(answer), view(server))  # noqa: B023
        assert other_server.round == 1


def decode_any(data: bytes) -> messages.Message:
    for kind in (messages.Shares, messages.MaskedInput, messages.Agreement, messages.UnmaskShares):
        try:
            return messages.decode(data, kind, 10**6)
        except MalformedMessage:
            continue
    raise AssertionError("no answer")


@BOTH
def test_requests_of_another_round_and_malformed_requests_are_refused_by_the_client(settings):
    for phase in ["masked", *(["consistency"] if settings.malicious else []), "unmask"]:
        _, clients, requests = up_to(phase, settings)
        _, _, foreign = up_to(phase, settings, round=1)
        client = clients[10]
        arguments = (ONES,) if phase == "masked" else ()
        answer = getattr(client, phase)
        refuses(WrongRound, lambda: answer(foreign[10], *arguments), client.secret_state)  # noqa: B023
        for wrong in (b"", requests[10][:-1], requests[10] + bytes(10**5), None):
            refuses(MalformedMessage, lambda: answer(wrong, *arguments), client.secret_state)  # noqa: B023
        answer(requests[10], *arguments)


@BOTH
def test_advertisements_twice_or_of_a_stolen_key_or_in_another_name_are_refused(settings):
    server, clients = cast(3, settings)
    server.advertise(clients[10].advertise())
    refuses(DuplicateMessage, lambda: server.advertise(clients[10].advertise()), view(server))
    refuses(UnknownSender, lambda: server.advertise(clients[11].advertise(), sender=12), view(server))
    thief = Client(99, clients[10]._channel, identity=Identity.generate())
    refuses(NotAuthentic, lambda: server.advertise(thief.advertise()), view(server))
    if settings.malicious:
        unsigned = Client(98, KeyPair.generate())
        refuses(NotAuthentic, lambda: server.advertise(unsigned.advertise()), view(server))


@BOTH
def test_a_client_answers_the_unmask_request_once_and_forgets(settings):
    _, clients, requests = up_to("unmask", settings)
    client = clients[10]
    client.unmask(requests[10])
    assert client.phase is Phase.DONE
    assert client._round is None
    refuses(OutOfOrder, lambda: client.unmask(requests[10]), client.secret_state)


def test_mask_secrets_are_overwritten_once_the_vector_is_masked():
    _, clients, requests = up_to("masked", CURIOUS)
    state = clients[10]._round
    assert any(state.mask_secret)
    assert any(state.seed)
    clients[10].masked(requests[10], ONES)
    assert not any(state.mask_secret)
    assert not any(state.seed)
    other = clients[11]._round
    clients[11].abandon()
    assert not any(other.mask_secret)
    assert clients[11].phase is Phase.FAILED


@BOTH
def test_for_each_peer_one_share_is_revealed_never_both(settings):
    _, clients, requests = up_to("unmask", settings, silent=frozenset({12}))
    answer = messages.decode(clients[10].unmask(requests[10]), messages.UnmaskShares, 10**5)
    seeds, keys = {i for i, _ in answer.seed_shares}, {i for i, _ in answer.key_shares}
    assert seeds == {0, 1, 3}
    assert keys == {2}


@pytest.mark.parametrize(
    "survivors", [{0, 1}, {1, 2, 3}, set()], ids=["below the threshold", "without the client", "nobody"]
)
def test_unsafe_sets_of_survivors_are_refused(survivors):
    _, clients, requests = up_to("unmask", CURIOUS)
    request = changed(requests[10], messages.UnmaskRequest, survivors=bitmap(survivors, 4))
    refuses(UnsafeRequest, lambda: clients[10].unmask(request), clients[10].secret_state)
    _, clients, requests = up_to("consistency", MALICIOUS)
    request = changed(requests[10], messages.ConsistencyRequest, survivors=bitmap(survivors, 4))
    refuses(UnsafeRequest, lambda: clients[10].consistency(request), clients[10].secret_state)


def test_a_survivor_who_never_shared_is_refused():
    server, clients = cast(5, CURIOUS)
    for client in clients.values():
        server.advertise(client.advertise())
    requests = server.close_advertise()
    for p in (10, 11, 12, 13):
        server.share(clients[p].share(requests[p]))
    requests = server.close_share()
    for p, data in requests.items():
        server.masked(clients[p].masked(data, ONES))
    request = server.close_masked()[10]
    wrong = changed(request, messages.UnmaskRequest, survivors=bitmap({0, 1, 2, 4}, 5))
    refuses(UnsafeRequest, lambda: clients[10].unmask(wrong), clients[10].secret_state)


def test_a_server_that_shows_two_sets_of_survivors_gets_no_shares():
    _, clients, requests = up_to("consistency", MALICIOUS)
    everyone = messages.decode(requests[10], messages.ConsistencyRequest, 10**5)
    without_13 = replace(everyone, survivors=bitmap({0, 1, 2}, 4))
    shown = {10: everyone, 11: without_13, 12: without_13, 13: everyone}
    signatures = {
        p: messages.decode(clients[p].consistency(messages.encode(request)), messages.Agreement, 10**5)
        for p, request in shown.items()
    }
    for p, client in clients.items():
        for survivors in (everyone.survivors, without_13.survivors):
            alike = [s for q, s in signatures.items() if shown[q].survivors == survivors]
            for chosen in (alike, list(signatures.values())):
                request = messages.UnmaskRequest(
                    everyone.session,
                    0,
                    survivors,
                    tuple(sorted((s.sender, s.signature) for s in chosen)),
                )
                refuses(ProtocolError, lambda: client.unmask(messages.encode(request)), client.secret_state)  # noqa: B023
        assert client.phase is Phase.UNMASK, p


def test_agreements_must_be_enough_distinct_and_genuine():
    _, clients, requests = up_to("unmask", MALICIOUS)
    client, good = clients[10], messages.decode(requests[10], messages.UnmaskRequest, 10**5)
    rows = good.agreements
    for error, agreements in (
        (UnsafeRequest, rows[:2]),
        (UnsafeRequest, (rows[0], rows[0], rows[1])),
        (NotAuthentic, (rows[0], rows[1], (2, rows[3][1]))),
        (UnsafeRequest, ()),
    ):
        request = messages.encode(replace(good, agreements=agreements))
        refuses(error, lambda: client.unmask(request), client.secret_state)  # noqa: B023
    client.unmask(messages.encode(replace(good, agreements=rows[:3])))


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
    impostor = Client(12, KeyPair.generate(), identity=Identity.generate(), attendance=JoinedRounds())
    for member in (clients[10], clients[11], impostor):
        server.advertise(member.advertise())
    requests = server.close_advertise()
    refuses(NotAuthentic, lambda: clients[10].share(requests[10]), clients[10].secret_state)
    with pytest.raises(UnsafeRequest, match="trusted"):
        impostor.share(requests[12])
    unarmed = Client(11, clients[11]._channel, attendance=JoinedRounds())
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


def test_bad_vectors_are_refused_and_the_client_can_still_send_a_good_one():
    server, clients, requests = up_to("masked", CURIOUS)
    for vector in (np.ones(3, int), np.ones(4), np.full(4, 256), np.full(4, -1)):
        refuses(InvalidInput, lambda: clients[10].masked(requests[10], vector), clients[10].secret_state)  # noqa: B023
    assert server.masked(clients[10].masked(requests[10], ONES)) == 10


@BOTH
def test_clients_killed_between_all_phases_and_restored_from_their_state_finish_the_round(settings):
    server, clients = cast(4, settings)

    class Phoenix:
        """Each call is served by a new client that knows only the long-lived keys and the stored state."""

        def __init__(self, client):
            self.long_lived = (client.participant, client._channel, client._identity, client._trusted)
            self.minimum = client._minimum_settings
            self.joined = None if client._attendance is None else client._attendance.to_bytes()
            self.state = client.secret_state()

        def __getattr__(self, phase):
            participant, channel, identity, trusted = self.long_lived
            attendance = None if self.joined is None else JoinedRounds.from_bytes(self.joined)
            key = KeyPair(channel.secret_bytes())
            client = Client(
                participant,
                key,
                identity=identity,
                trusted=trusted,
                attendance=attendance,
                minimum_settings=self.minimum,
            )
            client.restore(self.state)

            def call(*arguments):
                answer = getattr(client, phase)(*arguments)
                self.state = client.secret_state()
                self.joined = None if attendance is None else attendance.to_bytes()
                return answer

            return call

    phoenixes = {p: Phoenix(client) for p, client in clients.items()}
    vectors = np.arange(16, dtype=np.uint8).reshape(4, 4)
    tape = play(server, phoenixes, vectors, silent={"masked": {11}})
    assert (tape.total == vectors[[0, 2, 3]].sum(axis=0)).all()
    assert server.survivors == (10, 12, 13)


def test_damaged_or_foreign_states_are_refused():
    _, clients, _ = up_to("masked", CURIOUS)
    good, client = clients[10].secret_state(), Client(10, clients[10]._channel)
    nap = stored.with_digest(b"\x93\x02\x0a\xa3nap")
    for bad in (b"", good + b"\0", clients[11].secret_state(), nap, stored.with_digest(b"")):
        refuses(CorruptState, lambda: client.restore(bad), client.secret_state)  # noqa: B023


@pytest.mark.parametrize("end", ["shared", "masked", "finished", "abandoned"])
def test_a_client_that_has_begun_takes_back_no_older_state(end):
    """Two sets of survivors opened from one state would give both shares of a peer."""
    _, clients, requests = up_to("masked" if end in ("shared", "masked") else "unmask", CURIOUS)
    client = clients[10]
    older = client.secret_state()
    if end == "masked":
        client.masked(requests[10], ONES)
    elif end == "finished":
        client.unmask(requests[10])
    elif end == "abandoned":
        client.abandon()
    refuses(OutOfOrder, lambda: client.restore(older), client.secret_state)


@pytest.mark.parametrize("phase", ["advertise", "unmask"])
def test_every_cut_and_every_flipped_bit_of_a_stored_state_is_noticed(phase):
    _, clients, _ = up_to(phase, CURIOUS, n=3) if phase == "unmask" else (None, cast(3, CURIOUS)[1], None)
    client = clients[10]
    good = client.secret_state()
    fresh = Client(10, client._channel)
    before = fresh.secret_state()
    for length in range(len(good)):
        with pytest.raises(CorruptState):
            fresh.restore(good[:length])
    for place in range(8 * len(good)):
        flipped = bytearray(good)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(CorruptState):
            fresh.restore(bytes(flipped))
    assert fresh.secret_state() == before
    fresh.restore(good)
    assert fresh.secret_state() == good


@BOTH
def test_a_failed_round_reveals_nothing_and_stays_failed(settings):
    for phase in ("advertise", "share", "masked", "unmask"):
        server, clients = cast(4, settings)
        with pytest.raises(RoundFailed, match="threshold is 3"):
            play(server, clients, np.ones((4, 4), int), silent={phase: {10, 11}})
        assert server.phase is Phase.FAILED
        for call in (server.close_advertise, server.close_share, server.close_masked, server.close_unmask):
            with pytest.raises(OutOfOrder):
                call()


def test_a_wrong_share_is_noticed_and_the_sum_is_not_given_out():
    for rows in ("seed_shares", "key_shares"):
        server, clients = cast(4, CURIOUS)

        def lie(name, participant, data, rows=rows):
            if (name, participant) != ("unmask answer", 10):
                return data
            message = messages.decode(data, messages.UnmaskShares, 10**5)
            (index, share), *rest = getattr(message, rows)
            wrong = share[:-1] + bytes([share[-1] ^ 1])
            return messages.encode(replace(message, **{rows: ((index, wrong), *rest)}))

        with pytest.raises(RoundFailed, match="do not fit"):
            play(server, clients, np.ones((4, 4), int), tamper=lie, silent={"masked": {12}})
        assert server.phase is Phase.FAILED


def test_no_round_is_joined_twice_in_the_malicious_model():
    _, clients, requests = up_to("share", MALICIOUS)
    first = clients[10]
    kept = {"identity": first._identity, "trusted": first._trusted}
    with pytest.raises(UnsafeRequest, match="attendance"):
        Client(10, first._channel, **kept).share(requests[10])
    second = Client(10, first._channel, attendance=first._attendance, **kept)
    first.share(requests[10])
    refuses(UnsafeRequest, lambda: second.share(requests[10]), second.secret_state)
    restored = JoinedRounds.from_bytes(first._attendance.to_bytes())
    with pytest.raises(UnsafeRequest, match="joined before"):
        restored.join(b"s" * 16, 0)
    restored.join(b"s" * 16, 1)
    restored.join(b"t" * 16, 0)


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x92\x01\x91\x92\xa1x\x00", b"\x92\x02\x90", b"\x92\x01\x05"]
)
def test_damaged_attendance_is_refused(data):
    with pytest.raises(CorruptState):
        JoinedRounds.from_bytes(data)
