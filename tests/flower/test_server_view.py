"""A server that chooses the model learns nothing from how training on a node ends."""

from __future__ import annotations

import copy
import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_to_proto

from helpers import hostile_outcomes
from skelmix.flower import ClientPolicy, make_mod, mod
from skelmix.flower.app_results import update_vector
from skelmix.flower.arrays import difference, only_arrays
from skelmix.flower.records import RECORD, Request, plan_digest
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings

CASES = 1000
NODES = 4
POLICY = ClientPolicy(min_cohort=2, public_metrics=("loss", "accuracy"))


def shape(reply):
    """What a server sees of a reply but its noise and the values of public metrics."""
    if reply.has_error():
        return "error", reply.error.code, reply.error.reason
    records = {
        name: {key: (type(value).__name__, len(value) if isinstance(value, bytes | str) else 0)
               for key, value in record.items()}
        for name, record in reply.content.items()
    }  # fmt: skip
    return "content", records, recorddict_to_proto(reply.content).ByteSize()


def view(app, message, context):
    """`shape` of the reply, or of the error by which Flower forwards the text of an exception."""
    try:
        return shape(app(message, context))
    except BaseException as error:
        return "error", type(error).__name__, str(error)


class Node:
    """One node of a round among four, held just before its training: it may be asked again and again."""

    def __init__(self, plan, arrays, policy=POLICY):
        self.plan, self.arrays, self.text = plan, arrays, plan.to_json()
        self.outcome = hostile_outcomes.honest
        self.app = ClientApp(mods=[make_mod(policy)])
        for register in (self.app.train, self.app.evaluate, self.app.query):
            register()(lambda message, context: self.outcome(message))
        self.contexts = {node: Context(7, node, {}, RecordDict(), {}) for node in range(1, NODES + 1)}
        server = self._joined()
        self.held = copy.deepcopy(self.contexts[1].state)
        for node in self.contexts:
            reply = self._app_reply(node, {"masked": self.mask_requests[node]})
            server.masked(reply.content[RECORD]["masked"])
        self.unmask_request = server.close_masked()[1]

    def _joined(self):
        keys = [self._part(node, "advertise", b"") for node in self.contexts]
        mechanism = self.plan.mechanism
        server = Server(Settings(mechanism.padded_dimension, mechanism.bits, 2, full_graph=True), round=0)
        for data in keys:
            server.advertise(data)
        for node, data in server.close_advertise().items():
            server.share(self._part(node, "share", data))
        self.mask_requests = server.close_share()
        return server

    def _message(self, parts, kind="train", arrays=None):
        content = RecordDict({"arrays": self.arrays if arrays is None else arrays})
        if parts:
            content[RECORD] = Request(plan_digest(self.text), parts, self.text).to_record()
        message = Message(content, dst_node_id=1, message_type=kind)
        message.metadata.__dict__["_message_id"] = "message"
        return message

    def _app_reply(self, node, parts):
        return self.app(self._message(parts), self.contexts[node])

    def _part(self, node, name, data):
        return self._app_reply(node, {name: data}).content[RECORD][name]

    def trained(self, outcome, arrays=None):
        """The server's view of the training phase with this outcome, and of the unmasking after it."""
        self.outcome, context = outcome, self.contexts[1]
        context.state = copy.deepcopy(self.held)
        masked = view(self.app, self._message({"masked": self.mask_requests[1]}, arrays=arrays), context)
        return masked, view(self.app, self._message({"unmask": self.unmask_request}), context)

    def answered(self, kind, outcome, arrays=None):
        """The view of an evaluation or a query."""
        self.outcome = outcome
        return view(self.app, self._message({}, kind, arrays), self.contexts[1])


@pytest.fixture
def node(plan, arrays, caplog):
    logging.getLogger("flwr.skelmix").setLevel(logging.CRITICAL)  # a thousand tracebacks
    yield Node(plan, arrays)
    logging.getLogger("flwr.skelmix").setLevel(logging.NOTSET)


@pytest.fixture
def switched_off(monkeypatch):
    """The node as it would be without the fix: the app's failures go their way."""

    def update(content, before, dimension, clip_norm):
        _, after = only_arrays(content, "the app's reply")
        return difference(after, before).astype(np.float32)

    def public_part(message, content, policy):
        return Message(RecordDict(dict(content.metric_records.items())), reply_to=message)

    monkeypatch.setattr(mod, "call_app", lambda call, message, context: call(message, context).content)
    monkeypatch.setattr(mod, "update_vector", update)
    monkeypatch.setattr(mod, "_public_part", public_part)


def test_a_thousand_hostile_outcomes_look_like_an_honest_zero_update(node, arrays):
    honest = node.trained(hostile_outcomes.honest)
    assert honest[0][0] == "content"
    assert set(honest[0][1]) == {RECORD, "metrics"}
    assert "unmask" in honest[1][1][RECORD]
    for case, (rng, outcome) in enumerate(hostile_outcomes.outcomes(CASES)):
        assert node.trained(outcome, hostile_outcomes.model(arrays, rng)) == honest, case


