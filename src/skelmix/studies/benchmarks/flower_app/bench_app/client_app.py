"""A train function behind the mod, and a query function that does the same in the clear: a plain exchange."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from skelmix.flower import skelmix_mod

app = ClientApp()


def step(message: Message, context: Context) -> Message:
    arrays = {
        name: Array(array.numpy() + np.float32(1e-3))
        for name, array in message.content.array_records["arrays"].items()
    }
    content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 1})})
    return Message(content, reply_to=message)


app.train(mods=[skelmix_mod])(step)
app.query()(step)
