"""A silo: an ordinary Flower ClientApp, whose train function replies with `silo_update`."""

from __future__ import annotations

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from skelmix.flower import silo_update, skelmix_mod

app = ClientApp(mods=[skelmix_mod])


@app.train()
def fit(message: Message, context: Context) -> Message:
    # Flower starts a process for each message: load PyTorch only in those that train
    from torch.nn.functional import cross_entropy

    from flower_silos.task import network, training_data

    images, labels = training_data(
        int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    )
    rate = float(context.run_config["learning-rate"])
    update = silo_update(network(), cross_entropy, images, labels, learning_rate=rate)
    return Message(RecordDict({"update": update}), reply_to=message)
