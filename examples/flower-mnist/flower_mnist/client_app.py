"""The client: an ordinary Flower ClientApp. `mods=[skelmix_mod]` is all that privacy asks of it."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from skelmix.flower import skelmix_mod

app = ClientApp(mods=[skelmix_mod])


@app.train()
def fit(message: Message, context: Context) -> Message:
    # Flower starts a process for each message: load PyTorch only in those that train
    from flower_mnist.task import network, train, training_data

    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = training_data(
        int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    )
    loss = train(
        model,
        images,
        labels,
        int(context.run_config["local-epochs"]),
        float(context.run_config["learning-rate"]),
    )
    metrics = MetricRecord({"num-examples": len(images), "loss": loss})  # these stay on the node
    return Message(
        RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message
    )
