"""Wrapping and packing: exact for every integer and every width."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skelmix.encoding.wrapping import pack, unpack, unwrap, wire_dtype, wrap, wrapped_coordinates
from skelmix.errors import InvalidInput

DTYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@settings(max_examples=200, deadline=None)
@given(bits=st.integers(1, 32), dtype=st.sampled_from(DTYPES), data=st.data())
def test_wrap_unwrap_and_packing_agree_with_python_integers(bits, dtype, data):
    info = np.iinfo(dtype)
    values = data.draw(st.lists(st.integers(int(info.min), int(info.max)), max_size=40))
    x = np.array(values, dtype)
    m = 1 << bits
    z = wrap(x, bits)
    assert z.dtype == wire_dtype(bits)
    assert z.tolist() == [value % m for value in values]
    assert unwrap(z, bits).tolist() == [(value + m // 2) % m - m // 2 for value in values]
    data_bytes = pack(z, bits)
    assert len(data_bytes) == (len(values) * bits + 7) // 8
    assert unpack(data_bytes, len(values), bits).tolist() == z.tolist()
    as_one_number = sum((value % m) << (bits * i) for i, value in enumerate(values))
    assert int.from_bytes(data_bytes, "little") == as_one_number


def test_the_upper_half_becomes_negative():
    assert unwrap(np.arange(8, dtype=np.uint8), 3).tolist() == [0, 1, 2, 3, -4, -3, -2, -1]
    assert unwrap(np.array([0, 1], np.uint8), 1).tolist() == [0, -1]


def test_wrapped_coordinates_counts_what_is_lost():
    assert wrapped_coordinates(np.array([-5, -4, 0, 3, 4, 1000]), 3) == 3


def test_shapes_are_kept_and_input_is_not_modified():
    x = np.full((2, 3), -1, np.int64)
    assert wrap(x, 5).shape == (2, 3)
    assert wrap(x, 5).max() == 31
    assert (x == -1).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: wrap(np.ones(2), 8),
        lambda: wrap(np.ones(2, np.int64), 0),
        lambda: wrap(np.ones(2, np.int64), 33),
        lambda: unwrap(np.ones(2), 8),
        lambda: pack(np.ones(2), 8),
        lambda: unpack(b"\0", 3, 3),
        lambda: unpack(b"\0\0\0", 3, 3),
        lambda: unpack(b"\xff", 1, 3),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(InvalidInput):
        call()
