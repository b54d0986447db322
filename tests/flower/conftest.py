"""A fleet in one process: real Flower messages, real ClientApps, no transport."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():  # typer, which Flower loads, uses a name that click deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import flwr.serverapp.strategy  # noqa: F401

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

import skelmix as sk
from skelmix.errors import InvalidInput
from skelmix.flower import make_mod
from skelmix.flower.policy import ClientPolicy
from skelmix.flower.records import PARTS, RECORD, Answer, Request
from skelmix.mechanisms.mechanism import IntegerMechanism
from skelmix.rounds.context import round_context
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings

RUN = 7
_fleets = count()


def model() -> ArrayRecord:
    """Five arrays' worth of trouble: unsorted names, a scalar, two widths and an integer counter."""
    rng = np.random.default_rng(1)
    return ArrayRecord(
        {
            "w": Array(rng.normal(size=(4, 3)).astype(np.float32)),
            "b": Array(rng.normal(size=3)),
            "steps": Array(np.array(5, np.int64)),
            "a": Array(np.array(0.5, np.float32)),
        }
    )


DIMENSION = 16


def make_plan(nodes: int = 4, **changes: Any) -> sk.Plan:
    given = {
        "target": sk.PrivacyTarget(8.0, 1e-5),
        "dimension": DIMENSION,
        "cohort": sk.Cohort(expected=nodes, population=nodes, dropout_tolerance=0.5, sampling="none"),
        "rounds": 3,
        "bits": 20,
        "mechanism": "skellam",
        "bound": "paper",
        "scale": 2000.0,
    }
    given.update(changes)
    return sk.plan(given.pop("target"), **given)


def make_app(policy: ClientPolicy, calls: list[int]) -> ClientApp:
    """Each node moves every weight by a step of its own, and reports two metrics."""
    app = ClientApp(mods=[make_mod(policy)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        assert RECORD not in message.content
        calls.append(context.node_id)
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        step = 0.01 * context.node_id
        new = {
            k: Array(np.asarray(v + v.dtype.type(step if v.dtype.kind == "f" else 1)))
            for k, v in arrays.items()
        }
        metrics = MetricRecord({"num-examples": 10 + context.node_id, "loss": float(context.node_id)})
        return Message(RecordDict({"arrays": ArrayRecord(new), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 10 + context.node_id, "loss": float(context.node_id)})
        return Message(
            RecordDict({"metrics": metrics, "arrays": message.content["arrays"]}), reply_to=message
        )

    return app


class Fleet(Grid):
    """A grid that calls the ClientApps when replies are pulled.

    behave(node, parts): "ok"; "silent", the message is lost; "late", it is handled but the reply is never
    seen; "crash", the node answers with an error of Flower's.
    """

    def __init__(self, nodes: Iterable[int], policy: ClientPolicy) -> None:
        self.calls: list[int] = []
        self.apps = {node: make_app(policy, self.calls) for node in nodes}
        fleet = next(_fleets)  # so that the nodes of two fleets are not the same ones, started anew
        self.contexts = {
            node: Context(RUN, node, {"partition-id": node, "fleet": fleet}, RecordDict(), {})
            for node in self.apps
        }
        self.behave: Callable[[int, frozenset[str]], str] = lambda node, parts: "ok"
        self.sent: list[tuple[int, frozenset[str]]] = []
        self.waves = 0
        self._open: dict[str, Message] = {}
        self._count = 0

    def parts(self, message: Message) -> frozenset[str]:
        return frozenset(message.content.config_records.get(RECORD, ConfigRecord())) & frozenset(PARTS)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        self.waves += 1
        for message in messages:
            self._count += 1
            message.metadata.__dict__["_message_id"] = f"message-{self._count}"
            self.sent.append((message.metadata.dst_node_id, self.parts(message)))
            self._open[message.metadata.message_id] = message
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = []
        for message_id in message_ids:
            message = self._open.pop(message_id, None)
            if message is None:
                continue
            node, parts = message.metadata.dst_node_id, self.parts(message)
            manner = self.behave(node, parts)
            if manner == "silent":
                continue
            if manner == "crash":
                replies.append(Message(Error(3, "the ClientApp crashed"), reply_to=message))
                continue
            reply = self.apps[node](message, self.contexts[node])
            if manner != "late":
                replies.append(reply)
        return replies

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def get_node_ids(self) -> Iterable[int]:
        return list(self.apps)

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return Message(*args, **kwargs)

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return SimpleNamespace(run_id=RUN)


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nodes keep on disk stays within the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def identity() -> None:
    """What Flower's own processes do before an app runs."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN, 1


@pytest.fixture(scope="session")
def plan() -> sk.Plan:
    return make_plan()


@pytest.fixture
def planned() -> Callable[..., sk.Plan]:
    return make_plan


@pytest.fixture
def trainer() -> Callable[..., ClientApp]:
    return make_app


@pytest.fixture
def arrays() -> ArrayRecord:
    return model()


@pytest.fixture
def fleet() -> Callable[..., Fleet]:
    def make(nodes: int = 4, policy: ClientPolicy | None = None) -> Fleet:
        return Fleet(range(1, nodes + 1), policy or ClientPolicy(min_cohort=2))

    return make


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, Any]]:
    """(round, shares, vector) of everything that is encoded, in order."""
    seen: list[tuple[int, int, Any]] = []
    original = IntegerMechanism.encode

    def watched(self: Any, vectors: Any, *, round: int, shares: Any = None, entropy: Any = None) -> Any:
        out = original(self, vectors, round=round, shares=shares, entropy=entropy)
        seen.append((round, shares, out.copy()))
        return out

    monkeypatch.setattr(IntegerMechanism, "encode", watched)
    return seen


@pytest.fixture
def hostile(fleet, plan, arrays):
    """A server that speaks to the nodes of a fleet directly."""

    class Hostile:
        def __init__(self, nodes=4, policy=None, the_plan=plan):
            self.fleet = fleet(nodes, policy)
            self.plan, self.text = the_plan, the_plan.to_json()
            self.identity = None

        def ask(self, node, parts, *, text=None, digest=None, raw=None):
            text = self.text if text is None else text
            digest = self.digest_of(text) if digest is None else digest
            request = Request(digest, parts, text).signed_by(self.identity, RUN, node)
            content = RecordDict({"arrays": arrays})
            content[RECORD] = request.to_record() if raw is None else raw
            message = Message(content, dst_node_id=node, message_type="train")
            reply = self.fleet.apps[node](message, self.fleet.contexts[node])
            if reply.has_error():
                return reply.error.reason
            return Answer.from_content(reply.content)

        def digest_of(self, text):
            try:
                return sk.Plan.from_json(text).digest()
            except InvalidInput:
                return self.plan.digest()

        def keys(self, count=4):
            return {
                node: self.ask(node, {"advertise": b""}).parts["advertise"] for node in range(1, count + 1)
            }

        def server(self, keys, *, round=0, threshold=2, **changes):
            settings = Settings(
                self.plan.mechanism.coordinates,
                self.plan.mechanism.bits,
                threshold,
                full_graph=changes.pop("full_graph", True),
                context=round_context(self.plan.digest(), round, RUN),
                noise=changes.pop("noise", self.plan.removable_noise),
                **changes,
            )
            server = Server(settings, round=round)
            for data in keys.values():
                server.advertise(data)
            return server, server.close_advertise()

        def shared(self, keys, **changes):
            server, requests = self.server(keys, **changes)
            for node, data in requests.items():
                server.share(self.ask(node, {"share": data}).parts["share"])
            return server, server.close_share()

    return Hostile
