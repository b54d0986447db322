"""The only source of randomness in skelmix.

Everything secret in skelmix (noise, rounding, keys' seeds) is made from the bytes that come out here. The
default, `system_entropy()`, takes no seed. An experiment that must repeat itself passes a
`ReproducibleEntropy` by hand.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from abc import ABC, abstractmethod
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.validation import whole

_CHUNK = 1 << 21  # bytes per call of the cipher, since each call has to get the interpreter's lock back
_ZEROS = bytes(_CHUNK)
_SMALL = 1 << 12  # requests below this size are served from a buffer
_REKEY_BYTES = 1 << 24  # 2^20 blocks under one key: a distinguisher's advantage is below 2^-88

SEED_BYTES = 32  # length of a `SeedExpansion`'s seed

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def _process() -> tuple[int, int]:
    """A number that changes in a forked child, whether or not Python's fork hooks ran."""
    return os.getpid(), _forks


def _byte_view(out: NDArray[Any]) -> memoryview:
    if not isinstance(out, np.ndarray) or not out.flags.c_contiguous or not out.flags.writeable:
        raise InvalidInput("out: must be a writable C-contiguous NumPy array; pass np.empty(shape, dtype)")
    if out.dtype.hasobject:
        raise InvalidInput(f"out has dtype {out.dtype}: must be a plain number dtype")
    flat: Any = out.reshape(-1).view(np.uint8)
    return memoryview(flat)


class _Keystream:
    """AES-256-CTR under keys from `next_key` (48 bytes: key and counter), each used for 16 MiB at most.

    The key that was used up is dropped before the next one comes, so that a later look into memory does not
    give back earlier noise. (Python cannot promise that the freed bytes are overwritten at once.)
    """

    def __init__(self) -> None:
        self._buffer = bytearray(_SMALL)
        self._used = _SMALL
        self._left = 0
        self._encryptor: Any = None

    def next_key(self) -> bytes:
        return os.urandom(48)

    def _stream_into(self, view: memoryview) -> None:
        position, size = 0, len(view)
        while position < size:
            if self._left == 0:
                self._encryptor = None
                key = self.next_key()
                self._encryptor = Cipher(algorithms.AES(key[:32]), modes.CTR(key[32:])).encryptor()
                self._left = _REKEY_BYTES
            count = min(_CHUNK, size - position, self._left)
            source = _ZEROS if count == _CHUNK else memoryview(_ZEROS)[:count]
            self._encryptor.update_into(source, view[position : position + count])
            position += count
            self._left -= count

    def read_into(self, view: memoryview) -> None:
        size = len(view)
        if size >= _SMALL:
            self._stream_into(view)
            return
        have = min(size, _SMALL - self._used)
        view[:have] = self._buffer[self._used : self._used + have]
        self._wipe(have)
        if have < size:
            self._stream_into(memoryview(self._buffer))
            self._used = 0
            rest = size - have
            view[have:] = self._buffer[:rest]
            self._wipe(rest)

    def _wipe(self, count: int) -> None:
        used = slice(self._used, self._used + count)
        self._used = used.stop  # first, so that an interrupt in between cannot hand out zeros
        self._buffer[used] = bytes(count)  # what was handed out is not kept


class _DerivedKeystream(_Keystream):
    """The same stream under keys hashed from a seed."""

    def __init__(self, seed: bytes) -> None:
        super().__init__()
        self._seed = seed
        self._keys = 0

    def next_key(self) -> bytes:
        self._keys += 1
        return hashlib.shake_256(b"key" + self._keys.to_bytes(8, "big") + self._seed).digest(48)


