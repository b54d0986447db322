"""Half of the plain exchanges, the secure rounds, the other half; wall seconds of each, as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

import skelmix as sk
from skelmix.flower import SecureGrid

app = ServerApp()
POLL = 0.25  # seconds


class Paced:
    """A grid with at most `at_once` messages on their way.

    Flower gives a ClientApp a minute from its message to its first heartbeat, and gives it up then: on one
    machine more of them than its cores can start in that time would never answer.
    """

    def __init__(self, grid: Grid, at_once: int) -> None:
        self._grid, self._at_once, self._held = grid, at_once, dict[str, Message]()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        left, ids = list(messages), list[str]()
        while left:
            now, left = left[: self._at_once], left[self._at_once :]
            group = list(self._grid.push_messages(now))
            ids += group
            if left:
                self._held |= _answers(self._grid, group)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        wanted = list(message_ids)
        held = [self._held.pop(name) for name in wanted if name in self._held]
        here = {reply.metadata.reply_to_message_id for reply in held}
        return held + list(self._grid.pull_messages([name for name in wanted if name not in here]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


def _answers(grid: Any, ids: list[str]) -> dict[str, Message]:
    """All answers, looking as often as SecureGrid does.

    (Flower's own send_and_receive looks every three seconds.)
    """
    end, answers = time.monotonic() + 600.0, dict[str, Message]()
    while len(answers) < len(ids) and time.monotonic() < end:
        replies = grid.pull_messages([name for name in ids if name not in answers])
        answers |= {reply.metadata.reply_to_message_id: reply for reply in replies}
        if len(answers) < len(ids):
            time.sleep(POLL)
    return answers


@app.main()
def main(flower: Grid, context: Context) -> None:
    settings = context.run_config
    grid: Any = Paced(flower, int(settings["at-once"]))
    nodes, rounds, exchanges = (int(settings[name]) for name in ("nodes", "rounds", "exchanges"))
    arrays = ArrayRecord({"w": Array(np.zeros(int(settings["dimension"]), np.float32))})
    plan = sk.plan(
        sk.PrivacyTarget(8.0, 1e-5),
        dimension=int(settings["dimension"]),
        bits=int(settings["bits"]),
        rounds=rounds,
        cohort=sk.Cohort(nodes, nodes, dropout_tolerance=0.1, sampling="none"),
        bound="rdp",
    )
    while len(there := list(grid.get_node_ids())) < nodes:
        time.sleep(0.2)

    def messages(kind: str) -> list[Message]:
        return [
            Message(RecordDict({"arrays": arrays}), dst_node_id=node, message_type=kind) for node in there
        ]

    def plain() -> float:
        """Ask all nodes and wait for all answers."""
        start = time.monotonic()
        _answers(grid, grid.push_messages(messages("query")))
        return time.monotonic() - start

    secure = SecureGrid(grid, plan, poll=POLL, phase_timeout=600.0)
    before = [plain() for _ in range(1 + exchanges // 2)][1:]  # the first one installs the app on the nodes
    seconds = []
    for _ in range(rounds):
        start = time.monotonic()
        list(secure.send_and_receive(messages("train"), timeout=600.0))
        seconds.append(time.monotonic() - start)
    after = [plain() for _ in range(exchanges - exchanges // 2)]
    result = {
        "plain": before + after,
        "rounds": seconds,
        "waves": [record.waves for record in secure.history],
        "survivors": [record.survivors for record in secure.history],
    }
    Path(str(settings["out"])).write_text(json.dumps(result))
