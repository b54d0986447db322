"""A stock FedAvg app becomes private by at most five changed lines, and the changed app works."""

from __future__ import annotations

import difflib

import numpy as np
from flwr.app import Array, ArrayRecord, Context, RecordDict

STOCK_CLIENT = """\
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    arrays = {name: array.numpy() + np.float32(0.01) for name, array in message.content["arrays"].items()}
    content = RecordDict(
        {
            "arrays": ArrayRecord({name: Array(array) for name, array in arrays.items()}),
            "metrics": MetricRecord({"num-examples": 10, "loss": 1.0}),
        }
    )
    return Message(content, reply_to=message)
"""

PRIVATE_CLIENT = STOCK_CLIENT.replace(
    "from flwr.clientapp import ClientApp\n",
    "from flwr.clientapp import ClientApp\nfrom skelmix.flower import skelmix_mod\n",
).replace("ClientApp()", "ClientApp(mods=[skelmix_mod])")

STOCK_SERVER = """\
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid, context):
    arrays = initial_arrays()
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=4)
    context.result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=2)
"""

PRIVATE_SERVER = STOCK_SERVER.replace(
    "from flwr.serverapp.strategy import FedAvg\n",
    "from flwr.serverapp.strategy import FedAvg\nfrom skelmix.flower import SecureGrid\n",
).replace(
    "start(grid=grid,",
    'start(grid=SecureGrid(grid, "plan.json"),',
)


def changed(before: str, after: str) -> int:
    difference = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return sum(line.startswith("+") and not line.startswith("+++") for line in difference)


def test_at_most_five_lines_change(fleet, planned, monkeypatch, tmp_path):
    assert changed(STOCK_CLIENT, PRIVATE_CLIENT) + changed(STOCK_SERVER, PRIVATE_SERVER) == 4

    (tmp_path / "plan.json").write_text(planned(dimension=5).to_json())
    monkeypatch.chdir(tmp_path)
    nodes = fleet()
    client: dict[str, object] = {"np": np}
    exec(PRIVATE_CLIENT, client)
    nodes.apps = dict.fromkeys(nodes.apps, client["app"])
    arrays = ArrayRecord({"w": Array(np.zeros(5, np.float32))})
    server: dict[str, object] = {"initial_arrays": lambda: arrays}
    exec(PRIVATE_SERVER, server)
    context = Context(7, 1, {}, RecordDict(), {})
    server["main"](nodes, context)
    assert np.isfinite(context.result.arrays["w"].numpy()).all()
