"""Rotation: orthonormal, a Hadamard matrix times public signs, its inverse beside it."""

import hashlib
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard

from skelmix.encoding.paley import ORDERS, conference_matrix
from skelmix.encoding.rotation import padded, rotate, rotate_integers, rotation_signs, unrotate
from skelmix.errors import InvalidInput

SEED = bytes(range(32))


def factors(length):
    """Orders of the Kronecker factors: a power of two, one of 12, 20 and 28 (or 1), a power of two."""
    odd = length // (length & -length)
    if odd == 1:
        return length, 1, 1
    inner = min(length // (4 * odd), 64)
    return length // (4 * odd * inner), 4 * odd, inner


def hadamard_matrix(order):
    """H of one of the `ORDERS`: entries ±1, symmetric, H·H = order·I."""
    c, unit = conference_matrix(order), np.eye(order // 2, dtype=np.int8)
    return np.block([[c + unit, c - unit], [c - unit, -c - unit]])


def matrix(length):
    outer, order, inner = factors(length)
    middle = hadamard_matrix(order).astype(int) if order > 1 else np.ones((1, 1), int)
    return np.kron(np.kron(hadamard(outer), middle), hadamard(inner))


@pytest.mark.parametrize("order", ORDERS)
def test_the_small_matrices_are_symmetric_hadamard_matrices(order):
    h = hadamard_matrix(order).astype(int)
    assert np.array_equal(np.abs(h), np.ones((order, order)))
    assert np.array_equal(h, h.T)
    assert np.array_equal(h @ h, order * np.eye(order))


def test_a_length_is_the_smallest_available_one():
    available = sorted({m << j for m in (1, *ORDERS) for j in range(25)})
    for d in [*range(1, 3000), 65_537, 81_920, 81_921, 10_000_000]:
        assert padded(d) == next(length for length in available if length >= d)


def test_little_is_padded():
    sizes = np.unique(np.geomspace(16, 1 << 24, 4001).astype(int))
    ratios = np.array([padded(int(d)) / d for d in sizes])
    assert ratios.max() <= 1.25
    assert ratios.mean() <= 1.10
    assert max(padded(d) / d for d in range(10, 5000)) <= 1.25


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "d",
    [
        *range(1, 4),
        *range(8, 49, 4),
        55,
        63,
        64,
        65,
        80,
        90,
        112,
        128,
        192,
        220,
        384,
        448,
        513,
        896,
        1280,
        7168,
    ],
)
def test_it_is_the_hadamard_matrix_times_the_signs(d, dtype):
    x = np.random.default_rng(d).normal(size=d).astype(dtype)
    width = padded(d)
    signs = rotation_signs(SEED, 7, width)
    full = np.zeros(width)
    full[:d] = x
    expected = matrix(width) @ (signs * full) / np.sqrt(width)
    got = rotate(x, SEED, 7)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, atol=40 * np.finfo(dtype).eps * np.linalg.norm(full))


@pytest.mark.parametrize("d", [16_384, 24_576, 40_960, 57_344, 65_536, 1 << 18, 5 << 16])
def test_across_cache_blocks_a_unit_vector_becomes_a_row_of_the_matrix(d):
    place = d - 3
    x = np.zeros(d)
    x[place] = 1.0
    got = rotate(x, SEED, 0) * np.sqrt(d) * rotation_signs(SEED, 0, d)[place]
    outer, order, inner = factors(d)
    high, middle, low = np.unravel_index(place, (outer, order, inner))
    small = hadamard_matrix(order)[middle] if order > 1 else np.ones(1, int)
    row = np.kron(np.kron(walsh_row(high, outer), small), walsh_row(low, inner))
    assert np.array_equal(np.sign(got), row)
    np.testing.assert_allclose(np.abs(got), 1.0, rtol=1e-12)


def walsh_row(place, length):
    return 1 - 2 * np.array([bin(i & int(place)).count("1") & 1 for i in range(length)])


@settings(max_examples=40, deadline=None)
@given(
    d=st.integers(1, 3000),
    rows=st.integers(1, 4),
    round=st.integers(0, 2**64 - 1),
    single=st.booleans(),
    scale=st.floats(0.01, 1000),
)
def test_unrotate_undoes_rotate(d, rows, round, single, scale):
    dtype = np.float32 if single else np.float64
    x = np.random.default_rng(d).normal(size=(rows, d)).astype(dtype)
    kept = x.copy()
    y = rotate(x, SEED, round, scale=scale)
    assert np.array_equal(x, kept)
    back = unrotate(y, SEED, round, dimension=d, scale=1 / scale)
    bound = 100 * np.finfo(dtype).eps * np.linalg.norm(x, axis=1).max()
    assert np.abs(back - x).max() <= bound
    np.testing.assert_allclose(
        np.linalg.norm(y.astype(float), axis=1),
        scale * np.linalg.norm(x.astype(float), axis=1),
        rtol=20 * np.finfo(dtype).eps,
    )