class Entropy(ABC):
    """A source of independent uniform bits. Threads may share it; it refuses to be pickled or copied.

    Example: `ReproducibleEntropy`, the one that experiments pass by hand; by default all is drawn from the
    operating system's.
    """

    @abstractmethod
    def fill(self, out: NDArray[Any]) -> None:
        """Overwrite every byte of a writable C-contiguous array with uniform bytes; it may be empty."""

    @abstractmethod
    def spawn(self) -> Entropy:
        """An independent stream, for another thread."""

    def bytes(self, count: int) -> bytes:
        """`count` uniform bytes; 0 gives b""."""
        whole(0, count=count)
        out = np.empty(count, np.uint8)
        self.fill(out)
        return out.tobytes()

    def integers_below(self, bound: int) -> int:
        """One exactly uniform integer in [0, bound), for any bound >= 1, by rejection."""
        whole(1, bound=bound)
        bits = (int(bound) - 1).bit_length()
        count = (bits + 7) // 8
        while True:
            drawn = int.from_bytes(self.bytes(count), "little") & ((1 << bits) - 1)
            if drawn < bound:
                return drawn

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled or copied: two holders of one stream would draw "
            "the same noise; use spawn() in threads and make a new one in another process"
        )


class SystemEntropy(Entropy):
    """Private randomness: AES-256-CTR keyed from the operating system, one stream per thread.

    Each key comes from `os.urandom` and serves 16 MiB. A forked child starts from fresh keys and never
    repeats its parent's stream. There is nothing to seed.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def fill(self, out: NDArray[Any]) -> None:
        view = _byte_view(out)
        here = _process()
        if getattr(self._local, "process", None) != here:
            self._local.stream = _Keystream()
            self._local.process = here
        self._local.stream.read_into(view)

    def spawn(self) -> SystemEntropy:
        return SystemEntropy()

    def __repr__(self) -> str:
        return "SystemEntropy()"


class ReproducibleEntropy(Entropy):
    """NOT PRIVATE: a stream that anyone who knows the seed can repeat, for experiments and tests only.

    The same seed and the same requests give the same bytes on every machine. Nothing in skelmix takes one
    unless the caller passes it by hand: whoever learns the seed can subtract all the noise.

    Example:

        >>> ReproducibleEntropy(1).bytes(4) == ReproducibleEntropy(1).bytes(4)
        True
    """

    def __init__(self, seed: int | bytes) -> None:
        if isinstance(seed, bool) or not isinstance(seed, (int, bytes)):
            raise InvalidInput(f"seed = {seed!r}: must be an integer or bytes")
        material = b"bytes:" + seed if isinstance(seed, bytes) else b"int:" + str(seed).encode()
        self._seed = hashlib.sha256(b"skelmix reproducible entropy" + material).digest()
        self._stream = _DerivedKeystream(self._seed)
        self._lock = threading.Lock()
        self._children = 0

    def fill(self, out: NDArray[Any]) -> None:
        view = _byte_view(out)
        with self._lock:
            self._stream.read_into(view)

    def spawn(self) -> ReproducibleEntropy:
        with self._lock:
            self._children += 1
            return ReproducibleEntropy(b"spawn" + self._children.to_bytes(8, "big") + self._seed)

    def __repr__(self) -> str:
        return "ReproducibleEntropy(seed=…) — NOT PRIVATE"


class SeedExpansion(Entropy):
    """The bytes that a secret 32-byte seed expands to: AES-256-CTR from `counter` on, in order.

    As private as the seed, which is used once: whoever is given the seed can repeat the stream. Only for
    noise that somebody who is handed the seed removes again (`noise.pieces`). The bytes do not depend on how
    they are asked for, and words are little-endian on every machine. It is one thread's.
    """

    def __init__(self, seed: bytes, counter: bytes) -> None:
        if not isinstance(seed, bytes) or len(seed) != SEED_BYTES:
            raise InvalidInput(f"seed: must be {SEED_BYTES} secret bytes")
        self._encryptor = Cipher(algorithms.AES(seed), modes.CTR(counter)).encryptor()

    def fill(self, out: NDArray[Any]) -> None:
        view = _byte_view(out)
        for start in range(0, len(view), _CHUNK):
            part = view[start : start + _CHUNK]
            self._encryptor.update_into(memoryview(_ZEROS)[: len(part)], part)
        if sys.byteorder == "big":
            out.byteswap(inplace=True)

    def spawn(self) -> NoReturn:
        raise TypeError("SeedExpansion cannot be split: the other holder of the seed would not know how")

    def __repr__(self) -> str:
        return "SeedExpansion(seed=…)"


_SYSTEM = SystemEntropy()


def system_entropy() -> SystemEntropy:
    """The private source of this process: safe across threads and forks."""
    return _SYSTEM
