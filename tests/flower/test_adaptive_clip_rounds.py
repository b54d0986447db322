"""An adaptive clip on the grid: sums in the updates' own scale, and one clip norm that all agree on."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from helpers.silo_apps import NODES, data_of, silo_plan, use
from helpers.silo_apps import arrays as silo_arrays
from skelmix.encoding.indicator import AdaptiveClip
from skelmix.errors import InvalidInput, PolicyViolation
from skelmix.flower import SecureGrid
from skelmix.flower.arrays import difference
from skelmix.flower.policy import check_clip_norm
from skelmix.flower.records import RECORD, Request
from skelmix.mechanisms.silo import SiloMechanism
from skelmix.rounds.running_clip import RunningClip
from skelmix.secagg.keys import Identity

QUICK = {"phase_timeout": 5.0, "patience": 0.2, "poll": 0.01}
ADAPTIVE = AdaptiveClip(start=0.1, rate=1.0, weight=0.5)  # norms are 0.04, 0.08, 0.12 and 0.16


def train(grid, model):
    content = RecordDict({"arrays": model})
    return list(grid.send_and_receive([Message(content, dst_node_id=n, message_type="train") for n in NODES]))


@pytest.fixture
def adaptive(planned):
    return planned(clip=ADAPTIVE, rounds=4)


def test_a_round_gives_the_clipped_sum_in_its_own_scale_and_the_fraction_within(
    fleet, adaptive, arrays, encoded
):
    grid = SecureGrid(fleet(), adaptive, clip_norm=0.1, **QUICK)
    (reply,) = train(grid, arrays)
    assert adaptive.dimension == 16
    total = sum(vector.astype(np.int64) for _, _, vector in encoded) % adaptive.mechanism.modulus
    decoded = adaptive.mechanism.decode(total, round=0)
    step = difference(reply.content["arrays"], arrays)
    assert np.abs(step - decoded[:-1] * 0.1 / 4).max() < 1e-6
    noise = 0.1 * np.sqrt(adaptive.predicted.mse) / 4
    ideal = (0.04 + 0.08 + 0.1 + 0.1) / 16**0.5 / 4  # each moves all 16 weights alike
    assert np.abs(step - ideal).max() < 8 * noise + 1e-3
    record = grid.history[0]
    assert record.clip_norm == 0.1
    assert record.within == pytest.approx(0.5, abs=8 * np.sqrt(adaptive.predicted.mse) / (0.5 * 4))


def test_the_clip_norm_follows_the_released_sums_one_round_late(fleet, adaptive, arrays):
    grid = SecureGrid(fleet(), adaptive, **QUICK)
    for _ in range(4):
        assert train(grid, arrays)
    norms, fractions = ([getattr(r, name) for r in grid.history] for name in ("clip_norm", "within"))
    assert norms[:2] == [0.1, 0.1], "the keys of round 1 are shared before the sum of round 0 is open"
    clip = RunningClip(adaptive)
    for known, norm in zip(fractions[:2], norms[2:], strict=True):
        clip.replay(clip.norm, known)
        assert clip.norm == norm
    assert [record.waves for record in grid.history] == [4, 2, 2, 2]


def test_a_failed_round_moves_nothing(fleet, adaptive, arrays):
    nodes = fleet()
    grid = SecureGrid(nodes, adaptive, **QUICK | {"phase_timeout": 0.2})
    nodes.behave = lambda node, parts: "silent" if "unmask" in parts else "ok"
    assert train(grid, arrays) == []
    nodes.behave = lambda node, parts: "ok"
    assert train(grid, arrays)
    assert [(r.clip_norm, r.within is None) for r in grid.history] == [(0.1, True), (0.1, False)]


def test_a_later_run_goes_on_with_the_clip_norm_of_an_earlier_one(fleet, adaptive, arrays):
    grid = SecureGrid(fleet(), adaptive, clip_norm=0.1, **QUICK)
    for _ in range(3):
        assert train(grid, arrays)
    gentle = ADAPTIVE.next(0.1, grid.history[0].within)
    assert grid.history[2].clip_norm == gentle, "it does not search again"
    with pytest.raises(InvalidInput, match="clip_norm"):
        SecureGrid(fleet(), adaptive, clip_norm=-1.0)


def test_nodes_refuse_a_clip_norm_that_the_plans_steps_do_not_reach(fleet, adaptive, arrays):
    grid = SecureGrid(fleet(), adaptive, clip_norm=0.2, **QUICK)
    assert train(grid, arrays) == []
    assert "its steps do not lead there" in grid.history[0].reason


def test_nodes_that_are_told_different_clip_norms_make_no_round(fleet, adaptive, arrays):
    nodes = fleet()
    pushed, clip_norms = nodes.push_messages, []

    def tampered(messages):
        messages = list(messages)
        for message in messages:
            record = message.content.config_records[RECORD]
            if "clip-norm" in record and message.metadata.dst_node_id == 1:
                clip_norms.append(record["clip-norm"])
                record["clip-norm"] *= 1.0 if len(clip_norms) == 1 else 1.001
        return pushed(messages)

    nodes.push_messages = tampered
    grid = SecureGrid(nodes, adaptive, **QUICK)
    assert train(grid, arrays)
    assert ADAPTIVE.reachable(clip_norms[1] * 1.001, 1), "nothing but the round's context can give it away"
    assert train(grid, arrays)
    assert nodes.calls == [1, 2, 3, 4, 2, 3, 4], "the node that was told another clip norm does not train"
    assert grid.history[1].survivors == 3


def test_a_fixed_plan_takes_no_clip_norm(fleet, plan, arrays):
    with pytest.raises(InvalidInput, match="fixed"):
        SecureGrid(fleet(), plan, clip_norm=1.0)
    with pytest.raises(PolicyViolation, match="fixed"):
        check_clip_norm(None, 1.0, 0)
    check_clip_norm(None, None, 0)


@pytest.mark.parametrize("asked", [None, 0.0, -0.1, float("nan"), float("inf"), 1e-30])
def test_an_adaptive_plan_takes_no_clip_norm_but_a_reachable_one(asked):
    with pytest.raises(PolicyViolation):
        check_clip_norm(ADAPTIVE, asked, 3)


def test_the_servers_signature_covers_the_clip_norm():
    identity = Identity.generate()
    request = Request("d", {"share": b"x"}, clip_norm=0.25).signed_by(identity, 7, 1)
    request.check_signature(identity.public, 7, 1)
    again = Request.from_record(request.to_record())
    assert again == request
    for other in (0.5, None):
        forged = Request("d", {"share": b"x"}, signature=request.signature, clip_norm=other)
        with pytest.raises(Exception, match="sign"):
            forged.check_signature(identity.public, 7, 1)


def test_an_update_that_fails_leaves_no_trace_in_the_indicator(fleet, adaptive, arrays, monkeypatch):
    joints = []
    original = type(adaptive.mechanism).encode

    def watched(self, vectors, **options):
        joints.append(np.array(vectors))
        return original(self, vectors, **options)

    monkeypatch.setattr(type(adaptive.mechanism), "encode", watched)
    nodes = fleet()
    use(nodes, lambda message, context: 1 / (context.node_id - 2) and RecordDict({"arrays": silo_arrays()}))
    assert train(SecureGrid(nodes, adaptive, **QUICK), arrays)
    assert len(joints) == 4
    assert not any(joint.any() for joint in joints), "wrong arrays and an exception: zeros throughout"


def test_each_record_of_a_silo_has_an_indicator(fleet, monkeypatch):
    plan = silo_plan(batch=200, rounds=1, clip="adaptive")
    sums = []
    original = SiloMechanism.encode_silo

    def watched(self, silo, **options):
        sums.append(silo.clipped_sum())
        return original(self, silo, **options)

    monkeypatch.setattr(SiloMechanism, "encode_silo", watched)
    nodes = fleet()
    use(nodes)
    grid = SecureGrid(nodes, plan, **QUICK)
    assert train(grid, silo_arrays())
    within = sum(total[-1] for total in sums) / 0.1 / 200 + 0.5
    assert within == pytest.approx(within_by_hand(), abs=1e-4)
    assert grid.history[0].within == pytest.approx(within, abs=8 * np.sqrt(plan.predicted.mse) / (0.1 * 200))


def within_by_hand():
    import torch
    from torch import nn

    from helpers.silo_apps import network

    norms = []
    for node in NODES:
        for x, y in zip(*data_of(node), strict=True):
            model = network()
            nn.functional.cross_entropy(model(x[None]), y[None]).backward()
            parts = [p.grad for p in model.parameters() if p.grad is not None]
            norms.append(float(torch.sqrt(sum((part**2).sum() for part in parts))))
    return np.mean(np.array(norms) <= 1.0)
