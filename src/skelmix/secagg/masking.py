"""Masks: an AES-256-CTR keystream read as words of Z_m, added to or taken from a vector in place.

m = 2^bits divides 2^8, 2^16 or 2^32, so a uniform little-endian word of 1, 2 or 4 bytes is uniform in Z_m
after reduction, and sums may be reduced once at the end: masks are added to whole words with wrap-around, and
`reduce` clears the bits above `bits`. Every key is derived for one mask only, so the counter starts at zero.

The work goes chunk by chunk, each chunk of the vector staying in the processor's cache while all masks are
added to it. It is one thread's work: `cryptography` holds the interpreter's lock while it encrypts, so more
threads gain nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from skelmix.arrays import WordArray
from skelmix.encoding.wrapping import wire_dtype
from skelmix.errors import InvalidInput

CHUNK_BYTES = 1 << 18
_ZEROS = bytes(CHUNK_BYTES)
_START = modes.CTR(bytes(16))


def words(vector: Any, dimension: int, bits: int) -> WordArray:
    """A fresh (dimension,) word array with the values of `vector`, which must be integers in [0, 2^bits)."""
    array = np.asarray(vector)
    if array.dtype.kind not in "iu":
        raise InvalidInput(
            f"vector has dtype {array.dtype}: secure aggregation adds integers; encode it first"
        )
    if array.shape != (dimension,):
        raise InvalidInput(f"vector has shape {array.shape}: must be ({dimension},)")
    if array.size and (int(array.min()) < 0 or int(array.max()) >> bits):
        raise InvalidInput(f"vector has values outside [0, 2**{bits}): reduce it modulo 2**{bits} first")
    return array.astype(wire_dtype(bits))


def reduce(vector: WordArray, bits: int) -> None:
    """Reduce the words modulo 2^bits, in place."""
    if bits < 8 * vector.dtype.itemsize:
        np.bitwise_and(vector, vector.dtype.type((1 << bits) - 1), out=vector)


def apply(vector: WordArray, added: Iterable[bytes], removed: Iterable[bytes]) -> None:
    """Add the masks of the keys `added` and subtract those of `removed`, in place, modulo the word size.

    `vector` is one-dimensional, contiguous and writable. Applying the same keys with the roles swapped undoes
    it.
    """
    steps = [(key, np.add) for key in added] + [(key, np.subtract) for key in removed]
    size = vector.dtype.itemsize
    span = CHUNK_BYTES // size
    stream = bytearray(min(CHUNK_BYTES, vector.nbytes))
    mask = np.frombuffer(stream, dtype=vector.dtype.newbyteorder("<"))
    zeros = memoryview(_ZEROS)
    if vector.size <= span:  # one chunk: each cipher is made, used and dropped
        window = zeros[: vector.nbytes]
        for key, combine in steps:
            Cipher(algorithms.AES(key), _START).encryptor().update_into(window, stream)
            combine(vector, mask, out=vector)
        return
    ciphers = [(Cipher(algorithms.AES(key), _START).encryptor(), combine) for key, combine in steps]
    for start in range(0, vector.size, span):
        part = vector[start : start + span]
        window, shorter = zeros[: part.nbytes], mask[: part.size]
        for cipher, combine in ciphers:
            cipher.update_into(window, stream)
            combine(part, shorter, out=part)
