"""A secure round on Flower, beside Flower's SecAgg+ and beside plain exchanges.

In process it is compared with Flower's SecAgg+, on a real deployment with plain exchanges.

In process both sides exchange Flower's own messages without its transport, and seconds are processor
seconds of this process, so that other work on the machine does not distort the ratio. On the deployment
they are wall seconds.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from rich.console import Group, RenderableType
from rich.table import Table

import skelmix as sk
from skelmix.flower import SecureGrid, skelmix_mod
from skelmix.studies.fleet import Loopback

RUN = 1
_NODES_A_CORE = 5  # more of them together do not start within Flower's minute
APP = Path(__file__).parent / "flower_app"


class InProcess(Grid):
    """A grid whose nodes are functions: messages are answered when replies are pulled."""

    def __init__(self, nodes: Mapping[int, Callable[[Message], Message]]) -> None:
        self._nodes, self._open, self._count = nodes, dict[str, Message](), 0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            self._count += 1
            message.metadata.__dict__["_message_id"] = str(self._count)  # the transport's part
            message.content = RecordDict(
                {
                    k: ConfigRecord(dict(v)) if isinstance(v, ConfigRecord) else v
                    for k, v in message.content.items()
                }
            )  # nodes do not share records
            self._open[str(self._count)] = message
            ids.append(str(self._count))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        messages = [self._open.pop(name) for name in message_ids if name in self._open]
        return [self._nodes[message.metadata.dst_node_id](message) for message in messages]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def get_node_ids(self) -> Iterable[int]:
        return list(self._nodes)

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return Message(*args, **kwargs)

    def set_run(self, run: Any) -> None:
        """There is one run only."""

    @property
    def run(self) -> Any:
        return SimpleNamespace(run_id=RUN)


@contextmanager
def _identified() -> Iterator[None]:
    """What Flower's processes set before an app runs, and quiet logs."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN, 1
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _context(node: int, states: str = "") -> Context:
    """A node's context; states: a directory in which each node remembers its rounds apart from the others."""
    config: dict[str, str | int | float | bool] = {"skelmix-state": f"{states}/{node}"} if states else {}
    return Context(RUN, node, config, RecordDict(), {})


def _node(app: Callable[[Message, Context], Message], own: Context) -> Callable[[Message], Message]:
    return lambda message: app(message, own)


def _step(arrays: ArrayRecord) -> ArrayRecord:
    return ArrayRecord({name: Array(array.numpy() + np.float32(1e-3)) for name, array in arrays.items()})


