"""A node of Flower's held just before its training, and what a server sees of its replies."""

from __future__ import annotations

import atexit
import copy
import shutil
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():  # typer, which Flower loads, uses a name that click deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import flwr.serverapp.strategy  # noqa: F401

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_to_proto
from flwr.supercore.task_identity import TaskIdentity

from helpers import hostile_outcomes
from skelmix.flower import ClientPolicy, make_mod, mod
from skelmix.flower.arrays import difference, only_arrays
from skelmix.flower.records import RECORD, Request
from skelmix.planning import Plan
from skelmix.rounds.context import round_context
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings

NODES = 4
Outcome = Callable[[Message], Any]
View = tuple[Any, ...]
POLICY = ClientPolicy(min_cohort=2, public_metrics=("loss", "accuracy"))


def shape(reply: Message) -> View:
    """What a server sees of a reply but its noise and the values of public metrics."""
    if reply.has_error():
        return "error", reply.error.code, reply.error.reason
    records = {
        name: {key: (type(value).__name__, len(value) if isinstance(value, bytes | str) else 0)
               for key, value in record.items()}
        for name, record in reply.content.items()
    }  # fmt: skip
    return "content", records, recorddict_to_proto(reply.content).ByteSize()


def view(app: ClientApp, message: Message, context: Context) -> View:
    """`shape` of the reply, or of the error by which Flower forwards the text of an exception."""
    try:
        return shape(app(message, context))
    except BaseException as error:
        return "error", type(error).__name__, str(error)


class Node:
    """One node of a round among four, held just before its training: it may be asked again and again."""

    def __init__(self, plan: Plan, arrays: Any, policy: ClientPolicy = POLICY) -> None:
        if isinstance(arrays, dict):
            arrays = ArrayRecord({name: Array(values) for name, values in arrays.items()})
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 7, 1
        self.plan, self.arrays, self.text = plan, arrays, plan.to_json()
        self.outcome: Outcome = hostile_outcomes.honest
        self.app = ClientApp(mods=[make_mod(policy)])
        for register in (self.app.train, self.app.evaluate, self.app.query):
            register()(lambda message, context: self.outcome(message))
        self.states = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, self.states, ignore_errors=True)
        self.contexts = {
            node: Context(7, node, {"skelmix-state": f"{self.states}/{node}"}, RecordDict(), {})
            for node in range(1, NODES + 1)
        }
        server = self._joined()
        self.held = copy.deepcopy(self.contexts[1].state)
        for node in self.contexts:
            masked: Any = self._part(node, "masked", self.mask_requests[node])
            server.masked(masked)
        self.unmask_request = server.close_masked()[1]

    def _joined(self) -> Server:
        keys = [self._part(node, "advertise", b"") for node in self.contexts]
        mechanism = self.plan.mechanism
        context = round_context(self.plan.digest(), 0, 7)
        settings = Settings(
            mechanism.coordinates,
            mechanism.bits,
            2,
            full_graph=True,
            context=context,
            noise=self.plan.removable_noise,
        )
        server = Server(settings, round=0)
        for data in keys:
            server.advertise(data)
        for node, data in server.close_advertise().items():
            server.share(self._part(node, "share", data))
        self.mask_requests = server.close_share()
        return server

    def _message(
        self, parts: dict[str, bytes], kind: str = "train", arrays: ArrayRecord | None = None
    ) -> Message:
        content = RecordDict({"arrays": self.arrays if arrays is None else arrays})
        if parts:
            content[RECORD] = Request(self.plan.digest(), parts, self.text).to_record()
        message = Message(content, dst_node_id=1, message_type=kind)
        message.metadata.__dict__["_message_id"] = "message"
        return message

    def _app_reply(self, node: int, parts: dict[str, bytes]) -> Message:
        return self.app(self._message(parts), self.contexts[node])

    def _part(self, node: int, name: str, data: bytes) -> Any:
        return self._app_reply(node, {name: data}).content[RECORD][name]

    def trained(self, outcome: Outcome, arrays: ArrayRecord | None = None) -> tuple[View, View]:
        """The server's view of the training phase with this outcome, and of the unmasking after it."""
        self.outcome, context = outcome, self.contexts[1]
        shutil.rmtree(f"{self.states}/1", ignore_errors=True)  # the same round, played again
        context.state = copy.deepcopy(self.held)
        masked = view(self.app, self._message({"masked": self.mask_requests[1]}, arrays=arrays), context)
        return masked, view(self.app, self._message({"unmask": self.unmask_request}), context)

    def answered(self, kind: str, outcome: Outcome, arrays: ArrayRecord | None = None) -> View:
        """The view of an evaluation or a query."""
        self.outcome = outcome
        return view(self.app, self._message({}, kind, arrays), self.contexts[1])


def overflowing(arrays: ArrayRecord) -> ArrayRecord:
    """The attack's model: one weight of 3e38, which training doubles where the feature is present."""
    new = {name: array.numpy().copy() for name, array in arrays.items()}
    new["w"].flat[0] = 3e38
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in new.items()})


def trains_on(feature: np.float32) -> Outcome:
    """An ordinary step: the gradient of a linear model on one record is its input times the error."""

    def train(message: Message) -> Message:
        arrays = {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}
        with np.errstate(over="ignore"):
            arrays["w"] = arrays["w"] + np.float32(0.1) * feature * arrays["w"] * np.float32(20)
        record = ArrayRecord({name: Array(np.asarray(values)) for name, values in arrays.items()})
        return Message(RecordDict({"arrays": record, "metrics": MetricRecord({})}), reply_to=message)

    return train


def one_bit_of_each_record(node: Node) -> tuple[float, float]:
    """How many of 32 private bits the server guesses by whether a round is refused."""
    bits = np.random.default_rng(3).integers(0, 2, 32)
    assert {0, 1} <= set(bits.tolist())
    views = (node.trained(trains_on(np.float32(bit)), overflowing(node.arrays)) for bit in bits)
    refused = ["refused-masked" in masked[1][RECORD] for masked, _ in views]
    return float(np.mean(np.array(refused) == bits)), float(bits.mean())


def let_failures_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the fix off: the app's failures go their way, as texts or not at all."""

    def update(content: RecordDict, before: ArrayRecord, dimension: int, clip_norm: float) -> Any:
        _, after = only_arrays(content, "the app's reply")
        with np.errstate(over="ignore"):
            return difference(after, before).astype(np.float32)

    def public_part(message: Message, content: RecordDict, policy: ClientPolicy) -> Message:
        return Message(RecordDict(dict(content.metric_records.items())), reply_to=message)

    monkeypatch.setattr(mod, "call_app", lambda call, message, context: call(message, context).content)
    monkeypatch.setattr(mod, "update_vector", update)
    monkeypatch.setattr(mod, "encoded_or", lambda zero, encode: encode())
    monkeypatch.setattr(mod, "_public_part", public_part)
