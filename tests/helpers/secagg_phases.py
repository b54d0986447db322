"""Rounds of secure aggregation that are played up to a phase, to be disturbed from there."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers.secure_rounds import cast
from skelmix.secagg import messages
from skelmix.secagg.client import Client
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings

CURIOUS = Settings(dimension=4, bits=8, threshold=3)
MALICIOUS = Settings(dimension=4, bits=8, threshold=3, malicious=True)
BOTH = pytest.mark.parametrize("settings", [CURIOUS, MALICIOUS], ids=["curious", "malicious"])
ONES = np.ones(4, np.uint8)


def changed(data: bytes, kind: type[messages.Message], **fields: Any) -> bytes:
    """The message with other fields."""
    return messages.encode(replace(messages.decode(data, kind, 10**6), **fields))


def up_to(
    phase: str, settings: Settings, n: int = 4, silent: frozenset[int] = frozenset(), round: int = 0
) -> tuple[Server, dict[int, Client], dict[int, bytes]]:
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


def refuses(error: type[Exception], act: Callable[[], object], *state: Callable[[], object]) -> None:
    """`act` raises `error`, and what `state` returns before is what it returns after."""
    before = [look() for look in state]
    with pytest.raises(error):
        act()
    assert [look() for look in state] == before
