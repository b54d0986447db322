"""The bytes that a plan states for a round are those that a round sends."""

from pathlib import Path

import numpy as np
import pytest

import skelmix as sk
from helpers.prose import unwrapped
from skelmix.planning.rate import packed_bytes
from skelmix.secagg.client import Client
from skelmix.secagg.keys import KeyPair
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings
from skelmix.secagg.sizes import protocol_bytes


def sent_by_each(participants, threshold, dimension, bits, **rules):
    """Bytes that each participant uploads in a round through real messages, the advertisement left out."""
    server = Server(Settings(dimension, bits, threshold=threshold, **rules))
    clients = [Client(p, KeyPair.generate()) for p in range(participants)]
    for client in clients:
        server.advertise(client.advertise())
    sent = np.zeros(participants, int)
    requests = server.close_advertise()
    for phase in ("share", "masked", "unmask"):
        for p, data in requests.items():
            vector = {"vector": np.zeros(dimension, np.uint32), "participants": participants}
            answer = getattr(clients[p], phase)(data, **(vector if phase == "masked" else {}))
            getattr(server, phase)(answer)
            sent[p] += len(answer)
        if phase != "unmask":
            requests = getattr(server, f"close_{phase}")()
    return sent


@pytest.mark.parametrize(
    ("participants", "threshold", "dimension", "bits"),
    [(2, 2, 16, 8), (10, 9, 5000, 9), (120, 108, 496, 8)],
)
@pytest.mark.parametrize("noise", [0.0, 100.0])
def test_stated_bytes_are_those_of_a_round(participants, threshold, dimension, bits, noise):
    for rate in (None, 0.05):
        stated = protocol_bytes(participants, threshold, excess=noise > 0, dropout_rate=rate)
        stated += packed_bytes(dimension, bits)
        sent = sent_by_each(participants, threshold, dimension, bits, noise=noise, dropout_rate=rate)
        assert sent.max() <= stated
        assert stated <= 1.02 * sent.min() + 16


def test_240_participants_at_a_sixteenth_of_a_bit_upload_four_kilobytes_and_five_with_excess_noise():
    plan = sk.plan(
        sk.PrivacyTarget(3.0, 1e-5), dimension=63_610, rate=0.0625, alignment=0.005, rounds=1000, bound="rdp",
        cohort=sk.Cohort(240, 60_000, dropout_tolerance=0.1),
    )  # fmt: skip
    mechanism, cohort = plan.mechanism, plan.cohort
    rules = 240, cohort.min_survivors(240), mechanism.coordinates, mechanism.bits
    law = cohort.assumed_dropout_rate
    assert (law, rules[1]) == (0.1, 176)
    assert sent_by_each(*rules, dropout_rate=law).max() <= 4000
    sent = sent_by_each(*rules, noise=plan.removable_noise, dropout_rate=law)
    assert sent.max() <= 5000
    assert sent.max() <= plan.round_bytes <= 1.02 * sent.min() + 16
    assert plan.summary()["round_bytes"] == plan.round_bytes
    assert f"{plan.round_bytes:,} bytes with" in unwrapped(plan)


def test_the_page_on_low_rates_states_these_bytes():
    page = (Path(__file__).parents[2] / "docs/explanation/fewer-coordinates.md").read_text()
    vector = packed_bytes(496, 8)
    sizes = [
        vector + protocol_bytes(240, threshold, excess=excess, dropout_rate=rate)
        for threshold, excess, rate in (
            (240, False, None),
            (216, False, None),
            (216, True, None),
            (176, True, 0.1),  # sampled from 60,000
        )
    ]
    for size in sizes:
        assert f"{size:,}" in page
    in_all = [(size + 1_310) / 1_000 for size in (min(sizes), max(sizes))]
    assert "between {:.1f} and {:.1f} kB are sent in all".format(*in_all) in page
    assert in_all[1] <= 8
