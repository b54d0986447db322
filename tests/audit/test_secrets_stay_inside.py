"""Planted secrets are looked for in everything that people see or that is stored."""

import logging
import pickle
import re
import traceback

import numpy as np
import pytest
import torch

from helpers.audit import CANARIES, canary_plan
from skelmix.errors import SkelmixError
from skelmix.federated.clients import Clients
from skelmix.federated.trainer import Trainer
from skelmix.mechanisms import SkellamMixture
from skelmix.noise.entropy import ReproducibleEntropy, system_entropy
from skelmix.secagg import messages
from skelmix.secagg.client import Client
from skelmix.secagg.keys import Identity, KeyPair
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings

CHANNEL, IDENTITY = b"\xa7channel secret, thirty-two byte", b"\xb3identity secret, 32 bytes long!"
VALUE = 51_966  # 0xCAFE, in a participant's vector


def forms(secret):
    """The ways in which bytes turn up in text."""
    return [secret.hex(), repr(secret)[2:-1], repr(list(secret))[1:-1], str(int.from_bytes(secret, "big"))]


def assert_absent(text, *secrets):
    for secret in secrets:
        for form in forms(bytes(secret)):
            assert form not in text


@pytest.fixture
def round_of_three():
    """Clients in the middle of a round, the first with planted keys, and the server."""
    first = Client(0, KeyPair(CHANNEL), identity=None)
    clients = [first, *(Client(i, KeyPair.generate()) for i in (1, 2))]
    server = Server(Settings(4, 16, 2, noise=10.0))
    for client in clients:
        server.advertise(client.advertise())
    requests = server.close_advertise()
    for client in clients:
        server.share(client.share(requests[client.participant]))
    return clients, server, server.close_share()


def secrets_of(client):
    state = client._round
    return [
        CHANNEL,
        bytes(state.mask_secret),
        bytes(state.seed),
        bytes(state.pieces),
        state.own_shares,
        *client._agreed.values(),
    ]


def test_representations_of_clients_rounds_keys_and_entropy_hide_what_they_hold(round_of_three):
    clients, server, requests = round_of_three
    client = clients[0]
    secrets = [*secrets_of(client), IDENTITY, b"planted seed"]
    shown = [server, vars(server), client._channel, Identity(IDENTITY), system_entropy()]
    shown += [client, client._round, client._agreed, vars(client)]
    shown.append(ReproducibleEntropy(b"planted seed"))
    assert len(client._agreed) == 2
    assert_absent(" ".join(f"{thing!r} {thing}" for thing in shown), *secrets)
    for other in clients:
        server.masked(other.masked(requests[other.participant], np.zeros(4, np.uint16), participants=3))
    secrets += client._round.held.values()
    assert len(client._round.held) == 2
    text = f"{client} {client._round!r} {vars(client)}"
    requests = server.close_masked()
    answer = messages.decode(client.unmask(requests[0]), messages.UnmaskShares, 10**4)
    secrets += [share for _, share in (*answer.seed_shares, *answer.key_shares)]
    assert_absent(f"{text} {answer!r}", *secrets)
    server.unmask(messages.encode(answer))
    assert_absent(f"{vars(server)}", *secrets)


def test_errors_do_not_quote_secrets(round_of_three, caplog):
    """Every refusal that a client can be brought to. Its text and that of all frames shows no secret and no
    value of a vector; with the locals of all frames printed, still no secret that the client holds (a vector
    is the caller's own local, and plain bytes cannot hide)."""
    clients, server, requests = round_of_three
    client, secrets = clients[0], secrets_of(clients[0])
    texts, locals_too = [], []
    vector = np.full(4, VALUE, np.uint16)
    attempts = [
        lambda: client.share(b"junk"),
        lambda: client.masked(requests[0], vector),
        lambda: client.masked(requests[0], vector, participants=2),
        lambda: client.masked(b"junk", vector, participants=3),
        lambda: client.masked(requests[1], vector, participants=3),
        lambda: client.masked(requests[0], np.full(5, VALUE, np.uint16), participants=3),
        lambda: client.masked(requests[0], vector.astype(np.float64), participants=3),
        lambda: client.unmask(requests[0]),
        lambda: client.restore(b"junk"),
        lambda: server.masked(b"junk"),
        lambda: SkellamMixture(4, 8, 1.0, 1.0, 5.0).encode(np.array([VALUE, np.nan, 0, 0.0]), round=0),
    ]
    with caplog.at_level(logging.DEBUG):
        for attempt in attempts:
            with pytest.raises(SkelmixError) as caught:
                attempt()
            texts.append("".join(traceback.format_exception(caught.value)))
            with_locals = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
            locals_too += [
                f"{name} = {value}"
                for frame in with_locals.stack
                if frame.filename != __file__  # the secrets to look for are locals of this file
                for name, value in (frame.locals or {}).items()
            ]
    text = " ".join(texts) + caplog.text
    assert any(line.startswith("state = Round(") for line in locals_too)
    assert_absent(text + " ".join(locals_too), *secrets)
    assert str(VALUE) not in text


def test_sources_of_secrets_cannot_be_pickled():
    for thing in (system_entropy(), ReproducibleEntropy(1), KeyPair(CHANNEL), Client(0, KeyPair(CHANNEL))):
        with pytest.raises(TypeError):
            pickle.dumps(thing)


def test_run_directories_hold_neither_vectors_nor_noise_nor_who_took_part(tmp_path):
    """A planted value in one participant's data reaches neither ledger nor plan nor checkpoint, but through
    the noisy model itself; and no file has a list of participants."""
    planted = np.float32(0.7853982)
    inputs = torch.zeros(CANARIES, CANARIES)
    inputs[3, :8] = float(planted)
    model = torch.nn.Linear(CANARIES, 1, bias=False)
    trainer = Trainer(
        model,
        lambda out, target: (out[..., 0] * target).sum(),
        Clients(inputs, torch.ones(CANARIES)),
        canary_plan(),
        torch.optim.SGD(model.parameters(), lr=1.0),
        run_directory=tmp_path,
    )
    for _ in range(3):
        trainer.step()
    trainer.save()
    trainer.close()
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        assert planted.tobytes() * 2 not in data
        assert np.float64(planted).tobytes() not in data
        assert b"0.785398" not in data
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    for line in lines[1:]:
        assert set(re.findall(r'"(\w+)":', line)) == {"previous", "round"}
