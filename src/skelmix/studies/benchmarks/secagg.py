"""Secure aggregation by phase: clients' work, the server's unmasking, bytes.

Beside the bare keystream of the same masks and, when flwr is installed, beside Flower's SecAgg+ primitives
doing the same unmasking. Seconds are processor seconds of this process: all that is compared here keeps one
core busy, and other work on the machine does not distort it. Only the in-memory round is timed by the wall.
"""

from __future__ import annotations

import importlib.util
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from rich.console import Group, RenderableType
from rich.table import Table

from skelmix.encoding.wrapping import wire_dtype
from skelmix.noise.entropy import system_entropy
from skelmix.noise.table import forget_tables
from skelmix.secagg import masking
from skelmix.secagg.client import Client
from skelmix.secagg.in_memory import secure_sum
from skelmix.secagg.keys import KeyPair
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings
from skelmix.studies.benchmarks import secagg_noise, secagg_rates
from skelmix.validation import whole

DROPOUT = 0.1
PHASES = ("share", "masked", "unmask")
_REPEATS = 5


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def measured_round(
    n: int, dimension: int, bits: int, absent: int, *, threshold: int | None = None, **rules: Any
) -> dict[str, Any]:
    """One round through real messages, honest-but-curious, `absent` participants dropping before "masked".

    threshold: for 10 % dropouts when not given. rules: `noise`, `colluding` and `dropout_rate`, as in
    `Settings`. Each client makes the tables of its noise itself, as it would on its own machine.
    """
    threshold = n - math.floor(DROPOUT * n) if threshold is None else threshold
    server = Server(Settings(dimension, bits, threshold=threshold, **rules))
    clients = [Client(p, KeyPair.generate()) for p in range(n)]
    vector = np.frombuffer(system_entropy().bytes(4 * dimension), np.uint32) >> np.uint32(32 - bits)
    clock: dict[str, list[float]] = {phase: [] for phase in PHASES}
    sent = [0] * n
    received = [0] * n
    for client in clients:
        server.advertise(client.advertise())
    requests = server.close_advertise()
    for phase in PHASES:
        for p, data in requests.items():
            if phase == "masked" and p < absent:
                continue
            extra = {"vector": vector, "participants": n} if phase == "masked" else {}
            forget_tables()
            start = time.process_time()
            answer = getattr(clients[p], phase)(data, **extra)
            clock[phase].append(time.process_time() - start)
            getattr(server, phase)(answer)
            sent[p] += len(answer)
            received[p] += len(data)
            if phase == "masked":
                upload = len(answer)
        if phase != "unmask":
            requests = getattr(server, f"close_{phase}")()
    unmask = _seconds(server.close_unmask)
    graph = server.graph
    return {
        "degree": graph.degree if graph else 0,
        "share_threshold": graph.share_threshold if graph else 0,
        "client_seconds": {phase: statistics.median(times) for phase, times in clock.items()},
        "server_unmask_seconds": unmask,
        "bytes_sent": int(statistics.median(sent[absent:])),
        "bytes_received": int(statistics.median(received[absent:])),
        "server_bytes_sent": sum(received),
        "server_bytes_received": sum(sent),
        "masked_input_bytes": upload,
    }


def _masking(count: int, dimension: int, bits: int) -> dict[str, float]:
    """Seconds to mask with `count` masks, and to make their keystreams and throw them away; in turns."""
    keys = [system_entropy().bytes(32) for _ in range(count)]
    vector = np.zeros(dimension, wire_dtype(bits))
    zeros, buffer = bytes(vector.nbytes), bytearray(vector.nbytes)

    def keystream() -> None:
        for key in keys:
            Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update_into(zeros, buffer)

    pairs = [
        (_seconds(keystream), _seconds(lambda: masking.apply(vector, keys, []))) for _ in range(_REPEATS)
    ]
    bare, masked = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {"keystream_seconds": bare, "masking_seconds": masked}


def run(
    participants: Sequence[int] = (10, 50, 240, 1000),
    dimension: int = 65_536,
    bits: Sequence[int] = (8, 16),
    flower: bool = True,
    in_memory: int = 240,
    noisy: Sequence[int] = (50, 240),
    few: Sequence[tuple[int, int]] = secagg_rates.ROUNDS,
) -> dict[str, Any]:
    """Medians over the clients for each number of participants and bits, with 0 % and 10 % dropouts.

    Thresholds are set for 10 % dropouts. `flower` measures Flower's primitives at 50 participants and 8 bits,
    if flwr is installed. `noisy`: participants of the rounds that remove excess noise. `few`: participants
    and coordinates of rounds at low rates. The bars are computed from what was measured. All of a result is
    measured in one run, whose day it states.
    """
    whole(1, dimension=dimension)
    secure_sum(
        np.ones((3, 8), np.uint8), modulus=256, threshold=2
    )  # imports and compilation outside the clock
    rows = []
    for b in bits:
        for n in participants:
            full = measured_round(n, dimension, b, absent=0)
            part = measured_round(n, dimension, b, absent=math.floor(DROPOUT * n))
            row = {"participants": n, "bits": b, **full, **_masking(full["degree"] + 1, dimension, b)}
            row["server_unmask_seconds_dropouts"] = part["server_unmask_seconds"]
            row["client_total_seconds"] = sum(full["client_seconds"].values())
            row["upload_expansion"] = full["masked_input_bytes"] / math.ceil(dimension * b / 8)
            row["masking_speed_of_keystream"] = row["keystream_seconds"] / row["masking_seconds"]
            rows.append(row)
    result: dict[str, Any] = {
        "date": date.today().isoformat(), "cores": os.cpu_count(), "dimension": dimension,
        "dropout": DROPOUT, "rows": rows, "flower": None,
    }  # fmt: skip
    if flower and importlib.util.find_spec("flwr") is not None:
        from skelmix.studies.benchmarks.secagg_peer import unmask_seconds

        absent = math.floor(DROPOUT * 50)
        ours = measured_round(50, dimension, 8, absent)["server_unmask_seconds"]
        theirs = unmask_seconds(50, dimension, 8, absent)
        result["flower"] = {"participants": 50, "bits": 8, "skelmix_seconds": ours, "flower_seconds": theirs}
    result["in_memory"] = {"participants": in_memory, "seconds": _in_memory(in_memory, dimension)}
    result["excess_noise"] = secagg_noise.rows(noisy, dimension, measured_round)
    result["few_coordinates"] = secagg_rates.rows(few, measured_round)
    result["bars"] = _bars(result)
    return result


