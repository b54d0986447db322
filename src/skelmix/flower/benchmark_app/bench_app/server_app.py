"""Half of the plain exchanges, the secure rounds, the other half; wall seconds of each, as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

import skelmix as sk
from skelmix.flower import SecureGrid

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
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
        """Ask all nodes and wait for all answers, looking as often as SecureGrid does (Flower's own
        send_and_receive looks every three seconds)."""
        start = time.monotonic()
        waiting, left = set(grid.push_messages(messages("query"))), 600.0
        while waiting and time.monotonic() - start < left:
            waiting -= {reply.metadata.reply_to_message_id for reply in grid.pull_messages(list(waiting))}
            if waiting:
                time.sleep(poll)
        return time.monotonic() - start

    poll = 0.25
    secure = SecureGrid(grid, plan, poll=poll, phase_timeout=600.0)
    before = [plain() for _ in range(1 + exchanges // 2)][1:]  # the first one installs the app on the nodes
    seconds = []
    for _ in range(rounds):
        start = time.monotonic()
        list(secure.send_and_receive(messages("train"), timeout=600.0))
        seconds.append(time.monotonic() - start)
    after = [plain() for _ in range(exchanges - exchanges // 2)]
    found = {
        "plain": before + after,
        "rounds": seconds,
        "waves": [record.waves for record in secure.history],
        "survivors": [record.survivors for record in secure.history],
    }
    Path(str(settings["out"])).write_text(json.dumps(found))
