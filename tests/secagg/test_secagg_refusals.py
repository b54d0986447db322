"""What client and server refuse, that a refusal changes nothing, and that secrets go once used."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.secagg_phases import BOTH, CURIOUS, MALICIOUS, ONES, changed, refuses, up_to
from helpers.secure_rounds import cast, play
from skelmix.errors import InvalidInput, ProtocolError, RoundFailed
from skelmix.secagg import messages
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
from skelmix.secagg.keys import Identity, KeyPair
from skelmix.secagg.sets import bitmap
from skelmix.secagg.settings import Phase


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
            for agreements in (alike, list(signatures.values())):
                request = messages.UnmaskRequest(
                    everyone.session,
                    0,
                    survivors,
                    tuple(sorted((s.sender, s.signature) for s in agreements)),
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


def test_bad_vectors_are_refused_and_the_client_can_still_send_a_good_one():
    server, clients, requests = up_to("masked", CURIOUS)
    for vector in (np.ones(3, int), np.ones(4), np.full(4, 256), np.full(4, -1)):
        refuses(InvalidInput, lambda: clients[10].masked(requests[10], vector), clients[10].secret_state)  # noqa: B023
    assert server.masked(clients[10].masked(requests[10], ONES)) == 10


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
