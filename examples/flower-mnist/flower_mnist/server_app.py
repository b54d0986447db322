"""The server: stock FedAvg. The plan and `SecureGrid(grid, plan)` are all that privacy asks of it."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import skelmix as sk
from flower_mnist.task import accuracy, network, test_data
from skelmix.flower import SecureGrid, dimension

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    clients, rounds = int(settings["num-clients"]), int(settings["num-rounds"])
    arrays = ArrayRecord(network().state_dict())
    plan = sk.plan(
        sk.PrivacyTarget(float(settings["epsilon"]), float(settings["delta"])),
        dimension=dimension(arrays),
        clip_norm=float(settings["clip-norm"]),
        bits=int(settings["bits"]),
        bound=str(settings["bound"]),
        rounds=rounds,
        cohort=sk.Cohort.everyone(clients, dropout_tolerance=float(settings["dropout-tolerance"])),
    )
    print(plan)
    images, labels = test_data()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model = network()
        model.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": accuracy(model, images, labels)})

    secure = SecureGrid(grid, plan, ledger=str(settings["ledger"]) or None)
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=clients, min_train_nodes=clients)
    strategy.start(secure, arrays, num_rounds=rounds, evaluate_fn=evaluate)
    for record in secure.history:
        print(record)
