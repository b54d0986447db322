"""The secure sum is the ideal sum, or the round ends with an error, exactly as the thresholds say."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skelmix.errors import InvalidInput, RoundFailed
from skelmix.noise.entropy import ReproducibleEntropy
from skelmix.secagg import graph as graphs
from skelmix.secagg.failures import UnsafeRequest
from skelmix.secagg.graph import Graph, neighbourhood
from skelmix.secagg.in_memory import PHASES, ideal_sum, secure_sum

RELAXED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


def leave(fates: list[str | None]) -> dict[str, set[int]]:
    return {phase: {i for i, fate in enumerate(fates) if fate == phase} for phase in PHASES}


def present(fates: list[str | None], phase: str) -> set[int]:
    """Those still there at the end of `phase`."""
    gone = PHASES[: PHASES.index(phase) + 1]
    return {i for i, fate in enumerate(fates) if fate not in gone}


@st.composite
def rounds(draw: st.DrawFn, malicious: bool) -> tuple[np.ndarray, int, int, list[str | None]]:
    n = draw(st.integers(1, 5 if malicious else 7))
    bits = draw(st.integers(1, 32))
    d = draw(st.integers(1, 5))
    rows = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, 2**bits, (n, d))
    threshold = draw(st.integers(n // 2 + 1 if malicious else min(2, n), n))
    # mostly present, or the threshold would rarely hold
    fates = draw(st.lists(st.sampled_from([None, None, None, *PHASES]), min_size=n, max_size=n))
    return rows, bits, threshold, fates


def check(rows: np.ndarray, bits: int, threshold: int, fates: list[str | None], malicious: bool) -> None:
    dropouts = leave(fates)
    phases = PHASES if malicious else [phase for phase in PHASES if phase != "consistency"]
    enough = all(len(present(fates, phase)) >= threshold for phase in phases)

    def run() -> np.ndarray:
        return secure_sum(rows, modulus=2**bits, threshold=threshold, dropouts=dropouts, malicious=malicious)

    if not enough:
        with pytest.raises(RoundFailed):
            run()
        return
    total = run()
    survivors = sorted(present(fates, "masked"))
    assert total.tolist() == [sum(int(x) for x in rows[survivors, j]) % 2**bits for j in range(rows.shape[1])]
    assert total.tolist() == ideal_sum(rows, modulus=2**bits, dropouts=dropouts).tolist()


@settings(max_examples=700, **RELAXED)
@given(rounds(malicious=False))
def test_honest_but_curious_rounds_give_the_ideal_sum(case):
    check(*case, malicious=False)


@settings(max_examples=250, **RELAXED)
@given(rounds(malicious=True))
def test_malicious_model_rounds_give_the_ideal_sum(case):
    check(*case, malicious=True)


@settings(max_examples=120, **RELAXED)
@given(
    n=st.integers(6, 10),
    degree=st.sampled_from([2, 4]),
    share_threshold=st.integers(2, 3),
    data=st.data(),
)
def test_on_small_ring_lattices_a_round_succeeds_exactly_when_every_neighbourhood_can_answer(
    n, degree, share_threshold, data
):
    if share_threshold > degree:
        share_threshold = degree
    ring = Graph(n, degree, share_threshold)
    fates = data.draw(st.lists(st.sampled_from([None] * 6 + ["masked", "unmask"]), min_size=n, max_size=n))
    dropouts = leave(fates)
    rows = np.arange(3 * n, dtype=np.uint8).reshape(n, 3)
    threshold, answering, surviving = 2, present(fates, "unmask"), present(fates, "masked")
    seeds = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "choose", lambda *a, **k: ring)
        patch.setattr(graphs, "meets", lambda *a: True)
        patch.setattr("skelmix.secagg.checks.opens", lambda *a: True)
        real = graphs.neighbourhood
        patch.setattr(
            "skelmix.secagg.server.neighbourhood",
            lambda graph, seed, index: (seeds.append(seed), real(graph, seed, index))[1],
        )
        try:
            total = secure_sum(rows, modulus=256, threshold=threshold, dropouts=dropouts)
        except RoundFailed:
            total = None

    def recoverable(index: int) -> bool:
        near = neighbourhood(ring, seeds[0], index)
        if index not in surviving and not surviving & set(near):
            return True
        return len(answering & set(near)) >= share_threshold

    possible = len(answering) >= threshold and all(recoverable(i) for i in range(n))
    assert (total is not None) == possible
    if possible:
        assert (total == ideal_sum(rows, modulus=256, dropouts=dropouts)).all()


def test_the_sparse_graph_of_a_large_round_gives_the_ideal_sum_with_dropouts_in_every_phase():
    n, threshold = 130, 110
    assert not graphs.choose(n, threshold).full
    rows = np.random.default_rng(5).integers(0, 64, (n, 11))
    dropouts = {"advertise": {0}, "share": {7, 8}, "masked": {1, 50, 51}, "unmask": {2, 99}}
    total = secure_sum(rows, modulus=64, threshold=threshold, dropouts=dropouts)
    assert (total == ideal_sum(rows, modulus=64, dropouts=dropouts)).all()


def test_vectors_are_read_one_by_one_from_an_iterator_of_vectors_and_blocks():
    rows = np.arange(24).reshape(6, 4) % 16
    items = iter([rows[0], rows[1:4], rows[4:]])
    assert (secure_sum(items, modulus=16, threshold=4, participants=6) == rows.sum(axis=0) % 16).all()
    blocks = [rows[:2], rows[2:]]
    assert (secure_sum(blocks, modulus=16, threshold=4) == rows.sum(axis=0) % 16).all()


def test_participants_without_a_vector_drop_out():
    rows = np.arange(12).reshape(3, 4)
    assert (secure_sum(iter(rows), modulus=64, threshold=3, participants=5) == rows.sum(axis=0)).all()
    with pytest.raises(RoundFailed, match="3 participants sent"):
        secure_sum(iter(rows), modulus=64, threshold=4, participants=5)


def test_a_vector_longer_than_one_chunk_of_keystream_is_masked_and_unmasked():
    rows = np.random.default_rng(2).integers(0, 2**20, (3, 70_001))
    dropouts = {"masked": {1}}
    total = secure_sum(rows, modulus=2**20, threshold=2, dropouts=dropouts)
    assert (total == ideal_sum(rows, modulus=2**20, dropouts=dropouts)).all()


def test_reproducible_entropy_is_taken_when_passed():
    rows = np.ones((3, 4), np.uint8)
    assert (secure_sum(rows, modulus=4, threshold=2, entropy=ReproducibleEntropy(1)) == 3).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modulus": 10}, "power of two"),
        ({"modulus": 2**33}, "modulus"),
        ({"threshold": 0}, "threshold"),
        ({"threshold": 1}, "at least 2"),
        ({"colluding": 3}, "collude"),
        ({"malicious": True, "threshold": 2}, "malicious server"),
        ({"dropouts": {"nap": [1]}}, "nap"),
        ({"participants": 3}, "more rows"),
        ({"vectors": np.zeros((4, 2))}, "dtype"),
        ({"vectors": np.full((4, 2), 16)}, "outside"),
        ({"vectors": np.full((4, 2), -1)}, "outside"),
        ({"vectors": np.zeros(4, int)}, "shape"),
        ({"vectors": iter([np.zeros(2, int)])}, "participants is missing"),
        ({"vectors": []}, "empty"),
        ({"vectors": [np.zeros(2, int), *[np.zeros(3, int)] * 3]}, "shape"),
    ],
)
def test_bad_arguments_are_named(change, message):
    given_ = {"vectors": np.zeros((4, 2), int), "modulus": 16, "threshold": 3} | change
    with pytest.raises(InvalidInput, match=message):
        secure_sum(given_.pop("vectors"), **given_)


def test_a_client_with_too_few_sharing_neighbours_refuses_rather_than_sends(monkeypatch):
    monkeypatch.setattr(graphs, "choose", lambda *a, **k: Graph(8, 4, 3))
    monkeypatch.setattr(graphs, "meets", lambda *a: True)
    monkeypatch.setattr("skelmix.secagg.checks.opens", lambda *a: True)
    with pytest.raises(UnsafeRequest, match="too few"):
        secure_sum(np.ones((8, 2), int), modulus=4, threshold=2, dropouts={"share": {0, 2, 4, 6, 7, 1}})