@pytest.mark.parametrize("kind", ["evaluate", "query"])
def test_evaluation_and_queries_are_answered_alike_whatever_happens(node, arrays, kind):
    honest = node.answered(kind, hostile_outcomes.honest)
    assert set(honest[1]) == {"metrics"}
    assert set(honest[1]["metrics"]) == {"num-examples", "loss", "accuracy"}
    for case, (rng, outcome) in enumerate(hostile_outcomes.outcomes(CASES // 4)):
        assert node.answered(kind, outcome, hostile_outcomes.model(arrays, rng)) == honest, case


def test_without_the_fix_the_same_thousand_tell_themselves_apart(node, arrays, switched_off):
    honest = node.trained(hostile_outcomes.honest)
    cases = list(hostile_outcomes.outcomes(200))
    different = [node.trained(outcome) != honest for _, outcome in cases]
    assert np.mean(different) > 0.5
    honest = node.answered("evaluate", hostile_outcomes.honest)
    assert np.mean([node.answered("evaluate", outcome) != honest for _, outcome in cases]) > 0.5


def overflowing(arrays):
    """The attack's model: one weight of 3e38, which training doubles where the feature is present."""
    new = {name: array.numpy().copy() for name, array in arrays.items()}
    new["w"].flat[0] = 3e38
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in new.items()})


def trains_on(feature):
    """An ordinary step: the gradient of a linear model on one record is its input times the error."""

    def train(message):
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        with np.errstate(over="ignore"):
            arrays["w"] = arrays["w"] + np.float32(0.1) * feature * arrays["w"] * np.float32(20)
        record = ArrayRecord({name: Array(np.asarray(values)) for name, values in arrays.items()})
        return Message(RecordDict({"arrays": record, "metrics": MetricRecord({})}), reply_to=message)

    return train


def one_bit_of_each_record(node, arrays):
    """How many of 32 private bits the server guesses by whether a round is refused."""
    bits = np.random.default_rng(3).integers(0, 2, 32)
    assert {0, 1} <= set(bits.tolist())
    refused = ["refused-masked" in node.trained(trains_on(np.float32(bit)), overflowing(arrays))[0][1][RECORD]
               for bit in bits]  # fmt: skip
    return float(np.mean(np.array(refused) == bits)), bits.mean()


def test_the_overflow_attack_reads_no_bit(node, arrays):
    guessed, ones = one_bit_of_each_record(node, arrays)
    assert guessed == 1 - ones, "no round was refused: the guess is 0 for everyone"


def test_without_the_fix_the_overflow_attack_reads_every_bit(node, arrays, switched_off):
    guessed, _ = one_bit_of_each_record(node, arrays)
    assert guessed == 1.0


@pytest.mark.parametrize("size", [1e-3, 2.0, 1e6, 3e38, 1e300])
def test_long_updates_are_clipped_and_keep_their_direction(size):
    rng = np.random.default_rng(0)
    direction = rng.normal(size=8)
    direction /= np.linalg.norm(direction)
    before, after = ArrayRecord([np.zeros(8)]), ArrayRecord([size * direction])
    vector = update_vector(RecordDict({"arrays": after}), before, 8, 1.0)
    assert vector.dtype == np.float32
    np.testing.assert_allclose(vector, min(size, 1.0) * direction, rtol=1e-5)


def test_metrics_that_are_public_keep_their_names_and_sizes(node):
    def reply(message):
        metrics = MetricRecord({"loss": 2**40, "secret": 1.0})
        return Message(RecordDict({"any name": metrics}), reply_to=message)

    node.outcome = reply
    found = node.app(node._message({}, "evaluate"), node.contexts[1]).content["metrics"]
    assert dict(found) == {"loss": float(2**40), "accuracy": 0.0, "num-examples": 1.0}


def test_what_happened_is_in_the_nodes_own_log(plan, arrays, caplog):
    node = Node(plan, arrays)

    def fails(message):
        raise ValueError("a text about the data")

    caplog.clear()
    assert "a text about the data" not in str(node.trained(fails))
    assert "a text about the data" in caplog.text


def test_the_operator_can_still_stop_a_node(node):
    """What the keyboard or Flower's handler of signals raises is no outcome of training."""

    def interrupted(message):
        raise KeyboardInterrupt

    flower = {"__name__": "flwr.supercore.exit.exit"}
    exec("def flwr_exit():\n    raise SystemExit(0)", flower)  # the real one ends this process, too

    def terminated(message):
        flower["flwr_exit"]()

    assert node.trained(interrupted)[0][1] == "KeyboardInterrupt"
    assert node.trained(terminated)[0][1] == "SystemExit"
