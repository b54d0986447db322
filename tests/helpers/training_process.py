"""Train until the budget ends, in a process of its own; resumes what it finds. For kill tests."""

import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from helpers.federation import clients, network, small_plan
from skelmix.federated.trainer import Trainer

if __name__ == "__main__":
    directory = Path(sys.argv[1])
    torch.set_num_threads(1)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    common: dict[str, Any] = {
        "checkpoint_every": 3,
        "callbacks": [lambda _, record: print(record.round, flush=True)],
    }
    if (directory / "ledger.jsonl").exists():
        trainer = Trainer.resume(directory, model, cross_entropy, clients(), optimizer, **common)
        print("resumed", len(trainer.history), trainer.ledger.charged, flush=True)
    else:
        plan = small_plan("gaussian", rounds=40)
        trainer = Trainer(model, cross_entropy, clients(), plan, optimizer, run_directory=directory, **common)
    trainer.run()
    print("done", trainer.ledger.charged, flush=True)
