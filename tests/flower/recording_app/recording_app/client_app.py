"""Moves every weight a little, writes down what is encoded, and hangs where the test wants to kill it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from skelmix.flower import skelmix_mod

app = ClientApp(mods=[skelmix_mod])


@app.train()
def train(message: Message, context: Context) -> Message:
    out, node = Path(str(context.run_config["out"])), int(context.node_config["partition-id"])
    server_round = int(message.content["config"]["server-round"])
    if node == 2 and server_round == 2:
        (out / "kill-me").touch()
        time.sleep(600)
    record_encoded(out / f"round-{server_round}-node-{node}.npy")
    arrays = {
        name: array.numpy() + np.float32(0.01 * (node + 1))
        for name, array in message.content["arrays"].items()
    }
    content = RecordDict(
        {
            "arrays": ArrayRecord({name: Array(array) for name, array in arrays.items()}),
            "metrics": MetricRecord({"num-examples": 10, "loss": 0.5}),
        }
    )
    return Message(content, reply_to=message)


def record_encoded(path: Path) -> None:
    from skelmix.mechanisms.mechanism import IntegerMechanism

    original = IntegerMechanism.encode

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        vector = original(self, *args, **kwargs)
        np.save(path, vector)
        return vector

    IntegerMechanism.encode = watched  # type: ignore[method-assign]
