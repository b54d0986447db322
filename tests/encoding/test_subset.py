"""The public subset of coordinates: uniform, the same for everybody, undone on average."""

import hashlib
from itertools import combinations
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers.hypothesis_tests import follows
from skelmix.encoding.rotation import padded, rotate, unrotate
from skelmix.encoding.subset import choose, rotate_and_gather, scatter
from skelmix.errors import InvalidInput

SEED = bytes(range(32))


def by_the_book(seed, round, length, keep):
    """The documented stream, read word by word."""
    wanted = min(keep, length - keep) if 2 * keep > length else keep
    marked, chunk = [], 0
    while len(marked) < wanted:
        stream = hashlib.shake_128(
            b"skelmix kept coordinates, version 1\x00"
            + chunk.to_bytes(8, "little")
            + seed
            + round.to_bytes(8, "little")
        ).digest(4 << 16)
        for i in range(1 << 16):
            place = int.from_bytes(stream[4 * i : 4 * i + 4], "little") & (
                (1 << (length - 1).bit_length()) - 1
            )
            if place < length and place not in marked and len(marked) < wanted:
                marked.append(place)
        chunk += 1
    return sorted(marked if 2 * keep <= length else set(range(length)) - set(marked))


@pytest.mark.parametrize(
    ("length", "keep"), [(1, 1), (2, 1), (12, 12), (20, 7), (56, 40), (1024, 512), (1280, 513), (1280, 1)]
)
def test_the_subset_is_that_of_the_documented_stream(length, keep):
    assert choose(SEED, 5, length, keep).tolist() == by_the_book(SEED, 5, length, keep)


def digest(places):
    return hashlib.sha256(places.astype("<i4").tobytes()).hexdigest()


def test_vectors_of_version_1():
    """What every participant of every release must choose; another version needs another context."""
    assert choose(SEED, 0, 20, 5).tolist() == [10, 13, 14, 15, 18]
    assert choose(SEED, 7, 65_536, 6).tolist() == [26321, 48504, 49720, 60428, 62563, 64510]
    long = choose(SEED, 1, 10_485_760, 125_000)
    assert (
        hashlib.sha256(long.astype("<i4").tobytes()).hexdigest()
        == "09496f967bf17b4667ccecf6c944026a75b118f20a16d7f7d01c814220be0d1b"
    )
    most = choose(SEED, 2, 81_920, 70_000)
    assert (
        hashlib.sha256(most.astype("<i4").tobytes()).hexdigest()
        == "5c432f07d28d6e280233b69f4658f2ad5eef7e84e196258a9bc4895c8f569f39"
    )


@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 5000), share=st.floats(0, 1), round=st.integers(0, 2**64 - 1))
def test_a_subset_has_its_size_and_is_sorted(length, share, round):
    keep = max(1, round_down(share * length))
    places = choose(SEED, round, length, keep)
    assert places.dtype == np.int32
    assert places.shape == (keep,)
    assert places[0] >= 0
    assert places[-1] < length
    assert (np.diff(places) > 0).all()
    with pytest.raises(ValueError, match="read-only"):
        places[0] = 1


def round_down(x):
    return int(np.floor(x))


@pytest.mark.parametrize("keep", [2, 4])
def test_every_subset_is_equally_likely(keep):
    subsets = {subset: number for number, subset in enumerate(combinations(range(6), keep))}
    seen = np.array([subsets[tuple(choose(SEED, round, 6, keep).tolist())] for round in range(20_000)])
    law = stats.randint(0, len(subsets))
    assert follows(seen, law.cdf, range(len(subsets) - 1))
    biased = np.array([subsets[tuple(sorted({0, *choose(SEED, r, 6, keep)})[:keep])] for r in range(2_000)])
    assert not follows(biased, law.cdf, range(len(subsets) - 1))


def test_it_changes_with_round_and_seed():
    first = choose(SEED, 0, 1024, 100).tolist()
    assert choose(SEED, 1, 1024, 100).tolist() != first
    assert choose(bytes(32), 0, 1024, 100).tolist() != first


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("d", "keep"), [(1, 1), (50, 13), (3000, 100), (3000, 3072)])
def test_gathering_takes_the_rotated_coordinates(d, keep, dtype):
    x = np.random.default_rng(d).normal(size=(3, d)).astype(dtype)
    out = np.empty((3, keep), dtype)
    rotate_and_gather(x, SEED, 4, scale=7.0, length=padded(d), out=out)
    assert np.array_equal(out, rotate(x, SEED, 4, scale=7.0)[:, choose(SEED, 4, padded(d), keep)])


def test_scattering_undoes_the_choice_on_average():
    d, keep = 40, 10
    x = np.random.default_rng(3).normal(size=d)
    rounds = 4000
    total = np.zeros(d)
    squares = 0.0
    for round in range(rounds):
        y = rotate(x, SEED, round)
        back = scatter(y[choose(SEED, round, d, keep)], SEED, round, length=d)
        estimate = unrotate(back, SEED, round, dimension=d)
        total += estimate
        squares += float(np.sum((estimate - x) ** 2))
    variance = (d / keep - 1) * float(x @ x)  # of the whole vector
    assert squares / rounds == pytest.approx(variance, rel=0.05)
    assert np.abs(total / rounds - x).max() < 6 * np.sqrt(variance / d / rounds)


def test_it_is_fast_for_ten_million_coordinates():
    choose(SEED, 0, 10_485_760, 1000)  # compiled
    start = perf_counter()
    choose(SEED, 3, 10_485_760, 125_000)
    assert perf_counter() - start < 2.0  # 0.02 s where nothing else runs


@pytest.mark.parametrize(
    "call",
    [
        lambda: choose(SEED, 0, 0, 1),
        lambda: choose(SEED, 0, 5, 6),
        lambda: choose(SEED, 0, 5, 0),
        lambda: choose(SEED, -1, 5, 2),
        lambda: choose(b"short", 0, 5, 2),
        lambda: choose(SEED, 0, 5, 2.0),
        lambda: scatter(np.ones(6), SEED, 0, length=5),
        lambda: scatter(np.ones((2, 2)), SEED, 0, length=5),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(InvalidInput):
        call()
