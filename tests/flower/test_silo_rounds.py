"""Silos on the grid: sums of drawn records, updates that did not come from `silo_update`, restarts, time."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from torch import nn

import skelmix as sk
from helpers.silo_apps import (
    NODES,
    QUICK,
    RECORDS,
    arrays,
    data_of,
    honest,
    network,
    one_round,
    silo_plan,
    train,
    use,
)
from skelmix.errors import InvalidInput, PolicyViolation
from skelmix.federated import silo_update as drawing
from skelmix.flower import ClientPolicy, SecureGrid, plan_limits, silo_update
from skelmix.flower.arrays import difference
from skelmix.flower.records import RECORD
from skelmix.mechanisms.silo import SiloMechanism


@pytest.fixture
def silos(monkeypatch):
    """(sum before noise, message) of every silo, in order."""
    seen = []
    original = SiloMechanism.encode_silo

    def watched(self, silo, *, shares=None, entropy=None):
        message = original(self, silo, shares=shares, entropy=entropy)
        seen.append((silo, message.astype(np.int64), shares))
        return message

    monkeypatch.setattr(SiloMechanism, "encode_silo", watched)
    return seen


def by_hand(node, clip_norm=1.0):
    """The sum of a silo's clipped updates, one record at a time, in the order of the arrays' names."""
    total = 0
    for x, y in zip(*data_of(node), strict=True):
        model = network()
        nn.functional.cross_entropy(model(x[None]), y[None]).backward()
        grads = {k: torch.zeros_like(p) if p.grad is None else p.grad for k, p in model.named_parameters()}
        vector = -torch.cat([grads[name].reshape(-1) for name in sorted(grads)]).double().numpy()
        total = total + vector * min(1, clip_norm / np.linalg.norm(vector))
    return total


def test_a_round_gives_the_decoded_sum_over_the_batch(fleet, silos):
    plan = silo_plan()
    nodes = fleet()
    use(nodes)
    step = difference(one_round(nodes, plan).content["arrays"], arrays())
    total = sum(message for _, message, _ in silos) % plan.mechanism.modulus
    assert np.abs(step - plan.mechanism.decode(total, round=0) / 100).max() < 1e-6
    ideal = sum(silo.clipped_sum() for silo, _, _ in silos) / 100
    assert np.abs(step - ideal).max() < 8 * np.sqrt(plan.predicted.mse) / 100
    assert [shares for _, _, shares in silos] == [4] * 4, "each adds a quarter: survivors make up for others"
    assert 0 < sum(silo.records for silo, _, _ in silos) < 4 * RECORDS


def test_every_record_adds_its_own_clipped_gradient(fleet, silos):
    """At rate 1 all are drawn: the exact sum is the one computed record by record."""
    nodes = fleet()
    use(nodes)
    one_round(nodes, silo_plan(batch=200, rounds=1))
    for node, (silo, _, _) in zip(NODES, silos, strict=True):
        assert silo.records == RECORDS
        assert np.abs(silo.clipped_sum() - by_hand(node)).max() < 1e-4
        assert not silo.clipped_sum()[8:20].any(), "the frozen layer gets no update"


def test_records_are_drawn_at_the_plans_rate_afresh_in_every_round(fleet, monkeypatch):
    seen = []

    def watched(count, rate, entropy):
        seen.append((count, rate))
        return original(count, rate, entropy)

    original = drawing.poisson
    monkeypatch.setattr(drawing, "poisson", watched)
    nodes = fleet()
    use(nodes)
    grid = SecureGrid(nodes, silo_plan(batch=30), **QUICK)
    assert all(train(grid, arrays()) for _ in range(2))
    assert seen == [(RECORDS, Fraction(30, 200))] * 8, "not a rate of the silo's own 50 records"


def test_stock_fedavg_trains_over_silos(fleet, silos):
    nodes = fleet()
    use(nodes)
    result = FedAvg(min_available_nodes=4, fraction_evaluate=0.0).start(
        grid=SecureGrid(nodes, silo_plan()), initial_arrays=arrays(), num_rounds=3
    )
    assert len(silos) == 12
    assert np.isfinite(difference(result.arrays, arrays())).all()


KEPT = {}


def replies_with_an_old_record(message, context):
    """Draws in the first round only, and replies with that round's record ever after."""
    if context.node_id not in KEPT:
        KEPT[context.node_id] = honest(message, context)
    return KEPT[context.node_id]


def trained_by_itself(message, context):
    model = network()
    with torch.no_grad():
        model.z.weight += 1
    return RecordDict({"arrays": ArrayRecord(model.state_dict())})