def test_no_length_takes_more_than_two_and_a_half_times_the_next_power_of_two():
    """Processor time per vector, the least of many in turns: a busy machine must not decide."""
    lengths = (20, 28, 56, 112, 448, 640, 896, 7168)
    rows = {n: np.ones(((1 << 15) // n, n), np.float32) for n in {*lengths, *map(power_above, lengths)}}
    least = dict.fromkeys(rows, float("inf"))
    for _ in range(40):
        for n, x in rows.items():
            start = time.process_time()
            rotate(x, SEED, 0, out=x)
            least[n] = min(least[n], (time.process_time() - start) / len(x))
            x[:] = 1.0
    for n in lengths:
        assert least[n] <= 2.5 * least[power_above(n)], n


def power_above(length):
    return 1 << length.bit_length()


@settings(max_examples=40, deadline=None)
@given(d=st.integers(1, 6000), rows=st.integers(1, 3), round=st.integers(0, 2**64 - 1))
def test_integers_rotate_exactly_and_back_with_the_transpose(d, rows, round):
    """Modulo 2^64, for any int64: the transpose of the matrix gives length·y."""
    y = np.random.default_rng(d).integers(-(2**63), 2**63 - 1, size=(rows, d), endpoint=True)
    kept = y.copy()
    z = rotate_integers(y, SEED, round)
    assert np.array_equal(y, kept)
    width, signs = padded(d), rotation_signs(SEED, round, padded(d))
    back = rotate_integers(z * signs, SEED, round)  # H·D·D·H·D·y = width·D·y
    assert np.array_equal(back[:, :d], y * signs[:d] * np.int64(width))
    assert not back[:, d:].any()


@pytest.mark.parametrize("d", [1, 5, 24, 40, 100, 1000, 2560, 6000])
def test_integers_rotate_as_the_matrix_says_and_as_floats_do(d):
    y = np.random.default_rng(d).integers(-(2**30), 2**30, size=(2, d))
    width = padded(d)
    full = np.zeros((2, width), np.int64)
    full[:, :d] = y
    z = rotate_integers(y, SEED, 9)
    assert np.array_equal(z, (full * rotation_signs(SEED, 9, width)) @ matrix(width))
    floats = rotate(y.astype(np.float64), SEED, 9, scale=np.sqrt(width))
    np.testing.assert_allclose(z, floats, atol=1e-13 * 2**30 * width)
    assert np.array_equal(z[0] + z[1], rotate_integers(y[0] + y[1], SEED, 9))
    out = np.empty((2, width), np.int64)
    assert np.shares_memory(rotate_integers(y, SEED, 9, out=out), out)
    assert np.array_equal(out, z)


@pytest.mark.parametrize("length", [1024, 768, 1280, 896])
@pytest.mark.parametrize("shape", ["constant", "half", "few", "alternating", "normal"])
def test_every_length_spreads_a_vector_as_a_power_of_two_does(length, shape):
    """|coordinate| > t·‖x‖/√length has probability at most 2·exp(-t²/2) (Hoeffding) over the signs, for each
    length alike; the signs here are those of a fixed seed, so the counts are fixed too."""
    x = {
        "constant": np.ones(length),
        "half": np.arange(length) < length // 2,
        "few": np.arange(length) % 97 == 0,
        "alternating": 1.0 - 2.0 * (np.arange(length) % 2),
        "normal": np.random.default_rng(1).normal(size=length),
    }[shape].astype(np.float64)
    x /= np.linalg.norm(x)
    turned = np.abs([rotate(x, SEED, round) for round in range(200)]) * np.sqrt(length)
    for t in (2.0, 3.0, 4.0):
        assert (turned > t).mean() <= 2 * np.exp(-t * t / 2)
    assert turned.max() < 6.5  # 2·exp(-6.5²/2)·10^6 < 0.002
    np.testing.assert_allclose((turned**4).mean(), 3.0, atol=0.4)  # a normal coordinate's: 3
    unsigned = rotate(x * rotation_signs(SEED, 0, length), SEED, 0) * np.sqrt(length)
    if shape in ("constant", "alternating"):  # without the signs such a vector is all but one spike
        assert np.abs(unsigned).max() > 15


def test_in_place_gives_the_same_numbers():
    x = np.random.default_rng(1).normal(size=(3, 8192)).astype(np.float32)
    expected = rotate(x, SEED, 5)
    assert rotate(x, SEED, 5, out=x) is not None
    assert np.array_equal(x, expected)


def test_signs_are_the_documented_stream_and_change_with_round_and_seed():
    stream = hashlib.shake_128(
        b"skelmix rotation signs, version 1\x00" + SEED + (3).to_bytes(8, "little")
    ).digest(32)
    bits = [(stream[i // 8] >> (i % 8)) & 1 for i in range(256)]
    assert [1 - 2 * bit for bit in bits] == rotation_signs(SEED, 3, 256).tolist()
    assert rotation_signs(SEED, 4, 256).tolist() != rotation_signs(SEED, 3, 256).tolist()
    assert rotation_signs(bytes(32), 3, 256).tolist() != rotation_signs(SEED, 3, 256).tolist()
    with pytest.raises(ValueError, match="read-only"):
        rotation_signs(SEED, 3, 256)[0] = 1


def test_a_spike_is_spread_evenly():
    x = np.zeros(1000, np.float32)
    x[17] = 3.0
    np.testing.assert_allclose(np.abs(rotate(x, SEED, 0)), 3 / 32, rtol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: rotate(np.ones(4, np.int32), SEED, 0),
        lambda: rotate(np.ones((2, 2, 2)), SEED, 0),
        lambda: rotate(np.ones(4), SEED, -1),
        lambda: rotate(np.ones(4), b"short", 0),
        lambda: rotate(np.ones(4), SEED, 0, out=np.ones(8)),
        lambda: rotate(np.ones((2, 0)), SEED, 0),
        lambda: unrotate(np.ones(4), SEED, 0, dimension=5),
        lambda: padded(0),
        lambda: rotate_integers(np.ones(4), SEED, 0),
        lambda: rotate_integers(np.ones((1, 1, 4), np.int64), SEED, 0),
        lambda: rotate_integers(np.ones(4, np.int64), SEED, 0, out=np.ones(8, np.int64)),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(InvalidInput):
        call()
