"""Arrays as vectors, the draw of cohorts, waiting, what a node remembers."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

import skelmix as sk
from skelmix.errors import CorruptState, InvalidInput, PolicyViolation, ProtocolError, RoundFailed
from skelmix.flower import ClientPolicy, dimension
from skelmix.flower.arrays import difference, dtypes, moved, only_arrays, recast
from skelmix.flower.cohort_draw import draw
from skelmix.flower.coordinator import Coordinator
from skelmix.flower.node_state import NodeState, contribution_store
from skelmix.flower.records import RECORD, Request
from skelmix.flower.rounds import SecureRound
from skelmix.secagg.client import Client
from skelmix.secagg.graph import choose
from skelmix.secagg.keys import KeyPair


def test_moving_by_the_difference_gives_the_other_model_back(arrays):
    step = np.arange(16, dtype=np.float32) / 16
    other = moved(arrays, step)
    assert np.allclose(difference(other, arrays), step, atol=1e-6)
    assert dtypes(other) == dtypes(arrays)
    assert list(other) == list(arrays), "arrays keep their order"
    assert dimension(arrays) == 16


def test_arrays_are_taken_in_the_order_of_their_names():
    one, two = Array(np.zeros(1, np.float32)), Array(np.ones(1, np.float32))
    before = ArrayRecord({"b": one, "a": one})
    assert difference(ArrayRecord({"a": two, "b": one}), before).tolist() == [1.0, 0.0]


def test_integers_are_no_part_of_the_vector(arrays):
    changed = ArrayRecord(dict(arrays))
    changed["steps"] = Array(np.array(99))
    assert not difference(changed, arrays).any()
    only = ArrayRecord({"steps": Array(np.array(1))})
    assert difference(only, only).shape == (0,)


def test_recast_restores_what_averaging_made_of_integers(arrays):
    averaged = ArrayRecord({name: Array(np.asarray(array.numpy() * 1.0)) for name, array in arrays.items()})
    restored = recast(averaged, dtypes(arrays))
    assert dtypes(restored) == dtypes(arrays)
    assert recast(arrays, dtypes(arrays)) is arrays


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays.pop("w"),
        lambda arrays: arrays.update(w=Array(np.zeros((3, 4), np.float32))),
        lambda arrays: arrays.update(w=Array(np.zeros((4, 3), np.int32))),
        lambda arrays: arrays.update(w=Array(np.zeros((4, 3), np.complex64))),
        lambda arrays: arrays.update(extra=Array(np.zeros(1))),
    ],
)
def test_models_that_do_not_match_are_refused(arrays, change):
    other = ArrayRecord(dict(arrays))
    change(other)
    with pytest.raises(InvalidInput):
        difference(other, arrays)


def test_a_step_of_another_length_is_refused(arrays):
    with pytest.raises(InvalidInput, match="16 floating-point weights"):
        moved(arrays, np.zeros(15))


def test_exactly_one_model_travels_in_a_message(arrays):
    with pytest.raises(InvalidInput, match="0 ArrayRecords"):
        only_arrays(RecordDict(), "it")
    with pytest.raises(InvalidInput, match="2 ArrayRecords"):
        only_arrays(RecordDict({"a": arrays, "b": arrays}), "it")


def test_everyone_takes_part_without_sampling():
    assert draw(sk.Cohort(4, 4, sampling="none"), {1, 2, 3}) == {1, 2, 3}
    with pytest.raises(InvalidInput, match="5 nodes"):
        draw(sk.Cohort(4, 4, sampling="none"), {1, 2, 3, 4, 5})
    with pytest.raises(RoundFailed):
        draw(sk.Cohort(4, 4, sampling="none"), set())


def test_poisson_draws_each_node_at_the_rate_of_the_plan():
    cohort, nodes = sk.Cohort(300, 1000), set(range(1000))
    sizes = [len(draw(cohort, nodes)) for _ in range(40)]
    assert abs(np.mean(sizes) - 300) < 7 * np.sqrt(210 / 40)
    assert len(set(sizes)) > 1, "the size is random"


def test_fixed_draws_as_many_as_expected_and_all_nodes_alike():
    cohort, nodes = sk.Cohort(3, 9, sampling="fixed"), set(range(10, 19))
    counts = Counter(node for _ in range(600) for node in draw(cohort, nodes))
    assert sum(counts.values()) == 1800
    assert set(counts) == nodes
    assert all(abs(count - 200) < 7 * np.sqrt(600 * 2 / 9) for count in counts.values())


def test_a_strategy_may_make_the_fixed_draw_itself():
    assert draw(sk.Cohort(3, 9, sampling="fixed"), {1, 5, 7}, connected=9) == {1, 5, 7}


def test_too_few_nodes_for_the_sampling_rate_fail_the_round():
    with pytest.raises(RoundFailed, match="more often"):
        draw(sk.Cohort(3, 9, sampling="fixed"), {1, 2, 3, 4})


SOUND = {
    "mechanism": {"bits": 8, "dimension": 4},
    "rounds": 1,
    "cohort": {"kind": "cohort", "expected": 4, "population": 4, "sampling": "none"},
}


def test_a_sound_memory_is_read():
    state = RecordDict({RECORD: ConfigRecord({"plan": json.dumps(SOUND), "words": 4})})
    facts = NodeState(state, contribution_store({}, 7)).plan_facts()
    assert (facts.rounds, facts.words, facts.bits, facts.dimension) == (1, 4, 8, 4)


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("channel", b"short", NodeState.channel),
        ("channel", "text", NodeState.channel),
        ("attendance", b"\xc1", NodeState.joined_rounds),
        ("plan", "{", NodeState.plan_facts),
        ("plan", "[" * 100_000, NodeState.plan_facts),
        ("plan", '{"mechanism": {}}', NodeState.plan_facts),
        ("plan", json.dumps(SOUND | {"rounds": "1"}), NodeState.plan_facts),
        ("plan", json.dumps(SOUND | {"cohort": {}}), NodeState.plan_facts),
        ("words", 1.5, NodeState.plan_facts),
        ("last-round", True, lambda memory: memory.last_round),
    ],
)
def test_a_damaged_memory_is_named_and_not_used(name, value, read):
    state = RecordDict({RECORD: ConfigRecord({"plan": json.dumps(SOUND), name: value})})
    with pytest.raises(CorruptState, match="damaged"):
        read(NodeState(state, contribution_store({}, 7)))


def test_a_version_that_is_not_a_number_is_not_the_version():
    for version in (True, 1.0, "1"):
        with pytest.raises(ProtocolError, match="version"):
            Request.from_record(ConfigRecord({"version": version, "digest": "d"}))


@pytest.mark.parametrize(
    "cohort", [sk.Cohort(60, 600), sk.Cohort(60, 600, sampling="fixed", dropout_tolerance=0.1)]
)
def test_a_node_refuses_a_plan_whose_cohorts_may_be_smaller_than_it_joins(cohort):
    plan = sk.plan(sk.PrivacyTarget(3.0, 1e-5), dimension=16, bits=20, bound="rdp", cohort=cohort)
    for count in (3, plan.cohort.least_survivors or 3):
        ClientPolicy(min_cohort=count).check_plan(plan)
    with pytest.raises(PolicyViolation, match="lower min_cohort"):
        ClientPolicy(min_cohort=50).check_plan(plan)


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
def test_few_nodes_are_not_sampled_at_the_rate_of_many(tolerance):
    cohort = sk.Cohort(60, 600, dropout_tolerance=tolerance)
    plan = sk.plan(sk.PrivacyTarget(3.0, 1e-5), dimension=16, bits=20, bound="rdp", cohort=cohort)
    coordinator = object.__new__(Coordinator)
    coordinator._plan, coordinator._malicious = plan, False
    coordinator._keys = dict.fromkeys(range(590), b"")
    assert len(coordinator._draw(set(range(590)), lambda: None)) > 10
    nothing = lambda: pytest.fail("nothing may be drawn")  # noqa: E731
    with pytest.raises(RoundFailed, match=r"200 of 600 nodes are here.*wait for more"):
        coordinator._draw(set(range(200)), nothing)
    coordinator._keys = dict.fromkeys(range(200), b"")  # the others are connected and never answer
    with pytest.raises(RoundFailed, match=r"200 of 600 nodes are here.*wait for more"):
        coordinator._draw(set(range(590)), nothing)


@pytest.mark.parametrize(("expected", "nodes", "drawn"), [(60, 700, True), (590, 620, False)])
def test_more_nodes_than_the_population_are_sampled_unless_a_cohort_may_be_larger_too(expected, nodes, drawn):
    """Each node refuses a roster that is larger than the plan's population: such a round would not open."""
    target, cohort = sk.PrivacyTarget(3.0, 1e-5), sk.Cohort(expected, 600)
    coordinator = object.__new__(Coordinator)
    coordinator._plan = sk.plan(target, dimension=16, bits=20, bound="rdp", cohort=cohort)
    coordinator._malicious, charges = False, []
    coordinator._keys = dict.fromkeys(range(nodes), b"")
    outcome = nullcontext() if drawn else pytest.raises(RoundFailed, match="too large, to open")
    with outcome:
        coordinator._draw(set(range(nodes)), lambda: charges.append(1))
    assert bool(charges) == drawn


@pytest.mark.parametrize("sparse", [True, False])
def test_a_round_rests_on_the_plans_law_of_dropouts_and_nodes_agree(sparse):
    cohort = sk.Cohort(120, 12_000, dropout_tolerance=0.1)
    plan = sk.plan(sk.PrivacyTarget(3.0, 1e-5), dimension=16, bits=16, cohort=cohort, bound="gdp")
    clients = {node: Client(node, KeyPair.generate()) for node in range(120)}
    keys = {node: client.advertise() for node, client in clients.items()}
    secure = SecureRound.start(
        plan, 0, keys, digest=plan.digest(), session=bytes(16), run=1, clip_norm=None, malicious=False,
        sparse=sparse,
    )  # fmt: skip
    seen = []
    policy = ClientPolicy(full_roster=not sparse)

    def look(asked):
        seen.append((asked.degree, policy.check_round(asked, plan.cohort)))

    clients[5].share(secure.requests[5], look)
    need = plan.cohort.min_survivors(120, sparse=sparse)
    assert seen == [(choose(120, need, dropout_rate=0.1, full=not sparse).degree, 120)]
    assert (seen[0][0] < choose(120, need).degree) == sparse
