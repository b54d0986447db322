"""Clients stop and start again in the middle of a round; damaged, foreign and older states are refused."""

import numpy as np
import pytest

from helpers.secagg_phases import BOTH, CURIOUS, ONES, refuses, up_to
from helpers.secure_rounds import cast, play
from skelmix.errors import CorruptState
from skelmix.secagg import stored
from skelmix.secagg.client import Client
from skelmix.secagg.failures import (
    OutOfOrder,
)
from skelmix.secagg.joined_rounds import JoinedRounds
from skelmix.secagg.keys import KeyPair


@BOTH
def test_clients_killed_between_all_phases_and_restored_from_their_state_finish_the_round(settings):
    server, clients = cast(4, settings)

    class Phoenix:
        """Each call is served by a new client that knows only the long-lived keys and the stored state."""

        def __init__(self, client):
            self.long_lived = (client.participant, client._channel, client._identity, client._trusted)
            self.minimum = client._minimum_settings
            self.joined = None if client._joined_rounds is None else client._joined_rounds.to_bytes()
            self.state = client.secret_state()

        def __getattr__(self, phase):
            participant, channel, identity, trusted = self.long_lived
            joined_rounds = None if self.joined is None else JoinedRounds.from_bytes(self.joined)
            key = KeyPair(channel.secret_bytes())
            client = Client(
                participant,
                key,
                identity=identity,
                trusted=trusted,
                joined_rounds=joined_rounds,
                minimum_settings=self.minimum,
            )
            client.restore(self.state)

            def call(*arguments, **named):
                answer = getattr(client, phase)(*arguments, **named)
                self.state = client.secret_state()
                self.joined = None if joined_rounds is None else joined_rounds.to_bytes()
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
