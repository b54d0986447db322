"""The bytes that a plan states for a round are those that a round sends."""

import numpy as np
import pytest

import skelmix as sk
from skelmix.planning.rate import packed_bytes
from skelmix.secagg.client import Client
from skelmix.secagg.keys import KeyPair
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings
from skelmix.secagg.sizes import protocol_bytes


def sent_by_each(participants, threshold, dimension, bits):
    """Bytes that each participant uploads in a round through real messages, the advertisement left out."""
    server = Server(Settings(dimension, bits, threshold=threshold))
    clients = [Client(p, KeyPair.generate()) for p in range(participants)]
    for client in clients:
        server.advertise(client.advertise())
    sent = np.zeros(participants, int)
    requests = server.close_advertise()
    for phase in ("share", "masked", "unmask"):
        for p, data in requests.items():
            extra = (np.zeros(dimension, np.uint32),) if phase == "masked" else ()
            answer = getattr(clients[p], phase)(data, *extra)
            getattr(server, phase)(answer)
            sent[p] += len(answer)
        if phase != "unmask":
            requests = getattr(server, f"close_{phase}")()
    return sent


@pytest.mark.parametrize(
    ("participants", "threshold", "dimension", "bits"),
    [(2, 2, 16, 8), (10, 9, 5000, 9), (120, 108, 496, 8), (240, 216, 70_000, 8)],
)
def test_stated_bytes_are_those_of_a_round(participants, threshold, dimension, bits):
    stated = protocol_bytes(participants, threshold) + packed_bytes(dimension, bits)
    sent = sent_by_each(participants, threshold, dimension, bits)
    assert sent.max() <= stated
    assert stated <= 1.02 * sent.min() + 16


def test_240_participants_at_a_sixteenth_of_a_bit_upload_at_most_five_kilobytes():
    plan = sk.plan(
        sk.PrivacyTarget(3.0, 1e-5), dimension=63_610, rate=0.0625, alignment=0.005, rounds=1000, bound="rdp",
        cohort=sk.Cohort(240, 60_000, dropout_tolerance=0.1),
    )  # fmt: skip
    mechanism, cohort = plan.mechanism, plan.cohort
    sent = sent_by_each(240, cohort.min_survivors(240), mechanism.coordinates, mechanism.bits)
    assert sent.max() <= 5000
    assert sent.max() <= plan.round_bytes <= 1.02 * sent.min()
    assert plan.summary()["round_bytes"] == plan.round_bytes
    assert f"{plan.round_bytes:,} bytes with" in str(plan)
