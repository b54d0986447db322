"""Silos on the in-process fleet: a plan, records, and an app whose train function calls `silo_update`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

import skelmix as sk
from skelmix.flower import ClientPolicy, SecureGrid, make_mod, silo_update

NODES = range(1, 5)
RECORDS = 50  # of each silo
Train = Callable[[Message, Context], RecordDict]
QUICK: dict[str, Any] = {"phase_timeout": 5.0, "patience": 0.2, "poll": 0.01}


def network() -> nn.Module:
    """A frozen layer between two that train, whose names are not in the order of the model."""
    torch.manual_seed(1)
    model = nn.Sequential()
    model.add_module("z", nn.Linear(4, 3))
    model.add_module("middle", nn.Linear(3, 3))
    model.add_module("a", nn.Linear(3, 2))
    model.get_submodule("middle").requires_grad_(False)
    return model


def data_of(node: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(node)
    return torch.randn(RECORDS, 4, generator=source), torch.randint(0, 2, (RECORDS,), generator=source)


def arrays() -> ArrayRecord:
    return ArrayRecord(network().state_dict())


DIMENSION = 15 + 12 + 8


@lru_cache
def silo_plan(
    unit: str = "record",
    rounds: int = 3,
    batch: int = 100,
    epsilon: float = 8.0,
    mechanism: str = "smm",
    clip: str = "fixed",
) -> sk.Plan:
    """Four silos of 50 records, of which half are drawn in a round."""
    return sk.plan(
        sk.PrivacyTarget(epsilon, 1e-5),
        dimension=DIMENSION,
        cohort=sk.Silos(count=4, records=200, batch=batch, dropout_tolerance=0.5, unit=unit),
        rounds=rounds,
        clip=clip,
        bits=20,
        mechanism=mechanism,
        bound="rdp",
        scale=1000.0,
    )


def honest(message: Message, context: Context) -> RecordDict:
    """What an app should do."""
    return RecordDict(
        {"update": silo_update(network(), nn.functional.cross_entropy, *data_of(context.node_id))}
    )


def use(fleet: Any, train: Train = honest, policy: ClientPolicy | None = None) -> None:
    """Give every node of the fleet this train function."""
    for node in fleet.apps:
        app = ClientApp(mods=[make_mod(policy or ClientPolicy(min_cohort=2))])

        @app.train()
        def fit(message: Message, context: Context) -> Message:
            fleet.calls.append(context.node_id)
            return Message(train(message, context), reply_to=message)

        fleet.apps[node] = app


def train(grid: SecureGrid, model: ArrayRecord) -> list[Message]:
    """One round of all nodes, as a strategy asks for it."""
    content = RecordDict({"arrays": model})
    messages = [Message(content, dst_node_id=n, message_type="train") for n in NODES]
    return list(grid.send_and_receive(messages))


def one_round(nodes: Any, plan: sk.Plan, model: ArrayRecord | None = None) -> Message:
    """The reply of the first round of a plan, which is opened."""
    (reply,) = train(SecureGrid(nodes, plan, **QUICK), model or arrays())
    return reply
