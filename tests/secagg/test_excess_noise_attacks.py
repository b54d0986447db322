"""A server never gets a piece of noise that a survivor keeps, and every attempt at one has a named error."""

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.dishonest_server import DishonestServer, attack
from helpers.secure_rounds import cast, play
from skelmix.errors import InvalidInput, ProtocolError, RoundFailed
from skelmix.noise import pieces
from skelmix.noise.laws import Skellam
from skelmix.noise.table import sampler
from skelmix.secagg import client as client_module
from skelmix.secagg import graph as graphs
from skelmix.secagg import messages, sharing
from skelmix.secagg.client import Client
from skelmix.secagg.failures import (
    DuplicateMessage,
    MalformedMessage,
    NotAuthentic,
    OutOfOrder,
    UnsafeRequest,
    WrongRound,
)
from skelmix.secagg.graph import Graph
from skelmix.secagg.keys import KeyPair
from skelmix.secagg.messages import Agreement, ConsistencyRequest, ShareRequest, UnmaskRequest, UnmaskShares
from skelmix.secagg.server import Server
from skelmix.secagg.sets import as_integer, bitmap
from skelmix.secagg.settings import Settings

K, N, D = 20.0, 6, 4
CURIOUS = Settings(D, 8, threshold=4, colluding=1, noise=K)  # five pieces each
MALICIOUS = replace(CURIOUS, malicious=True, context=b"plan, round")
RELAXED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


def shares_by_kind(clients):
    """What every client holds of every other just before the unmasking: share -> (owner, kind of secret)."""
    known = {}
    for client in clients.values():
        state = client._round
        for owner, held in [(state.request.index, state.own_shares), *state.held.items()]:
            for place, share in enumerate(sharing.parts(held)):
                known[share] = owner, ("seed", "key", *range(len(state.excess.sizes)))[place]
    return known


def up_to_unmask(model, silent=(), n=N):
    """A round whose survivors are fixed; the requests for the unmasking, and what clients hold."""
    server, clients = cast(n, model)
    for client in clients.values():
        server.advertise(client.advertise())
    for p, data in server.close_advertise().items():
        server.share(clients[p].share(data))
    for p, data in server.close_share().items():
        if p - 10 not in silent:
            server.masked(clients[p].masked(data, np.zeros(D, np.uint8), participants=len(clients)))
    requests = server.close_masked()
    known = shares_by_kind({p: c for p, c in clients.items() if p - 10 not in silent})
    if model.malicious:
        for p, data in requests.items():
            server.consistency(clients[p].consistency(data))
        requests = server.close_consistency()
    return server, clients, requests, known


def revealed(answer):
    message = messages.decode(answer, UnmaskShares, 10**5)
    return [share for _, row in (*message.seed_shares, *message.key_shares) for share in sharing.parts(row)]


@settings(max_examples=30, **RELAXED)
@given(
    silent=st.sets(st.integers(0, N - 1), max_size=2),
    malicious=st.booleans(),
    ring=st.booleans(),
    colluding=st.integers(0, 1),
)
def test_what_is_revealed_is_exactly_what_the_survivors_do_not_keep(silent, malicious, ring, colluding):
    with pytest.MonkeyPatch.context() as patch:
        if ring and not malicious:
            patch.setattr(graphs, "choose", lambda *a, **k: Graph(N, 4, 3))
            patch.setattr(graphs, "meets", lambda *a: True)
        server, clients, requests, known = up_to_unmask(
            replace(MALICIOUS if malicious else CURIOUS, colluding=colluding), silent
        )
        alive = set(range(N)) - silent
        excess = server.settings.excess(N)
        expected = {(owner, "key") for owner in silent}
        for owner in alive:
            expected |= {(owner, kind) for kind in ("seed", *excess.removed(as_integer(alive), owner))}
        kept = {(i, piece) for i in alive for piece in range(len(excess.sizes))} - expected
        assert bool(kept) == bool(silent)
        seen = {known[share] for p, data in requests.items() for share in revealed(clients[p].unmask(data))}
        assert seen == expected


MODELS = pytest.mark.parametrize("model", [CURIOUS, MALICIOUS], ids=["curious", "malicious"])


@MODELS
def test_a_second_set_of_survivors_is_refused(model):
    _, clients, requests, _ = up_to_unmask(model)
    first, second = clients[10], clients[11]
    first.unmask(requests[10])
    fewer = messages.decode(requests[10], UnmaskRequest, 10**5)
    fewer = messages.encode(replace(fewer, survivors=bitmap({0, 1, 2, 3}, N)))
    with pytest.raises(OutOfOrder):
        first.unmask(fewer)
    if model.malicious:  # else the server is trusted to show everyone one set
        with pytest.raises(UnsafeRequest, match="not those that this client signed"):
            second.unmask(fewer)
        with pytest.raises(OutOfOrder):
            second.consistency(messages.encode(ConsistencyRequest(b"s" * 16, 0, bitmap({0, 1, 2, 3}, N))))
    second.unmask(requests[11])