def forged(message, context):
    return RecordDict({"update": ConfigRecord({"round": 0})})


def refused(message, context):
    """A data set that does not fit, then one that does: a round has one draw."""
    with pytest.raises(InvalidInput, match="two tensors"):
        silo_update(network(), nn.functional.cross_entropy, data_of(context.node_id)[0])
    return honest(message, context)


def no_update_at_all(message, context):
    return RecordDict({"update": ConfigRecord({"token": "text"}), "loss": MetricRecord({"loss": 3.0})})


@pytest.mark.parametrize("app", [trained_by_itself, forged, refused, no_update_at_all])
def test_what_did_not_come_from_the_helper_is_an_empty_silos_update(fleet, silos, caplog, app):
    nodes = fleet()
    use(nodes, app)
    reply = one_round(nodes, silo_plan())
    assert [silo.records for silo, _, _ in silos] == [0] * 4
    assert all(message.any() for _, message, _ in silos), "its noise is there"
    assert "a silo without records" in caplog.text, "the node's operator is told"
    assert dict(reply.content["metrics"]) == {"num-examples": 1.0}


def test_a_draw_is_good_for_one_round(fleet, silos):
    KEPT.clear()
    nodes = fleet()
    use(nodes, replies_with_an_old_record)
    grid = SecureGrid(nodes, silo_plan(), **QUICK)
    assert all(train(grid, arrays()) for _ in range(2))
    assert all(silo.records > 0 for silo, _, _ in silos[:4])
    assert [silo.records for silo, _, _ in silos[4:]] == [0] * 4


def fails(message, context):
    """As an app whose check of one record, after the draw, ends the function."""
    honest(message, context)
    raise ValueError("a secret of patient 17")


def exits(message, context):
    honest(message, context)
    raise SystemExit(1)


def twice(message, context):
    honest(message, context)
    return honest(message, context)


def chooses_its_reply(message, context):
    honest(message, context)
    return RecordDict()


@pytest.mark.parametrize("app", [fails, exits, twice, chooses_its_reply])
def test_what_the_app_does_after_the_draw_does_not_change_what_is_sent(fleet, silos, app):
    """It may depend on one record, and a silo that then sent nothing would show all the others."""
    nodes = fleet()
    use(nodes, app)
    one_round(nodes, silo_plan(batch=200, rounds=1))
    for node, (silo, _, _) in zip(NODES, silos, strict=True):
        assert silo.records == RECORDS
        assert np.abs(silo.clipped_sum() - by_hand(node)).max() < 1e-4


def _size(value):
    return len(value) if isinstance(value, bytes | str) else value


def test_refused_and_honest_updates_look_alike_to_the_server(fleet):
    def answers(app):
        nodes, sizes = fleet(), []
        use(nodes, app, ClientPolicy(min_cohort=2, public_metrics=("loss",)))
        inner = nodes.pull_messages

        def pull(ids):
            replies = inner(ids)
            for reply in replies:
                records = {name: type(value).__name__ for name, value in reply.content.items()}
                metrics = [dict(record) for record in reply.content.metric_records.values()]
                parts = {name: _size(value) for name, value in reply.content[RECORD].items()}
                sizes.append((records, metrics, parts))
            return replies

        nodes.pull_messages = pull
        one_round(nodes, silo_plan(rounds=1))
        return sizes

    def with_loss(message, context):
        return RecordDict({**honest(message, context), "m": MetricRecord({"loss": 3.5})})

    honestly = answers(with_loss)
    assert honestly == answers(fails) == answers(trained_by_itself)
    assert {"loss": 0.0} in honestly[8][1], "a silo's loss does not leave, even where it is called public"


def test_what_the_app_trained_before_does_not_matter(fleet, silos):
    """The gradients are those of the server's model, whatever the app did to its own."""

    def trains_first(message, context):
        model = network()
        for weights in model.parameters():
            weights.data.fill_(float(context.node_id))
        return RecordDict(
            {"update": silo_update(model, nn.functional.cross_entropy, *data_of(context.node_id))}
        )

    nodes = fleet()
    use(nodes, trains_first)
    one_round(nodes, silo_plan(batch=200, rounds=1))
    assert np.abs(silos[0][0].clipped_sum() - by_hand(1)).max() < 1e-4


def test_a_restarted_silo_answers_no_round_twice(fleet, silos):
    nodes = fleet()
    use(nodes)
    plan = silo_plan()
    one_round(nodes, plan)
    for node in NODES:
        nodes.contexts[node].state = RecordDict()
    forgetful = SecureGrid(nodes, plan, **QUICK)
    assert train(forgetful, arrays()) == []
    assert "round 0 was asked for" in forgetful.history[0].reason
    assert len(silos) == 4, "no record was drawn again"


