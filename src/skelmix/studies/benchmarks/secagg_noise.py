"""What removing excess noise costs: the same rounds with and without it, by role.

The vectors bring their share of the noise either way. One, two or three tenths of the participants may drop
out, and none, half or all of these do. One in twenty may collude, which takes three to six pieces of noise
per participant; with nobody who colludes, one piece, or two with a threshold below half.

Both rounds have the same threshold, all but the tolerated dropouts, as where everyone takes part. Rounds of
sampled cohorts that remove excess noise open with fewer survivors, so that almost none fails (without removal
half of them do, if as many drop out as are tolerated). On a sparse graph that takes more neighbours, as many
as the plan's law of dropouts asks for: these have rows of their own, beside the round that they replace. What
removal alone costs them is measured beside a round of the same threshold and graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from skelmix.planning import Cohort
from skelmix.secagg.graph import LEAST_SPARSE

TOLERANCES = (0.1, 0.2, 0.3)
NOISE = 500.0
TITLE = "Excess noise removed, 8 bits, beside the same round without it; milliseconds and bytes"
_POPULATION, _ROUNDS, _DELTA = 250, 1_000, 1e-5  # sampled cohorts: population in cohorts, rounds, δ


def rows(
    participants: Sequence[int], dimension: int, measured_round: Callable[..., dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row for each number of participants, tolerance, number of dropouts and of colluders, and plan."""
    rows_so_far = []
    for n in participants:
        for tolerance in TOLERANCES:
            allowed = math.floor(tolerance * n)
            for absent in sorted({0, allowed // 2, allowed}):
                plain = measured_round(n, dimension, 8, absent, threshold=n - allowed)
                for sampled, rules in _plans(n, tolerance, absent):
                    noisy = measured_round(n, dimension, 8, absent, noise=NOISE, **rules)
                    start: dict[str, Any] = {"participants": n, "tolerance": tolerance, "dropouts": absent}
                    start |= {"sampled": sampled, **rules}
                    if sampled:
                        start["without"] = _sent(measured_round(n, dimension, 8, absent, **rules))
                    rows_so_far.append({**start, **_pairs(plain, noisy)})
    return rows_so_far


def _plans(n: int, tolerance: float, absent: int) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Whether the cohort is sampled, and its rules, of the rounds that remove excess noise."""
    twentieth = -(-n // 20)
    for colluding in (0, twentieth) if absent == 0 else (twentieth,):
        yield False, {"colluding": colluding, "threshold": n - math.floor(tolerance * n)}
        if n >= LEAST_SPARSE:
            cohort = Cohort(n, _POPULATION * n, dropout_tolerance=tolerance, colluding=colluding)
            cohort = cohort.with_least_survivors(_DELTA, _ROUNDS)
            law = {"threshold": cohort.min_survivors(n), "dropout_rate": cohort.assumed_dropout_rate}
            yield True, {"colluding": colluding, **law}


def _pairs(plain: dict[str, Any], noisy: dict[str, Any]) -> dict[str, Any]:
    """What was measured without and with excess noise."""
    both = (plain, noisy)
    return {
        "degree": noisy["degree"],
        "client_seconds": [sum(measured["client_seconds"].values()) for measured in both],
        "server_seconds": [measured["server_unmask_seconds"] for measured in both],
        **{
            f"{side}bytes_{way}": [measured[f"{side}bytes_{way}"] for measured in both]
            for side in ("", "server_")
            for way in ("sent", "received")
        },
    }


def _sent(measured: dict[str, Any]) -> dict[str, float]:
    """What a client does and sends in a round."""
    return {
        "client_seconds": sum(measured["client_seconds"].values()),
        "bytes_sent": measured["bytes_sent"],
    }


def _largest(rows: list[dict[str, Any]], key: str) -> float:
    return float(max(row[key][1] / row[key][0] for row in rows))


def bars(rows: list[dict[str, Any]]) -> list[tuple[str, float, str, float]]:
    """Name, what was measured, sign and limit, for the rounds with the most participants."""
    limits = []
    n = max((row["participants"] for row in rows), default=0)
    for sampled, name in ((False, ""), (True, " of a sampled cohort")):
        largest = [row for row in rows if row["participants"] == n and row.get("sampled", False) == sampled]
        if not largest:
            continue
        removal = max(row["server_seconds"][1] - row["server_seconds"][0] for row in largest)
        start, client, sent = f"excess noise, n = {n}{name}", "client_seconds", "bytes_sent"
        limits += [
            (f"{start}: client time over the round without", _largest(largest, client), "<", 1.5),
            (f"{start}: bytes sent over the round without", _largest(largest, sent), "<", 1.3),
            (f"{start}: the server's removal, seconds", removal, "<", 0.5),
        ]
        if all("without" in row for row in largest):
            for key, what, limit in ((client, "client time", 1.5), (sent, "bytes sent", 1.3)):
                ratio = max(row[key][1] / row["without"][key] for row in largest)
                limits.append((f"{start}: {what} over the same threshold and graph", ratio, "<", limit))
    return limits


def columns(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The names of the columns, and their cells."""
    pairs = ("client", "server", "sent", "received")
    names = (
        "n",
        "tolerance",
        "dropouts",
        "colluding",
        "threshold",
        *(f"{name}{was}" for name in pairs for was in ("", " was")),
    )
    cells: list[tuple[str, ...]] = [names]
    for row in rows:
        shown = [
            f"{1000 * x:.1f}" for key in ("client_seconds", "server_seconds") for x in reversed(row[key])
        ]
        shown += [f"{x:,}" for key in ("bytes_sent", "bytes_received") for x in reversed(row[key])]
        start = [f"{row[key]:g}" for key in ("participants", "tolerance", "dropouts", "colluding")]
        threshold = f"{row.get('threshold', '')}{', sampled' if row.get('sampled') else ''}"
        cells.append((*start, threshold, *shown))
    return cells