def _in_memory(n: int, dimension: int) -> float:
    """Wall-clock seconds of a whole round in one process, all clients included, 8 bits."""
    vectors = (np.full(dimension, i % 256, np.uint8) for i in range(n))
    threshold = n - math.floor(DROPOUT * n)
    start = time.perf_counter()
    secure_sum(vectors, modulus=256, threshold=threshold, participants=n)
    return time.perf_counter() - start


def _bars(result: dict[str, Any]) -> list[dict[str, Any]]:
    rows = result["rows"]
    times = {(r["participants"], r["bits"]): r["client_total_seconds"] for r in rows}
    bars = [
        ("masking speed over bare keystream", min(r["masking_speed_of_keystream"] for r in rows), ">=", 0.5),
        ("upload over d·b/8", max(r["upload_expansion"] for r in rows), "<", 1.02),
        (
            f"in-memory round, n = {result['in_memory']['participants']}, b = 8, seconds",
            result["in_memory"]["seconds"],
            "<",
            10.0,
        ),
    ]
    growth = [times[1000, b] / times[240, b] for b in (8, 16) if {(240, b), (1000, b)} <= times.keys()]
    if growth:
        bars.append(("client time, n = 1000 over n = 240", max(growth), "<", 1.5))
    if result["flower"]:
        ratio = result["flower"]["flower_seconds"] / result["flower"]["skelmix_seconds"]
        bars.append(("unmask n = 50, times faster than Flower's primitives", ratio, ">=", 100.0))
    bars += secagg_noise.bars(result.get("excess_noise", []))  # results of before have none
    bars += secagg_rates.bars(result.get("few_coordinates", []))
    return [
        {"bar": name, "measured": value, "limit": f"{sign} {limit:g}", "met": _met(value, sign, limit)}
        for name, value, sign, limit in bars
    ]


def _met(value: float, sign: str, limit: float) -> bool:
    return value >= limit if sign == ">=" else value < limit


def _columns(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """The names of the columns, and their cells: milliseconds and bytes."""
    names = (
        "n",
        "bits",
        "degree",
        *PHASES,
        "masks",
        "keystream",
        "server",
        "server 10 %",
        "sent",
        "received",
    )
    rows: list[tuple[str, ...]] = [names]
    for r in result["rows"]:
        seconds = (
            *(r["client_seconds"][phase] for phase in PHASES),
            r["masking_seconds"],
            r["keystream_seconds"],
            r["server_unmask_seconds"],
            r["server_unmask_seconds_dropouts"],
        )
        rows.append(
            (
                *(str(r[key]) for key in ("participants", "bits", "degree")),
                *(f"{1000 * value:.2f}" for value in seconds),
                *(f"{r[key]:,}" for key in ("bytes_sent", "bytes_received")),
            )
        )
    return rows


def _verdicts(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """The names of the columns, and one row per bar."""
    verdicts = [
        (bar["bar"], f"{bar['measured']:.4g}", bar["limit"], "yes" if bar["met"] else "NO")
        for bar in result["bars"]
    ]
    return [("what", "measured", "limit", "met"), *verdicts]


def _title(result: dict[str, Any]) -> str:
    if "date" in result:
        day = f"measured on {result['date']}, {result['cores']} cores; "
    else:
        day = "a result of before, whose tables were measured on several days; "
    return f"Secure aggregation, d = {result['dimension']:,}; {day}milliseconds, medians over clients"


def table(result: dict[str, Any]) -> RenderableType:
    """What `run` returned, for people: rounds with and without excess noise, then the bars."""
    drawn = []
    for title, side, (names, *rows) in _tables(result):
        drawn.append(Table(title=title))
        for name in names:
            drawn[-1].add_column(name, justify="right" if side == "--:" else "left")
        for row in rows:
            drawn[-1].add_row(*row)
    return Group(*drawn)


def markdown(result: dict[str, Any]) -> str:
    """The same tables for a page."""
    shown = []
    for title, side, rows in _tables(result):
        names, *cells = (" | ".join(row) for row in rows)
        lines = "\n".join(f"| {row} |" for row in (names, " | ".join([side] * len(rows[0])), *cells))
        shown.append(f"{title}:\n\n{lines}")
    return "\n\n".join(shown)


def _tables(result: dict[str, Any]) -> list[tuple[str, str, list[tuple[str, ...]]]]:
    """Title, side to which cells are aligned, and rows of each table."""
    tables = [(_title(result), "--:", _columns(result)), ("Bars", "---", _verdicts(result))]
    if noisy := result.get("excess_noise"):
        tables.insert(1, (secagg_noise.TITLE, "--:", secagg_noise.columns(noisy)))
    if few := result.get("few_coordinates"):
        tables.insert(-1, (secagg_rates.TITLE, "--:", secagg_rates.columns(few)))
    return tables
