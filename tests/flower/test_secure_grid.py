"""The grid with stock strategies: sums, waves, dropouts, budgets."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg

import skelmix as sk
from skelmix.accounting.openings import NoisePieces, units_per_participant
from skelmix.errors import BudgetExhausted, InvalidInput
from skelmix.flower import ClientPolicy, SecureGrid
from skelmix.flower.arrays import difference, dtypes, recast
from skelmix.noise import pieces as noise_pieces
from skelmix.secagg.keys import Identity

QUICK = {"phase_timeout": 0.2, "patience": 0.05, "poll": 0.01}


def train_messages(arrays, nodes, kind="train"):
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"lr": 0.1})})
    return [Message(content, dst_node_id=node, message_type=kind) for node in nodes]


def ideal(plan, encoded, round, count):
    """decode(sum of the first `count` vectors encoded in the round)/expected: what the round must give."""
    vectors = [vector.astype(np.int64) for number, _, vector in encoded if number == round][:count]
    assert len(vectors) == count
    total = sum(vectors) % plan.mechanism.modulus
    return plan.mechanism.decode(total, round=round) / plan.cohort.expected


def assert_moved(reply, arrays, step):
    assert np.abs(difference(reply.content["arrays"], arrays) - step).max() < 1e-6


def test_a_round_gives_the_ideal_sum_over_the_expected_cohort(fleet, plan, arrays, encoded):
    grid = SecureGrid(fleet(), plan)
    (reply,) = grid.send_and_receive(train_messages(arrays, range(1, 5)))
    step = ideal(plan, encoded, 0, 4)
    assert_moved(reply, arrays, step)
    noise = np.sqrt(plan.predicted.mse) / plan.cohort.expected
    assert np.abs(step - 0.025).max() < 8 * noise + 1e-3, "the updates were 0.01, 0.02, 0.03 and 0.04"
    assert reply.content["arrays"]["steps"].numpy() == 5, "integers stay as the server has them"
    assert dict(reply.content["metrics"]) == {"num-examples": 1.0}, "losses and counts do not leave the node"


def test_a_round_of_a_subset_uploads_that_many_words(fleet, planned, arrays, encoded):
    plan = planned(mechanism="smm", bound="rdp", keep=0.5)
    (reply,) = SecureGrid(fleet(), plan).send_and_receive(train_messages(arrays, range(1, 5)))
    assert {vector.shape for _, _, vector in encoded} == {(plan.mechanism.padded_dimension // 2,)}
    assert_moved(reply, arrays, ideal(plan, encoded, 0, 4))


def test_two_waves_a_round_after_the_first(fleet, plan, arrays):
    nodes = fleet()
    grid = SecureGrid(nodes, plan)
    for _ in range(3):
        assert grid.send_and_receive(train_messages(arrays, range(1, 5)))
    assert [record.waves for record in grid.history] == [4, 2, 2]
    assert nodes.waves == 8
    last = [parts for _, parts in nodes.sent[-4:]]
    assert all(parts == {"unmask"} for parts in last), "no keys are shared that the plan has no round for"
    assert nodes.calls == [1, 2, 3, 4] * 3, "the train function runs once per round"


def test_stock_fedavg_runs_unchanged(fleet, plan, arrays, encoded):
    nodes = fleet()
    strategy = FedAvg(min_available_nodes=4)
    result = strategy.start(grid=SecureGrid(nodes, plan), initial_arrays=arrays, num_rounds=3)
    steps = sum(ideal(plan, encoded, round, 4) for round in range(3))
    assert np.abs(difference(recast(result.arrays, dtypes(arrays)), arrays) - steps).max() < 1e-5
    assert result.evaluate_metrics_clientapp[3] == {}, "evaluation went through, without private metrics"


def test_stock_fedadam_runs_unchanged(fleet, plan, arrays):
    arrays.pop("steps")
    result = FedAdam(min_available_nodes=4).start(
        grid=SecureGrid(fleet(), plan), initial_arrays=arrays, num_rounds=2
    )
    assert np.isfinite(difference(result.arrays, arrays)).all()
    assert np.abs(difference(result.arrays, arrays)).max() > 0


@pytest.mark.parametrize("phase", ["advertise", "share", "masked", "unmask"])
@pytest.mark.parametrize("manner", ["silent", "late", "crash"])
def test_a_client_lost_in_any_phase_is_survived(fleet, planned, arrays, encoded, phase, manner):
    plan = planned(mechanism="ddg")
    nodes = fleet()
    nodes.behave = lambda node, parts: manner if node == 2 and phase in parts else "ok"
    grid = SecureGrid(nodes, plan, **QUICK)
    (reply,) = grid.send_and_receive(train_messages(arrays, range(1, 5)), timeout=0.2)
    in_sum = 4 if phase == "unmask" else 3
    vectors = [v for _, _, v in encoded]
    if phase == "masked" and manner == "late":  # node 2 trained, but its vector never arrived
        del encoded[1]
    assert len(vectors) >= in_sum
    assert_moved(reply, arrays, ideal(plan, encoded, 0, in_sum))
    assert grid.history[-1].survivors == in_sum


@pytest.mark.parametrize("phase", ["advertise", "share", "masked", "unmask"])
def test_survivors_make_up_for_the_noise_of_those_they_are_told_to_miss(
    fleet, plan, arrays, encoded, phase, monkeypatch
):
    removed = []
    add_pieces = noise_pieces.add_pieces

    def watched(words, pieces, *, remove=False):
        pieces = list(pieces)
        removed.extend([rate for _, rate in pieces] if remove else [])
        return add_pieces(words, pieces, remove=remove)

    monkeypatch.setattr(noise_pieces, "add_pieces", watched)
    nodes = fleet()
    nodes.behave = lambda node, parts: "silent" if node == 2 and phase in parts else "ok"
    (reply,) = SecureGrid(nodes, plan, **QUICK).send_and_receive(
        train_messages(arrays, range(1, 5)), timeout=0.2
    )
    in_sum, joined = (4 if phase == "unmask" else 3), (3 if phase == "advertise" else 4)
    step = difference(reply.content["arrays"], arrays) - ideal(plan, encoded, 0, in_sum)
    pieces = NoisePieces(joined, plan.cohort.min_survivors(joined), units_per_participant(colluding=0))
    unit = Fraction(plan.noise_in_sum) / pieces.units
    brought = in_sum * (pieces.base + sum(pieces.sizes))
    assert sum(removed) == (brought - pieces.units) * unit, "exactly the planned noise is left"
    if in_sum == joined:  # nobody to make up for: all pieces are removed
        assert np.abs(step).max() < 1e-6
    else:
        assert 1e-3 < np.abs(step).max() < 8 * np.sqrt(plan.predicted.mse) / plan.cohort.expected


def test_the_lost_client_is_back_two_rounds_later(fleet, planned, arrays):
    plan = planned(rounds=5)
    nodes = fleet()
    nodes.behave = lambda node, parts: "silent" if node == 2 and "masked" in parts else "ok"
    grid = SecureGrid(nodes, plan, **QUICK)
    grid.send_and_receive(train_messages(arrays, range(1, 5)), timeout=0.2)
    nodes.behave = lambda node, parts: "ok"
    for _ in range(3):
        assert grid.send_and_receive(train_messages(arrays, range(1, 5)))
    assert [record.survivors for record in grid.history] == [3, 3, 4, 4]
    assert [record.waves for record in grid.history] == [4, 2, 2, 2]


def test_a_restarted_client_joins_with_new_keys(fleet, planned, arrays):
    nodes = fleet()
    grid = SecureGrid(nodes, planned(rounds=5), **QUICK)
    grid.send_and_receive(train_messages(arrays, range(1, 5)))
    nodes.contexts[3].state.clear()
    for _ in range(3):
        assert grid.send_and_receive(train_messages(arrays, range(1, 5)))
    assert [record.survivors for record in grid.history] == [4, 3, 3, 4]


def test_too_few_survivors_skip_the_round_and_keep_the_charge(fleet, plan, arrays, caplog):
    nodes = fleet()
    nodes.behave = lambda node, parts: "silent" if node > 1 and "masked" in parts else "ok"
    grid = SecureGrid(nodes, plan, **QUICK)
    assert grid.send_and_receive(train_messages(arrays, range(1, 5)), timeout=0.2) == []
    assert grid.ledger.charged == 1
    assert not grid.history[0].opened
    assert "skipped" in caplog.text
    assert "charged" in caplog.text
    strategy = FedAvg()
    assert strategy.aggregate_train(1, []) == (None, None), "which keeps the strategy's model"
    nodes.behave = lambda node, parts: "ok"
    assert grid.send_and_receive(train_messages(arrays, range(1, 5)))
    assert grid.history[1].round == 1, "the failed round's number is not used again"


def test_a_round_that_never_asked_anyone_to_train_costs_nothing(fleet, plan, arrays):
    nodes = fleet()
    nodes.behave = lambda node, parts: "silent" if "share" in parts else "ok"
    grid = SecureGrid(nodes, plan, **QUICK)
    assert grid.send_and_receive(train_messages(arrays, range(1, 5))) == []
    assert grid.ledger.charged == 0
    assert nodes.calls == []


def test_more_rounds_than_the_plan_pays_for_are_refused(fleet, planned, arrays, tmp_path):
    plan = planned(rounds=1)
    grid = SecureGrid(fleet(), plan, ledger=tmp_path / "ledger.jsonl")
    assert grid.send_and_receive(train_messages(arrays, range(1, 5)))
    with pytest.raises(BudgetExhausted):
        grid.send_and_receive(train_messages(arrays, range(1, 5)))
    grid.ledger.close()
    again = SecureGrid(fleet(), plan, ledger=tmp_path / "ledger.jsonl")
    with pytest.raises(BudgetExhausted):
        again.send_and_receive(train_messages(arrays, range(1, 5)))
    again.ledger.close()


def test_the_ledger_is_charged_before_anyone_trains(fleet, plan, arrays):
    nodes = fleet()
    grid = SecureGrid(nodes, plan)
    seen = []

    def behave(node, parts):
        if "masked" in parts:
            seen.append(grid.ledger.charged)
        return "ok"

    nodes.behave = behave
    grid.send_and_receive(train_messages(arrays, range(1, 5)))
    assert seen == [1, 1, 1, 1]


def test_noise_is_shared_among_the_roster_or_its_fewest_survivors(fleet, planned, arrays, encoded):
    for mechanism, expected in (("skellam", 3), ("ddg", Fraction(3, 2))):
        plan = planned(mechanism=mechanism)
        SecureGrid(fleet(), plan).send_and_receive(train_messages(arrays, range(1, 4)))
        assert {shares for _, shares, _ in encoded} == {expected}
        assert plan.cohort.min_survivors(3) == 2
        encoded.clear()


def test_evaluation_passes_and_only_public_metrics_leave(fleet, plan, arrays):
    nodes = fleet(policy=ClientPolicy(min_cohort=2, public_metrics=("loss",)))
    grid = SecureGrid(nodes, plan)
    replies = list(grid.send_and_receive(train_messages(arrays, range(1, 5), "evaluate")))
    assert [dict(reply.content["metrics"]) for reply in replies] == [
        {"num-examples": 1, "loss": float(node)} for node in range(1, 5)
    ]
    assert all(not reply.content.array_records for reply in replies)
    (reply,) = grid.send_and_receive(train_messages(arrays, range(1, 5)))
    assert dict(reply.content["metrics"]) == {"num-examples": 1.0, "loss": 2.5}


def test_a_malicious_server_costs_one_more_wave(fleet, trainer, planned, arrays, encoded):
    identities = {node: Identity.generate() for node in range(1, 5)}
    trusted = {node: one.public for node, one in identities.items()}
    plan = planned(cohort=sk.Cohort(4, 4, dropout_tolerance=0.25, sampling="none"))
    nodes = fleet()
    for node, one in identities.items():
        policy = ClientPolicy(min_cohort=2, identity=one, trusted=trusted)
        nodes.apps[node] = trainer(policy, nodes.calls)
    grid = SecureGrid(nodes, plan, malicious=True)
    for round in range(2):
        (reply,) = grid.send_and_receive(train_messages(arrays, range(1, 5)))
        assert_moved(reply, arrays, ideal(plan, encoded, round, 4))
    assert [record.waves for record in grid.history] == [5, 3]
    for context in nodes.contexts.values():
        context.state.clear()
    weaker = SecureGrid(nodes, plan, **QUICK)
    assert weaker.send_and_receive(train_messages(arrays, range(1, 5))) == []
    assert "malicious" in weaker.history[-1].reason, "clients with identities do not settle for less"


def test_different_models_cannot_be_summed(fleet, plan, arrays):
    other = type(arrays)(dict(arrays))
    other["a"] = other["steps"]
    messages = train_messages(arrays, [1, 2]) + train_messages(other, [3])
    with pytest.raises(InvalidInput, match="different models"):
        SecureGrid(fleet(), plan).send_and_receive(messages)


def test_train_messages_cannot_be_pushed_around_the_protocol(fleet, plan, arrays):
    grid = SecureGrid(fleet(), plan)
    with pytest.raises(InvalidInput):
        grid.push_messages(train_messages(arrays, [1]))
    with pytest.raises(InvalidInput):
        grid.send_and_receive(train_messages(arrays, [1]) + train_messages(arrays, [2], "evaluate"))


def test_a_central_mechanism_is_refused(fleet, planned):
    with pytest.raises(InvalidInput, match="central"):
        SecureGrid(fleet(), planned(mechanism="gaussian", bound="tight", scale=None))
