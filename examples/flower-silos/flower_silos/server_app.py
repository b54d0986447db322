"""The server: stock FedAvg. Privacy needs only a plan for `Silos` and `SecureGrid(grid, plan)`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import skelmix as sk
from flower_silos.task import accuracy, network, test_data
from skelmix.flower import SecureGrid, dimension

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    silos, rounds = int(settings["num-silos"]), int(settings["num-rounds"])
    arrays = ArrayRecord(network().state_dict())
    plan = sk.plan(
        sk.PrivacyTarget(float(settings["epsilon"]), float(settings["delta"])),
        dimension=dimension(arrays),
        clip_norm=float(settings["clip-norm"]),
        bits=int(settings["bits"]),
        bound=str(settings["bound"]),
        rounds=rounds,
        cohort=sk.Silos(
            count=silos,
            records=int(settings["records"]),
            batch=int(settings["batch"]),
            dropout_tolerance=float(settings["dropout-tolerance"]),
        ),
    )
    print(plan)
    images, labels = test_data()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model = network()
        model.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": accuracy(model, images, labels)})

    secure = SecureGrid(grid, plan, ledger=str(settings["ledger"]) or None)
    while len(list(grid.get_node_ids())) < silos:
        time.sleep(1.0)
    # FedAvg waits without end for nodes that it must have: once all have come, a lost silo may cost rounds,
    # which are skipped where too few are left, but does not hold up the run
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=1, min_train_nodes=1)
    accuracies = None
    try:
        result = strategy.start(secure, arrays, num_rounds=rounds, evaluate_fn=evaluate)
        accuracies = [dict(metrics)["accuracy"] for metrics in result.evaluate_metrics_serverapp.values()]
    finally:  # what was charged is said even if the run fails
        say(secure, accuracies, str(settings["result"]))


def say(secure: SecureGrid, accuracies: list[object] | None, file: str) -> None:
    """Print what became of each round, and write it with the privacy report to the file, if one is wanted.

    accuracies: None if the run failed.
    """
    print("accuracy", accuracies)
    for record in secure.history:
        print(record)
    if file:
        written = {
            "report": str(secure.plan.report).splitlines(),
            "finished": accuracies is not None,
            "accuracy": accuracies or [],
            "rounds": [asdict(record) for record in secure.history],
            "charged": secure.ledger.charged,
        }
        Path(file).write_text(json.dumps(written, indent=1, ensure_ascii=False))