@pytest.mark.parametrize("shown_the_smaller", [{0}, {0, 1}, {0, 2, 4}, {1, 2, 3}, {0, 1, 2, 3}])
def test_clients_that_are_shown_two_sets_open_at_most_one_and_none_of_its_kept_pieces(shown_the_smaller):
    server, clients = cast(N, MALICIOUS)
    for client in clients.values():
        server.advertise(client.advertise())
    for p, data in server.close_advertise().items():
        server.share(clients[p].share(data))
    for p, data in server.close_share().items():
        server.masked(clients[p].masked(data, np.zeros(D, np.uint8), participants=len(clients)))
    known, excess = shares_by_kind(clients), server.settings.excess(N)
    larger, smaller = frozenset(range(N)), frozenset({0, 1, 2, 3})
    signed = {larger: {}, smaller: {}}
    for index in range(N):
        survivors = smaller if index in shown_the_smaller and index in smaller else larger
        request = ConsistencyRequest(server.session, 0, bitmap(survivors, N))
        answer = messages.decode(clients[10 + index].consistency(messages.encode(request)), Agreement, 10**3)
        signed[survivors][index] = answer.signature
    seen, opened = set(), []
    for survivors, signatures in signed.items():
        request = UnmaskRequest(server.session, 0, bitmap(survivors, N), tuple(sorted(signatures.items())))
        for client in clients.values():
            with suppress(UnsafeRequest, OutOfOrder):
                seen |= {known[share] for share in revealed(client.unmask(messages.encode(request)))}
                opened.append(survivors)
    assert len(set(opened)) <= 1
    for survivors in set(opened):
        for owner in survivors:
            removed = excess.removed(as_integer(survivors), owner)
            assert {kind for i, kind in seen if i == owner} == {"seed", *removed}
    assert len(seen) == 0 or len(opened) == len(signed[opened[0]]) >= 4


@MODELS
def test_a_replayed_reveal_is_refused(model):
    server, clients, requests, _ = up_to_unmask(model)
    answer = clients[10].unmask(requests[10])
    server.unmask(answer)
    with pytest.raises(DuplicateMessage):
        server.unmask(answer)
    later, _, _, _ = up_to_unmask(model)
    later.round = 1
    with pytest.raises(WrongRound):
        later.unmask(answer)


@MODELS
def test_a_reveal_of_an_earlier_attempt_at_the_same_round_opens_nothing(model):
    _, clients, requests, _ = up_to_unmask(model)
    old = clients[10].unmask(requests[10])
    again, clients, requests, _ = up_to_unmask(model)
    if model.malicious:
        with pytest.raises(NotAuthentic):
            again.unmask(old)
        return
    again.unmask(old)
    for p in set(requests) - {10}:
        again.unmask(clients[p].unmask(requests[p]))
    with pytest.raises(RoundFailed, match="do not fit what it published"):
        again.close_unmask()


def test_a_retry_draws_every_secret_anew():
    rounds = [up_to_unmask(CURIOUS)[3] for _ in range(2)]
    assert not rounds[0].keys() & rounds[1].keys()


def finished(model, tamper, silent=()):
    server, clients, requests, _ = up_to_unmask(model, silent)
    for p, data in requests.items():
        server.unmask(tamper(p, clients[p].unmask(data)))
    return server.close_unmask()


def altered(change):
    """A tamper that changes the shares which participant 11 reveals of index 2."""

    def tamper(p, data):
        if p != 11:
            return data
        message = messages.decode(data, UnmaskShares, 10**5)
        rows = tuple((i, change(row) if i == 2 else row) for i, row in message.seed_shares)
        return messages.encode(replace(message, seed_shares=rows))

    return tamper


def flipped(place):
    return lambda row: row[:place] + bytes([row[place] ^ 1]) + row[place + 1 :]


@pytest.mark.parametrize("place", [16, 31, -1])
def test_a_tampered_share_of_a_piece_is_noticed(place):
    with pytest.raises(RoundFailed, match="do not fit what it published"):
        finished(CURIOUS, altered(flipped(place % 64)))
    with pytest.raises(NotAuthentic):
        finished(MALICIOUS, altered(flipped(place % 64)))


@pytest.mark.parametrize("change", [lambda row: row[:-16], lambda row: row + bytes(16), lambda row: row[:16]])
def test_a_piece_too_few_or_too_many_is_malformed(change):
    with pytest.raises(MalformedMessage, match="not those that were asked for"):
        finished(CURIOUS, altered(change))


