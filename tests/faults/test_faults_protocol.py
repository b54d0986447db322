"""Participants and servers that die in any phase of secure aggregation: the right sum, or none."""

import numpy as np
import pytest

from skelmix.errors import ProtocolError, RoundFailed
from skelmix.secagg.client import Client
from skelmix.secagg.in_memory import PHASES, ideal_sum, secure_sum
from skelmix.secagg.keys import KeyPair
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


def run_until(phase):
    """(clients, server, waiting requests) of a round whose server is killed in this phase."""
    clients = {i: Client(i, KeyPair.generate()) for i in range(PEOPLE)}
    server = Server(Settings(WIDTH, 6, THRESHOLD), round=3)
    for client in clients.values():
        server.advertise(client.advertise())
    requests = server.close_advertise()
    if phase == "share":
        return clients, requests
    for i, data in requests.items():
        server.share(clients[i].share(data))
    requests = server.close_share()
    if phase == "masked":
        return clients, requests
    for i, data in requests.items():
        server.masked(clients[i].masked(data, VECTORS[i]))
    return clients, server.close_masked()


@pytest.mark.parametrize("phase", ["share", "masked", "unmask"])
def test_a_server_killed_in_any_phase_takes_the_round_with_it(phase):
    """Its successor starts a new session. Answers to the dead one are refused, and a client that has been
    asked to open one set of survivors will not open another."""
    clients, requests = run_until(phase)
    successor = Server(Settings(WIDTH, 6, THRESHOLD), round=3)
    for client in clients.values():
        successor.advertise(client.advertise())
    asked = successor.close_advertise()
    vector = {"masked": (VECTORS[0],)}.get(phase, ())
    stale = getattr(clients[0], phase)(requests[0], *vector)
    with pytest.raises(ProtocolError):
        getattr(successor, phase)(stale)
    with pytest.raises(ProtocolError):  # the old client object is spent: it joins no second round
        clients[0].share(asked[0])
    total = secure_sum(VECTORS, modulus=64, threshold=THRESHOLD, round=3)
    assert (total == ideal_sum(VECTORS, modulus=64)).all()


def test_a_failed_server_stays_failed():
    server = Server(Settings(WIDTH, 6, THRESHOLD))
    with pytest.raises(RoundFailed):
        server.close_advertise()
    with pytest.raises(ProtocolError):
        server.advertise(Client(0, KeyPair.generate()).advertise())
