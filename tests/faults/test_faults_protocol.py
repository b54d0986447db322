"""Participants and servers that die in any phase of secure aggregation: the right sum, or none."""

import numpy as np
import pytest

from skelmix.errors import ProtocolError, RoundFailed
from skelmix.secagg.client import Client
from skelmix.secagg.failures import OutOfOrder, WrongRound
from skelmix.secagg.in_memory import PHASES, ideal_sum, secure_sum
from skelmix.secagg.joined_rounds import JoinedRounds
from skelmix.secagg.keys import Identity, KeyPair
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings

PEOPLE, THRESHOLD, WIDTH = 7, 5, 9
VECTORS = np.arange(PEOPLE * WIDTH, dtype=np.uint16).reshape(PEOPLE, WIDTH) % 64


def phases(malicious):
    return [phase for phase in PHASES if malicious or phase != "consistency"]


CASES = [(malicious, phase) for malicious in (False, True) for phase in phases(malicious)]


@pytest.mark.parametrize(("malicious", "phase"), CASES)
def test_as_many_dropouts_as_tolerated_in_any_phase_leave_the_sum_of_the_others(malicious, phase):
    dropouts = {phase: [0, 4]}
    total = secure_sum(VECTORS, modulus=64, threshold=THRESHOLD, malicious=malicious, dropouts=dropouts)
    assert (total == ideal_sum(VECTORS, modulus=64, dropouts=dropouts)).all()


@pytest.mark.parametrize(("malicious", "phase"), CASES)
def test_one_dropout_too_many_in_any_phase_opens_nothing(malicious, phase):
    with pytest.raises(RoundFailed, match="threshold"):
        secure_sum(VECTORS, modulus=64, threshold=THRESHOLD, malicious=malicious, dropouts={phase: [0, 4, 5]})


def people(malicious):
    """The long-lived keys of all participants: what a `Client` is made of, round after round."""
    identities = [Identity.generate() for _ in range(PEOPLE)]
    trusted = {i: identity.public for i, identity in enumerate(identities)}
    signing = [
        {
            "identity": identity,
            "trusted": trusted,
            "joined_rounds": JoinedRounds(),
            "minimum_settings": rules(malicious),
        }
        for identity in identities
    ]
    return [(KeyPair.generate(), signing[i] if malicious else {}) for i in range(PEOPLE)]


def rules(malicious):
    return Settings(WIDTH, 6, THRESHOLD, malicious=malicious)


def answer(client, phase, data):
    vector = (VECTORS[client.participant],) if phase == "masked" else ()
    return getattr(client, phase)(data, *vector)


def run_until(phase, keys, malicious):
    """Clients with these keys, a new server in this phase, and its requests."""
    clients = [Client(i, channel, **signing) for i, (channel, signing) in enumerate(keys)]
    server = Server(rules(malicious), round=3)
    for client in clients:
        server.advertise(client.advertise())
    requests = server.close_advertise()
    for now in phases(malicious)[1:]:
        if now == phase:
            return clients, server, requests
        for i, data in requests.items():
            getattr(server, now)(answer(clients[i], now, data))
        requests = getattr(server, f"close_{now}")()
    raise AssertionError(phase)


@pytest.mark.parametrize(("malicious", "phase"), [case for case in CASES if case[1] != "advertise"])
def test_a_server_killed_in_any_phase_takes_the_round_with_it(malicious, phase):
    """Its successor, in the same phase of the same round with the same participants, has another session:
    neither side accepts what belongs to the dead one."""
    keys = people(malicious)
    clients, _, requests = run_until(phase, keys, malicious)
    successors, successor, asked = run_until(phase, keys, malicious)
    if phase == "share":  # a client bound to the dead session joins no other
        stale = answer(clients[0], phase, requests[0])
        with pytest.raises(OutOfOrder):
            clients[0].share(asked[0])
    else:
        with pytest.raises(WrongRound):
            answer(clients[0], phase, asked[0])
        stale = answer(clients[0], phase, requests[0])
    with pytest.raises(WrongRound):
        getattr(successor, phase)(stale)
    assert getattr(successor, phase)(answer(successors[0], phase, asked[0])) == 0


def test_a_failed_server_stays_failed():
    server = Server(Settings(WIDTH, 6, THRESHOLD))
    with pytest.raises(RoundFailed):
        server.close_advertise()
    with pytest.raises(ProtocolError):
        server.advertise(Client(0, KeyPair.generate()).advertise())
