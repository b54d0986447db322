"""A server that chooses the model learns nothing from how training on a node ends."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from helpers import hostile_outcomes
from helpers.server_view import Node, let_failures_through, one_bit_of_each_record, trains_on
from skelmix.errors import InvalidInput
from skelmix.flower.app_results import update_vector
from skelmix.flower.records import RECORD
from skelmix.mechanisms.mechanism import IntegerMechanism

CASES = 1000


@pytest.fixture
def quiet(caplog):
    logging.getLogger("flwr.skelmix").setLevel(logging.CRITICAL)  # a thousand tracebacks
    yield
    logging.getLogger("flwr.skelmix").setLevel(logging.NOTSET)


@pytest.fixture
def node(plan, arrays, quiet):
    return Node(plan, arrays)


@pytest.fixture
def switched_off(monkeypatch):
    let_failures_through(monkeypatch)


def hostile_numbers():
    """The clip norm, the scale and the type of the weights, as a hostile server may choose them."""
    rng = np.random.default_rng(19)
    clips = [1.0, 2.0**60, 2.0**-60, *2.0 ** rng.uniform(-60, 60, 2)]
    dtypes = [None, "float64", "float64", "float32", "float16"]
    scales = rng.uniform(100, 4000, 5) / clips
    return list(zip(map(float, clips), map(float, scales), dtypes, strict=True))


@pytest.mark.parametrize("group", range(5))
def test_a_thousand_hostile_outcomes_look_like_an_honest_zero_update(planned, arrays, group, quiet):
    clip_norm, scale, dtype = hostile_numbers()[group]
    if dtype is not None:
        arrays = ArrayRecord({name: Array(array.numpy().astype(dtype)) for name, array in arrays.items()
                              if name != "steps"})  # fmt: skip
    node = Node(planned(clip_norm=clip_norm, scale=scale), arrays)
    honest = node.trained(hostile_outcomes.honest)
    assert honest[0][0] == "content"
    assert set(honest[0][1]) == {RECORD, "metrics"}
    assert "unmask" in honest[1][1][RECORD]
    cases = list(hostile_outcomes.outcomes(CASES))[group * CASES // 5 : (group + 1) * CASES // 5]
    for case, (rng, outcome) in enumerate(cases):
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


def test_the_overflow_attack_reads_no_bit(node):
    guessed, ones = one_bit_of_each_record(node)
    assert guessed == 1 - ones, "no round was refused: the guess is 0 for everyone"


def test_without_the_fix_the_overflow_attack_reads_every_bit(node, switched_off):
    guessed, _ = one_bit_of_each_record(node)
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


def test_an_update_below_the_clip_but_beyond_float32_is_zero():
    before, after = ArrayRecord([np.full(8, -3e38)]), ArrayRecord([np.full(8, 3e38)])
    vector = update_vector(RecordDict({"arrays": after}), before, 8, 1e40)
    np.testing.assert_array_equal(vector, np.zeros(8))


@pytest.mark.parametrize("clip_norm", [1e39, 2.0**-61])
def test_clips_beyond_float32_are_refused(planned, clip_norm):
    with pytest.raises(InvalidInput, match=r"clip_norm = .*2\^60"):
        planned(clip_norm=clip_norm, scale=2000 / clip_norm)


def test_an_update_that_cannot_be_encoded_looks_like_zero(node, monkeypatch):
    honest = node.trained(hostile_outcomes.honest)
    original = IntegerMechanism.encode

    def fails_on_data(self, vectors, **options):
        if np.any(vectors):
            raise InvalidInput("a text about the data")
        return original(self, vectors, **options)

    monkeypatch.setattr(IntegerMechanism, "encode", fails_on_data)
    assert node.trained(trains_on(np.float32(1))) == honest


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
