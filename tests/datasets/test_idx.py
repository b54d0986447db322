"""The idx reader: round trips, gzip, and refusals."""

import gzip
import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from helpers.idx_files import CODES, idx_bytes
from skelmix.datasets.idx import parse_idx, read_idx
from skelmix.errors import CorruptState

arrays = st.sampled_from(sorted(CODES)).flatmap(
    lambda code: hnp.arrays(np.dtype(code), hnp.array_shapes(min_dims=1, max_dims=3, max_side=5, min_side=1))
)


@given(arrays)
def test_what_was_written_is_read(array):
    read = parse_idx(idx_bytes(array))
    assert read.dtype == array.dtype
    assert read.tobytes() == array.tobytes()
    assert read.shape == array.shape


@given(arrays, st.integers(1, 8))
def test_a_wrong_length_is_refused(array, extra):
    payload = idx_bytes(array)
    for wrong in (payload + bytes(extra), payload[:-extra]):
        with pytest.raises(CorruptState):
            parse_idx(wrong)


@pytest.mark.parametrize(
    "payload", [b"", b"\0\0\x08", b"\x01\0\x08\x01\0\0\0\0", b"\0\0\x07\x01\0\0\0\0", b"\0\0\x08\0"]
)
def test_other_files_are_refused(payload):
    with pytest.raises(CorruptState):
        parse_idx(payload)


def test_gzip_is_told_by_its_content_and_the_digest_is_of_the_payload(tmp_path):
    payload = idx_bytes(np.arange(6, dtype=np.uint8).reshape(2, 3))
    digest = hashlib.sha256(payload).hexdigest()
    for name, content in (("raw.gz", payload), ("packed", gzip.compress(payload))):
        path = tmp_path / name
        path.write_bytes(content)
        assert read_idx(path, sha256=digest).tolist() == [[0, 1, 2], [3, 4, 5]]
        with pytest.raises(CorruptState, match="SHA-256"):
            read_idx(path, sha256="0" * 64)


def test_a_cut_gzip_file_is_refused(tmp_path):
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(bytes(1000))[:-9])
    with pytest.raises(CorruptState, match="damaged gzip"):
        read_idx(path)
