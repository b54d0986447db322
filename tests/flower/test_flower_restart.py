"""A SuperNode that is started anew within a run repeats no round, and two servers do not share a ledger."""

from __future__ import annotations

import pytest
from flwr.app import Message, RecordDict

from skelmix.errors import CorruptState, PolicyViolation
from skelmix.flower import SecureGrid
from skelmix.rounds.contributions import ContributionStore

QUICK = {"phase_timeout": 5.0, "patience": 0.2, "poll": 0.01}
NODES = range(1, 5)


def train(grid, arrays):
    content = RecordDict({"arrays": arrays})
    return grid.send_and_receive([Message(content, dst_node_id=n, message_type="train") for n in NODES])


def restart(nodes, only=NODES):
    """What a SuperNode loses with its process: all that was in memory."""
    for node in only:
        nodes.contexts[node].state = RecordDict()


def test_restarted_nodes_answer_no_round_twice(fleet, plan, arrays):
    nodes = fleet()
    assert train(SecureGrid(nodes, plan, **QUICK), arrays)
    restart(nodes)
    forgetful = SecureGrid(nodes, plan, **QUICK)  # its ledger begins at round 0 again
    assert train(forgetful, arrays) == []
    assert "round 0 was asked for" in forgetful.history[0].reason
    assert sorted(nodes.calls) == list(NODES), "nobody trained a second time"


def test_control_nodes_without_a_record_would_answer_again(fleet, plan, arrays, monkeypatch):
    monkeypatch.setattr(ContributionStore, "_write", lambda *_: None)
    nodes = fleet()
    assert train(SecureGrid(nodes, plan, **QUICK), arrays)
    restart(nodes)
    assert train(SecureGrid(nodes, plan, **QUICK), arrays)
    assert sorted(nodes.calls) == sorted([*NODES, *NODES])


def test_a_restarted_node_goes_on_with_later_rounds(fleet, planned, arrays):
    """It advertises its new keys with the unmasking of a round, and is in the one after the next."""
    nodes = fleet()
    grid = SecureGrid(nodes, planned(rounds=4), **QUICK)
    assert train(grid, arrays)
    restart(nodes, only=[2])
    assert all(train(grid, arrays) for _ in range(3)), "the others are enough meanwhile"
    assert [record.survivors for record in grid.history] == [4, 3, 3, 4]
    assert nodes.calls.count(2) == 2


def test_a_restarted_node_keeps_to_the_plan_of_the_run(fleet, plan, planned, arrays):
    nodes = fleet()
    assert train(SecureGrid(nodes, plan, **QUICK), arrays)
    restart(nodes)
    with pytest.raises(PolicyViolation, match="changed the plan in the middle"):
        train(SecureGrid(nodes, planned(rounds=2), **QUICK), arrays)


def test_the_place_of_the_record_is_the_operators_choice(fleet, plan, arrays, tmp_path):
    nodes = fleet()
    for node, context in nodes.contexts.items():
        context.node_config["skelmix-state"] = str(tmp_path / f"node-{node}")
    assert train(SecureGrid(nodes, plan, **QUICK), arrays)
    for node in NODES:
        assert ContributionStore(tmp_path / f"node-{node}", run=7).read().last_round == 0
    assert not (tmp_path / "state").exists()


def test_nodes_that_share_a_record_count_as_one(fleet, plan, arrays, tmp_path):
    """Two SuperNodes with one node-config on one machine: the second is taken for the first, started anew."""
    nodes = fleet()
    for node in (1, 2):
        nodes.contexts[node].node_config["skelmix-state"] = str(tmp_path / "shared")
    grid = SecureGrid(nodes, plan, **QUICK)
    assert train(grid, arrays)
    assert grid.history[0].survivors == 3
    assert len(set(nodes.calls) & {1, 2}) == 1


def test_a_second_server_with_the_same_ledger_fails_at_once(fleet, plan, arrays, tmp_path):
    path = tmp_path / "ledger.jsonl"
    first = SecureGrid(fleet(), plan, ledger=path, **QUICK)
    with pytest.raises(CorruptState, match="in use"):
        SecureGrid(fleet(), plan, ledger=path, **QUICK)
    assert train(first, arrays)
    first.close()
    second = SecureGrid(fleet(), plan, ledger=path, **QUICK)
    assert second.ledger.charged == 1
    second.close()
