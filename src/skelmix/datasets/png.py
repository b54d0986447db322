"""Read plain PNG files: eight bits per sample, grey or RGB, not interlaced. Enough for sheets of images."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import CorruptState

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3}  # colour types: grey, RGB
_LARGEST = 1 << 26  # bytes of pixels

_NONE, _SUB, _UP, _AVERAGE, _PAETH = range(5)


def read_png(payload: bytes, *, source: str = "PNG data") -> NDArray[np.uint8]:
    """The pixels of a PNG file, uint8 (height, width, channels).

    Every chunk's checksum is verified; other kinds of PNG and more than 64 MB of pixels are refused with
    `CorruptState`.
    """
    header, packed = _chunks(payload, source)
    width, height, depth, colour, compression, filtering, interlace = struct.unpack(">IIBBBBB", header)
    if depth != 8 or colour not in _CHANNELS or compression or filtering or interlace:
        raise CorruptState(f"{source} is not a plain grey or RGB PNG of eight bits per sample")
    channels = _CHANNELS[colour]
    size = height * (1 + width * channels)
    if not 0 < width * height * channels <= _LARGEST:
        raise CorruptState(f"{source} has {width} by {height} pixels: none, or too many")
    try:
        raw = zlib.decompressobj().decompress(packed, size + 1)
    except zlib.error as error:
        raise CorruptState(f"{source} is damaged ({error}): fetch it again") from error
    if len(raw) != size:
        raise CorruptState(f"{source} holds {len(raw)} bytes of pixels, its header promises {size}")
    lines = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * channels)
    return _unfiltered(lines[:, 0], lines[:, 1:].reshape(height, width, channels), source)


def _chunks(payload: bytes, source: str) -> tuple[bytes, bytes]:
    """The header's fields and the joined pixel data."""
    if payload[:8] != _SIGNATURE:
        raise CorruptState(f"{source} is not a PNG file")
    header, packed, at = b"", [], 8
    while at + 12 <= len(payload):
        length, kind = struct.unpack_from(">I4s", payload, at)
        content = payload[at + 8 : at + 8 + length]
        check = payload[at + 8 + length : at + 12 + length]
        if len(check) < 4 or zlib.crc32(kind + content) != int.from_bytes(check, "big"):
            raise CorruptState(f"{source} is cut or damaged: fetch it again")
        if kind == b"IHDR":
            header = content
        elif kind == b"IDAT":
            packed.append(content)
        elif kind == b"IEND":
            break
        at += 12 + length
    if len(header) != 13 or not packed:
        raise CorruptState(f"{source} lacks its header or its pixels")
    return header, b"".join(packed)


def _unfiltered(filters: NDArray[np.uint8], lines: NDArray[np.uint8], source: str) -> NDArray[np.uint8]:
    """Undo each line's filter (PNG specification, section 9). Sums wrap around at 256, as they should."""
    pixels = np.empty_like(lines)
    above = np.zeros(lines.shape[1:], np.uint8)
    for row, (kind, line) in enumerate(zip(filters, lines, strict=True)):
        if kind == _NONE:
            pixels[row] = line
        elif kind == _SUB:
            np.cumsum(line, axis=0, dtype=np.uint8, out=pixels[row])
        elif kind == _UP:
            pixels[row] = line + above
        elif kind in (_AVERAGE, _PAETH):
            _unfilter_one_by_one(kind == _PAETH, line, above, pixels[row])
        else:
            raise CorruptState(f"{source} has a line with filter {kind}: there are only five")
        above = pixels[row]
    return pixels


def _unfilter_one_by_one(
    paeth: bool, line: NDArray[np.uint8], above: NDArray[np.uint8], out: NDArray[np.uint8]
) -> None:
    """Undo the two filters that need the pixel before.

    Each sample's prediction is an average, or whichever neighbour is nearest to left + up - corner.
    """
    up = above.astype(np.int16)
    left, corner = np.zeros(line.shape[1], np.int16), np.zeros(line.shape[1], np.int16)
    for x in range(len(line)):
        if paeth:
            guess = left + up[x] - corner
            to_left, to_up, to_corner = abs(guess - left), abs(guess - up[x]), abs(guess - corner)
            nearest = np.where(to_up <= to_corner, up[x], corner)
            prediction = np.where((to_left <= to_up) & (to_left <= to_corner), left, nearest)
        else:
            prediction = (left + up[x]) >> 1
        out[x] = line[x] + prediction.astype(np.uint8)
        left, corner = out[x].astype(np.int16), up[x]