def secure_round(n: int, dimension: int, bits: int, rounds: int) -> list[float]:
    """Processor seconds of each of `rounds` rounds, clients and server together.

    The first one advertises keys, too.
    """
    app = ClientApp(mods=[skelmix_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = _step(message.content.array_records["arrays"])
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    plan = sk.plan(
        sk.PrivacyTarget(8.0, 1e-5),
        dimension=dimension,
        bits=bits,
        rounds=rounds + 1,
        cohort=sk.Cohort(n, n, dropout_tolerance=0.1, sampling="none"),
        bound="rdp",
    )
    with TemporaryDirectory() as states:
        contexts = {node: _context(node, states) for node in range(1, n + 1)}
        nodes = {node: _node(app, own) for node, own in contexts.items()}
        grid = SecureGrid(InProcess(nodes), plan)
        arrays = ArrayRecord({"w": Array(np.zeros(dimension, np.float32))})
        seconds = []
        for _ in range(rounds):
            messages = [Message(RecordDict({"arrays": arrays}), node, "train") for node in nodes]
            start = time.process_time()
            replies = list(grid.send_and_receive(messages))
            seconds.append(time.process_time() - start)
            if len(replies) != 1 or grid.history[-1].survivors != n:
                raise RuntimeError(f"the secure round gave no sum: {grid.history[-1]}")
    return seconds


def secaggplus_round(n: int, dimension: int) -> float:
    """Processor seconds of one round of Flower's SecAgg+ (its mod and workflow).

    Full graph, the same threshold.
    """
    from flwr.client.mod import secaggplus_mod
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
    from flwr.compat.common import recorddict_compat as compat
    from flwr.server import LegacyContext, SimpleClientManager
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
    from flwr.server.workflow.secure_aggregation import SecAggPlusWorkflow

    parameters = ndarrays_to_parameters([np.zeros(dimension, np.float32)])

    def fit(message: Message, context: Context) -> Message:
        result = FitRes(
            Status(Code.OK, ""), ndarrays_to_parameters([np.full(dimension, 1e-3, np.float32)]), 1, {}
        )
        return Message(compat.fitres_to_recorddict(result, False), reply_to=message)

    contexts = {node: _context(node) for node in range(1, n + 1)}
    nodes = {
        node: _node(lambda message, own: secaggplus_mod(message, own, fit), own)
        for node, own in contexts.items()
    }
    manager = SimpleClientManager()
    strategy = FedAvg(
        fraction_fit=1.0, min_fit_clients=n, min_available_clients=n, initial_parameters=parameters
    )
    for node in nodes:
        manager.register(SimpleNamespace(node_id=node, cid=str(node)))  # type: ignore[arg-type]
    context = LegacyContext(_context(0), strategy=strategy, client_manager=manager)
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(parameters, True)
    workflow = SecAggPlusWorkflow(1.0, 0.9, max_weight=1.0)
    start = time.process_time()
    workflow(InProcess(nodes), context)
    seconds = time.process_time() - start
    average = context.state.array_records[MAIN_PARAMS_RECORD].to_numpy_ndarrays()[0]
    if not np.allclose(average, 1e-3, atol=1e-4):
        raise RuntimeError("Flower's SecAgg+ did not give the average")
    return seconds


def deployment(nodes: int, rounds: int, *, exchanges: int = 4, timeout: float = 1800.0) -> dict[str, Any]:
    """Wall seconds on Flower's deployment engine, all processes on this machine: rounds and plain exchanges.

    Five nodes per core at a time.

    A plain exchange sends the model to all nodes and gets one back from each, with the same code around it,
    in the same run. `ratio`: the mean round, key advertisement and first key sharing included, over four
    plain exchanges.
    """
    at_once = _NODES_A_CORE * (os.cpu_count() or 1)
    with Loopback(nodes) as fleet:
        out = fleet.directory / "seconds.json"
        fleet.run(
            APP,
            config=f'out="{out}" nodes={nodes} rounds={rounds} exchanges={exchanges} at-once={at_once}',
            timeout=timeout,
        )
        result: dict[str, Any] = json.loads(out.read_text())
    if set(result["survivors"]) != {nodes}:
        raise RuntimeError(f"a secure round gave no sum of all {nodes}: survivors {result['survivors']}")
    plain = statistics.mean(result["plain"])
    return {
        "nodes": nodes,
        **result,
        "round_seconds": statistics.mean(result["rounds"]),
        "later_round_seconds": statistics.median(result["rounds"][1:]),
        "plain_exchange_seconds": plain,
        "ratio": statistics.mean(result["rounds"]) / (4 * plain),
    }


def run(
    n: int = 50, dimension: int = 65_536, bits: int = 8, nodes: tuple[int, ...] = (3,), rounds: int = 5
) -> dict[str, Any]:
    """One in-process comparison, and one deployment for each number of nodes (none: leave it out)."""
    with _identified():
        ours = secure_round(n, dimension, bits, 3)
        theirs = secaggplus_round(n, dimension)
    return {
        "in_process": {
            "participants": n,
            "dimension": dimension,
            "bits": bits,
            "first_round_cpu_seconds": ours[0],
            "later_round_cpu_seconds": statistics.median(ours[1:]),
            "secaggplus_cpu_seconds": theirs,
            "ratio": ours[0] / theirs,
        },
        "deployment": [deployment(count, rounds) for count in nodes],
    }


def table(result: dict[str, Any]) -> RenderableType:
    """The result of `run` for people."""
    inside = result["in_process"]
    first = Table(
        title=f"in process, n = {inside['participants']}, d = {inside['dimension']:,}: processor seconds"
    )
    for column in ("Flower's SecAgg+", "skelmix, first round", "skelmix, later rounds", "ratio"):
        first.add_column(column, justify="right")
    first.add_row(
        f"{inside['secaggplus_cpu_seconds']:.2f}",
        f"{inside['first_round_cpu_seconds']:.2f}",
        f"{inside['later_round_cpu_seconds']:.2f}",
        f"{inside['ratio']:.3f}",
    )
    second = Table(title="on the deployment engine, this machine: wall seconds")
    for column in ("clients", "plain exchange", "mean round", "later rounds", "round / 4 exchanges"):
        second.add_column(column, justify="right")
    for row in result["deployment"]:
        second.add_row(
            str(row["nodes"]),
            f"{row['plain_exchange_seconds']:.1f}",
            f"{row['round_seconds']:.1f}",
            f"{row['later_round_seconds']:.1f}",
            f"{row['ratio']:.2f}",
        )
    return Group(first, second)
