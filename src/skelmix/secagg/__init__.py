"""Secure aggregation: a server learns the sum of many vectors modulo m, and nothing else about them.

`secure_sum` runs the whole protocol in one process; `Client` and `Server` are its two sides, for engines
that carry the messages themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.secagg.client import Client
    from skelmix.secagg.in_memory import ideal_sum, secure_sum
    from skelmix.secagg.joined_rounds import JoinedRounds
    from skelmix.secagg.keys import Identity, KeyPair
    from skelmix.secagg.server import Server
    from skelmix.secagg.settings import Phase, Settings

__all__ = [
    "Client",
    "Identity",
    "JoinedRounds",
    "KeyPair",
    "Phase",
    "Server",
    "Settings",
    "ideal_sum",
    "secure_sum",
]

_HOMES = {
    "client": ("Client",),
    "keys": ("Identity", "KeyPair"),
    "joined_rounds": ("JoinedRounds",),
    "settings": ("Phase", "Settings"),
    "server": ("Server",),
    "in_memory": ("ideal_sum", "secure_sum"),
}

__getattr__ = lazily(__name__, _HOMES)