def test_a_lost_silo_is_survived(fleet, silos):
    plan, nodes = silo_plan(), fleet()
    use(nodes)
    nodes.behave = lambda node, parts: "silent" if node == 2 and "masked" in parts else "ok"
    grid = SecureGrid(nodes, plan, **(QUICK | {"phase_timeout": 0.2}))
    (reply,) = train(grid, arrays())
    total = sum(message for _, message, _ in silos) % plan.mechanism.modulus
    step = difference(reply.content["arrays"], arrays())
    assert grid.history[0].survivors == 3
    made_up = np.abs(step - plan.mechanism.decode(total, round=0) / 100).max()
    assert 1e-6 < made_up < 8 * np.sqrt(plan.predicted.mse) / 100, "the others add the noise that it lacks"


def test_every_answer_takes_the_same_time_when_asked_to(fleet, monkeypatch, caplog):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    nodes = fleet()
    use(nodes, policy=ClientPolicy(min_cohort=2, answer_seconds=1000.0))
    one_round(nodes, silo_plan())
    padded = [seconds for seconds in slept if seconds > 500]
    assert len(padded) == 4, "the training answer of each silo, no other message"
    assert "answer_seconds" not in caplog.text
    nodes = fleet()
    use(nodes, policy=ClientPolicy(min_cohort=2, answer_seconds=1e-9))
    one_round(nodes, silo_plan())
    assert "more than answer_seconds = 1e-09" in caplog.text
    stricter = ClientPolicy(answer_seconds=5.0).narrowed({"skelmix-answer-seconds": "20"})
    assert stricter.answer_seconds == 20
    assert stricter.narrowed({"skelmix-answer-seconds": 1}).answer_seconds == 20


def test_a_nodes_limit_on_a_round_leaves_the_silos_own_sampling_out():
    """The draw of records counts in the plan's ε, not in the least noise of a round."""
    plan = silo_plan(batch=2, epsilon=1.0)
    one = plan_limits.round_epsilon(plan)
    assert plan.report.epsilon < one
    ClientPolicy(max_epsilon_round=one * 1.01, max_epsilon=1.01).check_plan(plan)
    with pytest.raises(PolicyViolation, match="one round costs"):
        ClientPolicy(max_epsilon_round=one * 0.99).check_plan(plan)
    with pytest.raises(PolicyViolation, match="population of 4"):
        ClientPolicy(max_population=3).check_plan(plan)


@pytest.mark.parametrize(("mechanism", "starts"), [("smm", True), ("dgm", False)])
def test_noise_that_fewer_silos_would_divide_otherwise_needs_all_of_them_to_start(mechanism, starts, fleet):
    """Three discrete Gaussians of a third of the variance are not proved to hide what four of a fourth do."""
    plan, nodes = silo_plan(mechanism=mechanism), fleet()
    assert plan.fewest_at_start == (1 if starts else 4)
    use(nodes)
    nodes.behave = lambda node, parts: "silent" if node == 2 else "ok"
    grid = SecureGrid(nodes, plan, **(QUICK | {"phase_timeout": 0.2}))
    assert len(train(grid, arrays())) == int(starts)
    assert ("proved for 4 that start" in grid.history[0].reason) is not starts


class CarelessPlan(sk.Plan):
    fewest_at_start = 1


def test_a_silo_refuses_to_start_with_fewer_whatever_the_server_does(fleet, silos):
    plan, nodes = silo_plan(mechanism="dgm"), fleet()
    use(nodes)
    nodes.behave = lambda node, parts: "silent" if node == 2 else "ok"
    grid = SecureGrid(nodes, CarelessPlan(**vars(plan)), **(QUICK | {"phase_timeout": 0.2}))
    assert train(grid, arrays()) == []
    assert "proved for 4 that start" in grid.history[0].reason
    assert silos == [], "no record was drawn"


def test_all_that_start_may_lose_some_with_any_noise(fleet, silos):
    plan, nodes = silo_plan(mechanism="dgm"), fleet()
    use(nodes)
    nodes.behave = lambda node, parts: "silent" if node == 2 and "masked" in parts else "ok"
    grid = SecureGrid(nodes, plan, **(QUICK | {"phase_timeout": 0.2}))
    assert len(train(grid, arrays())) == 1
    assert {shares for _, _, shares in silos} == {Fraction(2)}
    assert plan.mechanism.shares == 2, "each silo adds the share that was accounted for, and three are more"
