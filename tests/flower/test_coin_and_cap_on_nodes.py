"""A node's own coin and cap: they change the vector, and nothing that anyone else can see."""

from __future__ import annotations

import time

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict

import skelmix as sk
from helpers.server_view import Node
from skelmix.errors import PolicyViolation
from skelmix.flower import ClientPolicy, SecureGrid, mod
from skelmix.mechanisms.mechanism import IntegerMechanism

QUICK = {"phase_timeout": 5.0, "patience": 0.2, "poll": 0.01}
NODES = range(1, 5)


def cohort(**options):
    return sk.Cohort(4, 4, dropout_tolerance=0.5, sampling="none", **options)


def train(grid, arrays):
    content = RecordDict({"arrays": arrays})
    return grid.send_and_receive([Message(content, dst_node_id=n, message_type="train") for n in NODES])


@pytest.fixture
def sent(monkeypatch):
    """By round, how many nodes encoded a vector that is not zero."""
    counts: dict[int, int] = {}
    encode = IntegerMechanism.encode

    def watched(self, vectors, *, round, **options):
        counts[round] = counts.get(round, 0) + int(np.any(vectors))
        return encode(self, vectors, round=round, **options)

    monkeypatch.setattr(IntegerMechanism, "encode", watched)
    return counts


def test_at_the_cap_nodes_train_and_send_zero_also_after_a_restart(fleet, planned, arrays, sent):
    nodes = fleet()
    grid = SecureGrid(nodes, planned(cohort=cohort(max_participations=2), rounds=8), **QUICK)
    assert train(grid, arrays)
    assert train(grid, arrays)
    for node in NODES:
        nodes.contexts[node].state = RecordDict()  # what a SuperNode loses with its process
    for _ in range(6):
        train(grid, arrays)
    opened = [record.round for record in grid.history if record.survivors]
    later = [number for number in sent if number > 1]
    assert (sent[0], sent[1]) == (4, 4)
    assert later
    assert set(later) <= set(opened)
    assert all(sent[number] == 0 for number in later)
    assert len(nodes.calls) == 8 + 4 * len(later), "the app trains, whatever the cap says"


def test_a_lost_state_directory_does_not_reset_a_running_nodes_count(fleet, planned, arrays, sent, tmp_path):
    nodes = fleet()
    for node in NODES:
        nodes.contexts[node].node_config["skelmix-state"] = str(tmp_path / f"node-{node}")
    grid = SecureGrid(nodes, planned(cohort=cohort(max_participations=1), rounds=3), **QUICK)
    assert train(grid, arrays)
    for path in tmp_path.glob("node-*/run-*.json"):
        path.unlink()
    assert train(grid, arrays)
    assert (sent[0], sent[1]) == (4, 0)


def test_tails_send_zero_and_heads_the_update(fleet, planned, arrays, sent, monkeypatch):
    tosses = iter([True, False, False, True] + [False] * 4)
    monkeypatch.setattr(mod, "sends_vector", lambda *_: next(tosses))
    nodes = fleet()
    grid = SecureGrid(nodes, planned(cohort=cohort(contribute=0.5)), **QUICK)
    assert train(grid, arrays)
    assert train(grid, arrays), "a round in which nobody contributes opens like any other"
    assert sent == {0: 2, 1: 0}
    assert len(nodes.calls) == 8


def test_the_coin_comes_from_the_plan_and_the_system(fleet, planned, arrays, monkeypatch):
    asked = []
    monkeypatch.setattr(mod, "sends_vector", lambda *a: asked.append(a) or True)
    grid = SecureGrid(fleet(), planned(cohort=cohort(contribute=0.25, max_participations=2)), **QUICK)
    assert train(grid, arrays)
    assert {(c.contribute, c.max_participations, spent) for c, spent, _ in asked} == {(0.25, 2, 1)}
    assert all(entropy is mod.system_entropy() for _, _, entropy in asked)


class Stopwatch:
    """A node whose training takes some milliseconds, timed with the coin on either side.

    Processor time, not the clock's: a busy machine must not decide the test.
    """

    def __init__(self, plan, arrays, monkeypatch):
        self.calls = 0
        self.node = Node(plan, arrays)
        self.monkeypatch = monkeypatch

    def _outcome(self, message):
        self.calls += 1
        until = time.process_time() + 0.02
        while time.process_time() < until:
            pass
        trained = {name: array.numpy() * 2 for name, array in message.content["arrays"].items()}
        record = ArrayRecord({name: Array(np.asarray(values)) for name, values in trained.items()})
        return Message(RecordDict({"arrays": record}), reply_to=message)

    def answer(self, heads):
        """(what the server sees, seconds)."""
        self.monkeypatch.setattr(mod, "sends_vector", lambda *_: heads)
        start = time.process_time()
        view = self.node.trained(self._outcome)
        return view, time.process_time() - start

    def ratio(self):
        """Fastest answer at tails over the fastest at heads, asked in turns."""
        seconds = [(self.answer(True)[1], self.answer(False)[1]) for _ in range(15)]
        return min(tails for _, tails in seconds) / min(heads for heads, _ in seconds)


@pytest.fixture
def stopwatch(planned, arrays, monkeypatch):
    return Stopwatch(planned(cohort=cohort(contribute=0.5)), arrays, monkeypatch)


def test_messages_work_and_time_do_not_depend_on_the_coin(stopwatch, sent):
    assert stopwatch.answer(True)[0] == stopwatch.answer(False)[0]
    assert stopwatch.calls == 2
    assert sent == {0: 1}, "only at heads is the vector not zero"
    assert 0.8 < stopwatch.ratio() < 1.25


def test_control_a_node_that_skips_training_at_tails_is_noticed(stopwatch, monkeypatch):
    call_app = mod.call_app

    def lazy(*arguments):
        return call_app(*arguments) if mod.sends_vector() else RecordDict()

    monkeypatch.setattr(mod, "call_app", lazy)
    assert not 0.8 < stopwatch.ratio() < 1.25


def test_a_node_may_demand_a_cap_and_a_coin(planned):
    free = planned()
    both = planned(cohort=cohort(contribute=0.25, max_participations=2))
    for policy, reason in [
        (ClientPolicy(max_participations=2), r"could ask for 3 contributions.*allows 2"),
        (ClientPolicy(max_contribute=0.25), r"probability 1, it allows 0.25"),
    ]:
        with pytest.raises(PolicyViolation, match=reason):
            policy.check_plan(free)
        policy.check_plan(both)
    ClientPolicy(max_participations=3).check_plan(free)  # it has three rounds
    with pytest.raises(PolicyViolation, match="could ask for 2 contributions"):
        ClientPolicy(max_participations=1).check_plan(both)


def test_the_operator_may_narrow_cap_and_coin_and_not_widen_them():
    policy = ClientPolicy().narrowed({"skelmix-max-participations": "8", "skelmix-max-contribute": 0.1})
    assert (policy.max_participations, policy.max_contribute) == (8, 0.1)
    policy = policy.narrowed({"skelmix-max-participations": 20, "skelmix-max-contribute": 0.5})
    assert (policy.max_participations, policy.max_contribute) == (8, 0.1)
    for config in ({"skelmix-max-participations": 0}, {"skelmix-max-contribute": -1}):
        with pytest.raises(sk.errors.InvalidInput):
            ClientPolicy().narrowed(config)
