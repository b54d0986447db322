"""Secure aggregation of few coordinates, as a low rate sends them: there the protocol's messages rule.

240 participants at 0.0625 bits per weight of 63,610 weights send 496 coordinates each; 16,384 coordinates are
a large model's. What a participant sends in all is set beside what a plan states (`Plan.round_bytes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from skelmix.planning.rate import packed_bytes
from skelmix.secagg.sizes import protocol_bytes

BITS = 8
TOLERANCE = 0.1
ROUNDS = ((240, 496), (1_000, 16_384))
TITLE = "Few coordinates, 8 bits each, a tenth may drop out; milliseconds and bytes"


def rows(
    rounds: Sequence[tuple[int, int]], measured_round: Callable[..., dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row for each pair of participants and coordinates that each of them sends."""
    measured = []
    for n, coordinates in rounds:
        absent = math.floor(TOLERANCE * n)
        full = measured_round(n, coordinates, BITS, 0, threshold=n - absent)
        part = measured_round(n, coordinates, BITS, absent, threshold=n - absent)
        payload = packed_bytes(coordinates, BITS)
        measured.append(
            {
                "participants": n,
                "coordinates": coordinates,
                "degree": full["degree"],
                "client_seconds": sum(full["client_seconds"].values()),
                "server_seconds": full["server_unmask_seconds"],
                "server_seconds_dropouts": part["server_unmask_seconds"],
                "payload_bytes": payload,
                "bytes_sent": full["bytes_sent"],
                "bytes_stated": payload + protocol_bytes(n, n - absent),
            }
        )
    return measured


def bars(rows: list[dict[str, Any]]) -> list[tuple[str, float, str, float]]:
    """Name, what was measured, sign and limit."""
    if not rows:
        return []
    exceeded = max(row["bytes_sent"] / row["bytes_stated"] for row in rows)
    return [("few coordinates: bytes sent over those that a plan states", exceeded, "<", 1.0001)]


def columns(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The names of the columns, and their cells."""
    seconds = ("client_seconds", "server_seconds", "server_seconds_dropouts")
    sizes = ("payload_bytes", "bytes_sent", "bytes_stated")
    names = ("n", "coordinates", "degree", "client", "server", "server 10 %", "payload", "sent", "stated")
    cells: list[tuple[str, ...]] = [names]
    for row in rows:
        start = (f"{row[key]:,}" for key in ("participants", "coordinates", "degree"))
        times = (f"{1000 * row[key]:.1f}" for key in seconds)
        cells.append((*start, *times, *(f"{row[key]:,}" for key in sizes)))
    return cells