def test_a_wrong_piece_seed_is_noticed(monkeypatch):
    """A client whose neighbours hold shares of another secret than the one that it has committed to."""
    real, calls = sharing.split, []

    def split(secret, *rest, **options):
        calls.append(secret)
        return real(sharing.draw_secret() if len(calls) == 3 else secret, *rest, **options)

    monkeypatch.setattr(client_module.sharing, "split", split)
    with pytest.raises(RoundFailed, match="index 0 do not fit what it published"):
        finished(CURIOUS, lambda p, data: data)
    assert finished(CURIOUS, lambda p, data: data).tolist() == [0] * D


def test_noise_in_another_amount_is_refused_by_whoever_counts_on_it():
    """Changed for one client, by a server that believes everything; with and without its own rules."""
    for model in (CURIOUS, MALICIOUS):
        for change in ({"noise": 0.0}, {"noise": K / 2}, {"noise": 2 * K}, {"expansion": 2}):
            _, clients = cast(N, model)
            server = DishonestServer(model, session=b"s" * 16)
            vectors = {p: np.zeros(D, np.uint8) for p in clients}

            def view(p, request, change=change):
                return replace(request, **change) if p == 10 else request

            try:
                shown = attack(server, clients, vectors, view)
            except ProtocolError:  # its shares are not even of the right sizes
                continue
            assert shown.total is None or 10 not in shown.survivors
            assert 10 in shown.refusals or len(shown.refusals) == N - 1


@pytest.mark.parametrize("change", [{"noise": 0.0}, {"noise": K / 2}, {"expansion": pieces.VERSION + 1}])
def test_a_client_that_insists_on_its_noise_says_what_is_wrong(change):
    server = Server(CURIOUS, session=b"s" * 16)
    clients = {p: Client(p, KeyPair.generate(), minimum_settings=CURIOUS) for p in range(N)}
    for client in clients.values():
        server.advertise(client.advertise())
    request = messages.decode(server.close_advertise()[0], ShareRequest, 10**5)
    with pytest.raises(UnsafeRequest, match="noise"):
        clients[0].share(messages.encode(replace(request, **change)))
    clients[0].share(messages.encode(request))


def sum_of_seven(encoded_for, said):
    """The noise of a sum of seven zero vectors encoded for one number of participants, or said to be."""
    rules = Settings(20_000, 16, threshold=7, noise=100.0)
    server = Server(rules)
    clients = [Client(p, KeyPair.generate(), minimum_settings=rules) for p in range(7)]
    for client in clients:
        server.advertise(client.advertise())
    for p, data in server.close_advertise().items():
        server.share(clients[p].share(data))
    base = sampler(Skellam(Fraction(100, encoded_for)))
    for p, data in server.close_share().items():
        vector, before = base.sample(20_000).astype(int) % 65536, clients[p].secret_state()
        for wrong, refusal in ((None, InvalidInput), (10, UnsafeRequest), (6, UnsafeRequest)):
            if wrong != said:
                with pytest.raises(refusal, match="participants"):
                    clients[p].masked(data, vector, participants=wrong)
        assert clients[p].secret_state() == before
        server.masked(clients[p].masked(data, vector, participants=said))
    for p, data in server.close_masked().items():
        server.unmask(clients[p].unmask(data))
    return server.close_unmask().view(np.int16).astype(float)


def test_a_roster_smaller_than_the_vectors_were_encoded_for_is_refused_and_nothing_is_lost():
    """The plan was for ten; threshold, noise and colluders are as every client demands."""
    with pytest.raises(UnsafeRequest, match="has 7 participants, the vector was encoded for 10"):
        sum_of_seven(encoded_for=10, said=10)
    assert sum_of_seven(encoded_for=7, said=7).var() == pytest.approx(200, rel=0.06)
    assert sum_of_seven(encoded_for=10, said=7).var() == pytest.approx(140, rel=0.06)  # what is prevented


def test_pieces_of_silent_survivors_are_removed_by_their_neighbours_shares():
    server, clients = cast(N, CURIOUS)
    total = play(server, clients, np.ones((N, D), int), silent={"unmask": {10, 15}}).total
    assert total.tolist() == [N] * D  # nobody dropped out before the upload: all pieces are removed


def test_the_secrets_of_pieces_are_overwritten_once_the_vector_is_masked():
    server, clients = cast(N, CURIOUS)
    for client in clients.values():
        server.advertise(client.advertise())
    for p, data in server.close_advertise().items():
        server.share(clients[p].share(data))
    state = clients[10]._round
    assert any(state.pieces)
    clients[10].masked(server.close_share()[10], np.zeros(D, np.uint8), participants=N)
    assert not any(state.pieces)
