"""Stock FedAvg over a SecureGrid; writes the plan, the model after each round, and the history."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import skelmix as sk
from skelmix.flower import SecureGrid, dimension

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    out = Path(str(context.run_config["out"]))
    arrays = ArrayRecord({"w": Array(np.zeros((30, 30), np.float32)), "b": Array(np.ones(7, np.float32))})
    plan = sk.plan(
        sk.PrivacyTarget(8.0, 1e-5),
        dimension=dimension(arrays),
        bits=16,
        rounds=2,
        cohort=sk.Cohort(3, 3, dropout_tolerance=0.34, sampling="none"),
        mechanism="skellam",
        bound="paper",
        scale=1000.0,
    )
    (out / "plan.json").write_text(plan.to_json())

    def keep(server_round: int, arrays: ArrayRecord) -> None:
        np.savez(out / f"model-{server_round}.npz", **{name: array.numpy() for name, array in arrays.items()})

    secure = SecureGrid(grid, plan, ledger=out / "ledger.jsonl", patience=3.0)
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=3, min_train_nodes=3)
    strategy.start(secure, arrays, num_rounds=2, evaluate_fn=keep)
    (out / "history.json").write_text(json.dumps([asdict(record) for record in secure.history]))
