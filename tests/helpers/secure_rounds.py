"""A round of secure aggregation laid open: every message of it can be looked at, changed or held back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from skelmix.secagg.client import Client
from skelmix.secagg.joined_rounds import JoinedRounds
from skelmix.secagg.keys import Identity, KeyPair
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings

Tamper = Callable[[str, int, bytes], bytes]
"""(name of the message, participant, bytes) -> bytes to deliver instead"""


def untouched(name: str, participant: int, data: bytes) -> bytes:
    return data


def cast(n: int, settings: Settings, *, round: int = 0) -> tuple[Server, dict[int, Client]]:
    """A server and n clients with numbers 10, 11, …, not equal to their indices on purpose."""
    server = Server(settings, round=round, session=b"s" * 16)
    numbers = range(10, 10 + n)
    if not settings.malicious:
        return server, {p: Client(p, KeyPair.generate()) for p in numbers}
    identities = {p: Identity.generate() for p in numbers}
    trusted = {p: identity.public for p, identity in identities.items()}
    return server, {
        p: Client(
            p,
            KeyPair.generate(),
            identity=identities[p],
            trusted=trusted,
            joined_rounds=JoinedRounds(),
            minimum_settings=settings,
        )
        for p in numbers
    }


@dataclass
class Recording:
    """What went over the wire: (name of the message, participant) -> bytes."""

    sent: dict[tuple[str, int], bytes] = field(default_factory=dict)
    total: np.ndarray | None = None


def play(
    server: Server,
    clients: dict[int, Client],
    vectors: np.ndarray,
    *,
    tamper: Tamper = untouched,
    silent: dict[str, set[int]] | None = None,
) -> Recording:
    """Run the round to its end. `silent`: phase -> participants that do not answer in it."""
    tape = Recording()
    gone = silent or {}
    rows = dict(zip(clients, vectors, strict=True))
    joined = len(clients.keys() - gone.get("advertise", set()))

    def pass_on(name: str, participant: int, data: bytes) -> bytes:
        tape.sent[name, participant] = data
        return tamper(name, participant, data)

    def exchange(phase: str, requests: dict[int, bytes]) -> None:
        for p, data in requests.items():
            if p in gone.get(phase, ()):
                continue
            request = pass_on(f"{phase} request", p, data)
            client = clients[p]
            extra = {"vector": rows[p], "participants": joined} if phase == "masked" else {}
            answer = getattr(client, phase)(request, **extra)
            getattr(server, phase)(pass_on(f"{phase} answer", p, answer))

    for p, client in clients.items():
        if p not in gone.get("advertise", ()):
            server.advertise(pass_on("advertise answer", p, client.advertise()))
    exchange("share", server.close_advertise())
    exchange("masked", server.close_share())
    requests = server.close_masked()
    if server.settings.malicious:
        exchange("consistency", requests)
        requests = server.close_consistency()
    exchange("unmask", requests)
    tape.total = server.close_unmask()
    return tape
