"""The PNG reader: every filter is undone, anything else is refused."""

import contextlib
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skelmix.datasets.png import read_png
from skelmix.errors import CorruptState

images = hnp.arrays(
    np.uint8,
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 3])),
    elements=st.integers(0, 255),
)


def chunk(kind, content):
    return struct.pack(">I4s", len(content), kind) + content + struct.pack(">I", zlib.crc32(kind + content))


def filtered(line, before, kind):
    """One line under a filter, sample by sample, as the specification (section 9.2) has it."""
    out = np.zeros_like(line)
    for x, c in np.ndindex(line.shape):
        left = int(line[x - 1, c]) if x else 0
        up, corner = int(before[x, c]), int(before[x - 1, c]) if x else 0
        guess = left + up - corner
        paeth = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[
            2
        ]
        out[x, c] = (int(line[x, c]) - [0, left, up, (left + up) // 2, paeth][kind]) % 256
    return out


def png(image, kinds, *, depth=8, interlace=0, pieces=1):
    height, width, channels = image.shape
    before, lines = np.zeros(image.shape[1:], np.uint8), []
    for line, kind in zip(image, kinds, strict=True):
        lines.append(bytes([kind]) + filtered(line, before, kind).tobytes())
        before = line
    packed = zlib.compress(b"".join(lines))
    header = struct.pack(">IIBBBBB", width, height, depth, {1: 0, 3: 2}[channels], 0, 0, interlace)
    step = -(-len(packed) // pieces)
    data = b"".join(chunk(b"IDAT", packed[at : at + step]) for at in range(0, len(packed), step))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"tEXt", b"x\0y") + data + chunk(b"IEND", b"")
    )


@given(images, st.data(), st.integers(1, 3))
def test_every_filter_is_undone(image, data, pieces):
    kinds = data.draw(st.lists(st.integers(0, 4), min_size=len(image), max_size=len(image)))
    assert (read_png(png(image, kinds, pieces=pieces)) == image).all()


SMALL = png(np.arange(24, dtype=np.uint8).reshape(2, 4, 3), [1, 4])


@given(st.integers(0, len(SMALL) - 1), st.integers(1, 255))
def test_a_changed_byte_never_changes_a_pixel_unnoticed(at, change):
    payload = bytearray(SMALL)
    payload[at] ^= change
    with contextlib.suppress(CorruptState):
        assert (read_png(bytes(payload)) == np.arange(24).reshape(2, 4, 3)).all()


@given(st.integers(0, len(SMALL) - 13))
def test_a_cut_file_is_refused(length):
    with pytest.raises(CorruptState):
        read_png(SMALL[:length])


def test_other_kinds_are_refused():
    image = np.zeros((2, 2, 1), np.uint8)
    for payload in (
        png(image, [0, 0], depth=16),
        png(image, [0, 0], interlace=1),
        png(np.zeros((1, 2, 1), np.uint8), [0]).replace(b"IHDR", b"IHDX"),
    ):
        with pytest.raises(CorruptState):
            read_png(payload)


def test_a_bomb_is_not_inflated():
    header = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
    packed = zlib.compress(bytes(10**7))
    payload = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    with pytest.raises(CorruptState, match="promises 6"):
        read_png(payload)
    wide = struct.pack(">IIBBBBB", 2**31, 2**31, 8, 0, 0, 0, 0)
    with pytest.raises(CorruptState, match="too many"):
        read_png(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", wide) + chunk(b"IDAT", packed) + chunk(b"IEND", b""))
