"""A server of secure aggregation that believes and forwards everything: what is refused, clients refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skelmix.errors import InvalidInput, RoundFailed, SkelmixError
from skelmix.secagg import messages
from skelmix.secagg.client import Client
from skelmix.secagg.server import Server

View = Callable[[int, messages.ShareRequest], messages.ShareRequest]
"""(participant, its request) -> the request that it is shown instead"""


class DishonestServer(Server):
    """Checks nothing of what clients send: no signature, no session, no round."""

    def _receive(self, phase: Any, data: bytes, kind: Any, limit: int, seen: Any, sender: Any) -> Any:
        return messages.decode(data, kind, limit)

    def consistency(self, data: bytes, sender: int | None = None) -> int:
        message = messages.decode(data, messages.Agreement, 10**6)
        self._agreements[message.sender] = message.signature
        return self._roster[message.sender][1]


@dataclass
class Attack:
    """What came of it: the sum, if one was opened, who is in it, and who refused what."""

    total: np.ndarray | None = None
    survivors: tuple[int, ...] = ()
    refusals: dict[int, str] = field(default_factory=dict)


def attack(
    server: DishonestServer, clients: dict[int, Client], vectors: dict[int, np.ndarray], view: View
) -> Attack:
    """Show each client its own view of the round and go on with those who answer, to the sum if possible."""
    found = Attack()

    def exchange(phase: str, requests: dict[int, bytes]) -> None:
        for p, data in requests.items():
            extra = {"vector": vectors[p], "participants": len(clients)} if phase == "masked" else {}
            try:
                answer = getattr(clients[p], phase)(data, **extra)
            except SkelmixError as error:
                found.refusals.setdefault(p, f"{phase}: {error}")
            else:
                getattr(server, phase)(answer)

    for client in clients.values():
        server.advertise(client.advertise())
    shown = {}
    for p, data in server.close_advertise().items():
        request = messages.decode(data, messages.ShareRequest, 10**6)
        shown[p] = messages.encode(view(p, request))
    try:
        exchange("share", shown)
        exchange("masked", server.close_share())
        requests = server.close_masked()
        if server.settings.malicious:
            exchange("consistency", requests)
            requests = server.close_consistency()
        exchange("unmask", requests)
        found.total = server.close_unmask()
    except (RoundFailed, InvalidInput):
        return found
    found.survivors = server.survivors
    return found
