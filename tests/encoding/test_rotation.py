"""Rotation: orthonormal, the Walsh-Hadamard matrix times public signs, its inverse beside it."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard

from skelmix.encoding.rotation import padded, rotate, rotation_signs, unrotate
from skelmix.errors import InvalidInput

SEED = bytes(range(32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 3, 8, 31, 32, 63, 64, 65, 128, 513, 4096])
def test_it_is_the_hadamard_matrix_times_the_signs(d, dtype):
    x = np.random.default_rng(d).normal(size=d).astype(dtype)
    width = padded(d)
    signs = rotation_signs(SEED, 7, width)
    full = np.zeros(width)
    full[:d] = x
    expected = hadamard(width) @ (signs * full) / np.sqrt(width)
    got = rotate(x, SEED, 7)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, atol=40 * np.finfo(dtype).eps * np.linalg.norm(full))


@pytest.mark.parametrize("d", [16_384, 65_536, 1 << 18])
def test_across_cache_blocks_a_unit_vector_becomes_a_row_of_the_matrix(d):
    place = d - 3
    x = np.zeros(d)
    x[place] = 1.0
    got = rotate(x, SEED, 0) * np.sqrt(d) * rotation_signs(SEED, 0, d)[place]
    parity = np.array([bin(i & place).count("1") & 1 for i in range(d)])
    assert np.array_equal(np.sign(got), 1 - 2 * parity)
    np.testing.assert_allclose(np.abs(got), 1.0, rtol=1e-12)


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
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(InvalidInput):
        call()
