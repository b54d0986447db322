"""The ready ServerApp: takes one question to all parties, and prints the noisy sum that they give together.

It runs where the SuperLink runs. `skelmix ask` starts it, and reads what it prints.
"""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from skelmix.errors import RoundFailed, SkelmixError
from skelmix.flower.coordinator import Coordinator
from skelmix.flower.records import ADVERTISE
from skelmix.flower.waves import Outcome, Waiting
from skelmix.planning import Plan

RESULT = "skelmix-result "
"""How a line of the result begins; the lines' texts, joined, are one JSON object."""

_LINE = 4096  # characters of a result per printed line

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Ask, and print the outcome; a refusal is an outcome too."""
    settings = context.run_config
    plan, question = Plan.from_json(str(settings["plan"])), str(settings["question"])
    seconds = float(settings["seconds"])
    print_result(ask_parties(grid, plan, question, Waiting(seconds, 10.0, 0.25)))


class _Asking(Coordinator):
    """A coordinator that remembers why parties refused, in whichever wave."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.reasons: dict[int, str] = {}

    def _wave(self, *args: Any, **options: Any) -> Outcome:
        outcome = super()._wave(*args, **options)
        self.reasons.update(outcome.refusals)
        return outcome

    def willing(self, nodes: list[int], template: Message, count: int) -> set[int]:
        """Those among the nodes whose policy allows the question, once `count` of them have said so."""
        outcome = self._wave(
            {node: {ADVERTISE: b""} for node in nodes}, template, lambda answered: len(answered) >= count
        )
        self._learn_keys(outcome)
        return set(self._keys)


def ask_parties(grid: Grid, plan: Plan, question: str, waiting: Waiting) -> dict[str, Any]:
    """One secure round with all parties: {"total", "parties"}, or {"failed", "refusals"} with the reasons.

    The plan says how many parties there are. Where more are connected, those that refuse stay out.
    """
    coordinator = _Asking(
        grid, plan, question=question, identity=None, malicious=False, sparse=False, waiting=waiting
    )
    count = plan.cohort.uploads
    try:
        nodes = _connected(grid, count, waiting)
        messages = {node: Message(RecordDict(), dst_node_id=node, message_type="train") for node in nodes}
        template = next(iter(messages.values()))
        willing = coordinator.willing(nodes, template, count)
        if len(willing) != count:
            raise RoundFailed(_wrong_number(len(willing), count, len(nodes), len(coordinator.reasons)))
        prepared = coordinator.keys_for(0, willing, template, _nothing_is_drawn)
        if len(prepared.sharers) < count:
            raise RoundFailed(f"{len(prepared.sharers)} of {count} parties took part; nobody was charged")
        secure, _ = coordinator.upload(prepared, messages, {}, waiting.timeout)
        total = plan.mechanism.decode(coordinator.open(secure, None, template, _nothing_is_drawn), round=0)
        return {"total": _packed(total), "parties": len(secure.survivors)}
    except SkelmixError as error:
        reasons = {str(node): reason for node, reason in sorted(coordinator.reasons.items())}
        return {"failed": str(error), "refusals": reasons}


def _wrong_number(willing: int, count: int, connected: int, refusing: int) -> str:
    """Why a question for `count` parties is not asked, when so many agree to answer and so many refuse."""
    if willing > count:
        return f"{willing} parties agree to answer, the question is for {count}: ask it for {willing}"
    if refusing == 0:
        return f"{willing} of {count} parties have answered, the others are silent; nobody was charged"
    text = f"{refusing} of {connected} parties refuse; nobody was charged"
    return text if willing < 2 else f"{text}, and you may ask the other {willing}"


def _nothing_is_drawn(_: int) -> None:
    """All parties answer every question, and each charges it in its own ledger."""


def _connected(grid: Grid, count: int, waiting: Waiting) -> list[int]:
    """The nodes, once there are as many as the plan has parties; `RoundFailed` if they do not come."""
    end = time.monotonic() + waiting.timeout
    while len(nodes := sorted(grid.get_node_ids())) < count:
        if time.monotonic() > end:
            raise RoundFailed(
                f"{len(nodes)} of {count} parties are connected: start the others, then ask again"
            )
        time.sleep(waiting.poll)
    return nodes


def _packed(total: NDArray[np.float64]) -> str:
    return base64.b64encode(np.ascontiguousarray(total, "<f8").tobytes()).decode()


def unpacked(text: str) -> NDArray[np.float64]:
    """The inverse of how a result writes its sum."""
    return np.frombuffer(base64.b64decode(text), "<f8").astype(np.float64)


def print_result(result: dict[str, Any]) -> None:
    text = json.dumps(result)
    for start in range(0, len(text), _LINE):
        print(f"{RESULT}{text[start : start + _LINE]}", flush=True)


def read_result(log: str) -> dict[str, Any] | None:
    """The result in what a run has printed; None where there is none."""
    parts = [line.partition(RESULT)[2].rstrip("\r\n") for line in log.splitlines() if RESULT in line]
    try:
        result: dict[str, Any] = json.loads("".join(parts))
    except ValueError:
        return None
    return result
