"""The whole protocol in one process: `secure_sum`, and the specification it is compared with, `ideal_sum`.

Every message is encoded, checked and decoded as it would be over a network; only the network is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skelmix.arrays import WordArray
from skelmix.encoding.wrapping import wire_dtype
from skelmix.errors import InvalidInput
from skelmix.noise.entropy import Entropy
from skelmix.secagg import masking
from skelmix.secagg.client import Client
from skelmix.secagg.joined_rounds import JoinedRounds
from skelmix.secagg.keys import Identity, KeyPair
from skelmix.secagg.server import Requests, Server
from skelmix.secagg.settings import Phase, Settings
from skelmix.validation import whole

PHASES = tuple(phase.value for phase in Phase if phase not in (Phase.DONE, Phase.FAILED))
"""The phases in which a participant may drop out: advertise, share, masked, consistency, unmask."""

Vectors = NDArray[Any] | Iterable[NDArray[Any]]
Dropouts = Mapping[str, Collection[int]]


def secure_sum(
    vectors: Vectors,
    *,
    modulus: int,
    threshold: int,
    dropouts: Dropouts | None = None,
    participants: int | None = None,
    colluding: int = 0,
    malicious: bool = False,
    full_graph: bool = False,
    round: int = 0,
    context: bytes = b"",
    noise: float = 0.0,
    dropout_rate: float | None = None,
    entropy: Entropy | None = None,
    heard: Callable[[], object] = lambda: None,
) -> WordArray:
    """The sum modulo `modulus` of the vectors of all participants that reach the end of phase "masked".

    vectors: (participants, d) integers in [0, modulus), or an iterable of (d,) vectors or (k, d) blocks,
      which is read one item at a time: the memory does not grow with participants · d. An iterable without a
      length needs `participants`.
    participants: how many took part. Those beyond the vectors given drop out in phase "masked".
    modulus: 2^b, b in 1..32. The result is (d,), uint8, uint16 or uint32.
    threshold: the least number of survivors; with fewer `RoundFailed` is raised and nothing is opened.
    dropouts: phase name -> indices of participants that fall silent from that phase on.
    colluding, malicious, full_graph, context, dropout_rate: as in `Settings`.
    noise: K, for vectors of n participants that bring noise Sk(K/n, K/n) each: the noise of the sum is then
      exactly Sk(K, K), whoever drops out. 0: the vectors bring all of their noise. Under a plan K is its
      `removable_noise`, and `colluding` must be its cohort's: with a smaller number the survivors share the
      noise less evenly, and colluders may know more of it than the plan allows.
    heard: called after each message that the server took, four per participant (five if malicious).

    Example:

        >>> vectors = np.array([[1, 2], [3, 255], [5, 6]], np.uint8)
        >>> secure_sum(vectors, modulus=256, threshold=2, dropouts={"masked": {2}})
        array([4, 1], dtype=uint8)
    """
    bits = _bits(modulus)
    dropped = _dropped_before(dropouts)
    first, rows, count = _rows(vectors, participants)
    settings = Settings(
        first.shape[0], bits, threshold, colluding, malicious, full_graph, context, noise, dropout_rate
    )
    if noise and dropped["advertise"]:
        raise InvalidInput(
            "dropouts has phase 'advertise': the noise is divided by those who join; encode for them, and "
            "leave the others out of vectors"
        )
    server = Server(settings, round=round)
    clients = _clients(count, settings, entropy)

    for index, client in clients.items():
        if index not in dropped["advertise"]:
            server.advertise(client.advertise())
            heard()
    requests = server.close_advertise()
    _exchange(requests, dropped["share"], lambda i, data: clients[i].share(data), server.share, heard)
    requests = server.close_share()
    for index, vector in enumerate(_at_most(count, rows)):
        if index in requests and index not in dropped["masked"]:
            server.masked(clients[index].masked(requests.pop(index), vector, participants=count))
            heard()
    requests = server.close_masked()
    if malicious:
        _exchange(
            requests,
            dropped["consistency"],
            lambda i, data: clients[i].consistency(data),
            server.consistency,
            heard,
        )
        requests = server.close_consistency()
    _exchange(requests, dropped["unmask"], lambda i, data: clients[i].unmask(data), server.unmask, heard)
    return server.close_unmask()


def ideal_sum(vectors: Vectors, *, modulus: int, dropouts: Dropouts | None = None) -> WordArray:
    """What `secure_sum` must return: the plain sum over those not dropped in phase "masked" or before.

    Example:

        >>> ideal_sum(np.array([[1, 2], [3, 255]], np.uint8), modulus=256)
        array([4, 1], dtype=uint8)
    """
    bits = _bits(modulus)
    absent = _dropped_before(dropouts)["masked"]
    first, rows, _ = _rows(vectors, 0)
    total = np.zeros(first.shape[0], wire_dtype(bits))
    for index, row in enumerate(rows):
        if index not in absent:
            total += masking.words(row, total.size, bits)
    masking.reduce(total, bits)
    return total


def _exchange(
    requests: Requests,
    silent: set[int],
    answer: Callable[[int, bytes], bytes],
    accept: Callable[[bytes], int],
    heard: Callable[[], object],
) -> None:
    for index, data in requests.items():
        if index not in silent:
            accept(answer(index, data))
            heard()


def _clients(count: int, settings: Settings, entropy: Entropy | None) -> dict[int, Client]:
    if not settings.malicious:
        return {
            i: Client(i, KeyPair.generate(entropy), minimum_settings=settings, entropy=entropy)
            for i in range(count)
        }
    identities = [Identity.generate(entropy) for _ in range(count)]
    trusted = {i: identity.public for i, identity in enumerate(identities)}
    return {
        i: Client(
            i,
            KeyPair.generate(entropy),
            identity=identity,
            trusted=trusted,
            joined_rounds=JoinedRounds(),
            minimum_settings=settings,
            entropy=entropy,
        )
        for i, identity in enumerate(identities)
    }


def _bits(modulus: int) -> int:
    whole(2, 2**32, modulus=modulus)
    bits = int(modulus).bit_length() - 1
    if modulus != 1 << bits:
        raise InvalidInput(f"modulus = {modulus}: must be a power of two, 2**1 to 2**32")
    return bits


def _dropped_before(dropouts: Dropouts | None) -> dict[str, set[int]]:
    """For each phase those who are silent in it: dropped in it or earlier."""
    given = dict(dropouts or {})
    if unknown := set(given) - set(PHASES):
        raise InvalidInput(f"dropouts has phases {sorted(unknown)}: they are {', '.join(PHASES)}")
    silent: set[int] = set()
    result = {}
    for phase in PHASES:
        silent = silent | set(given.get(phase, ()))
        result[phase] = silent
    return result


def _rows(vectors: Vectors, participants: int | None) -> tuple[NDArray[Any], Iterator[NDArray[Any]], int]:
    """The first row, all rows one by one, and their number."""
    if isinstance(vectors, np.ndarray):
        if vectors.ndim != 2:
            raise InvalidInput(f"vectors has shape {vectors.shape}: must be (participants, dimension)")
        participants = len(vectors) if participants in (None, 0) else participants
    elif participants is None:
        if not isinstance(vectors, Sequence):
            raise InvalidInput("participants is missing: an iterator does not say how many vectors it has")
        participants = sum(len(item) if np.ndim(item) == 2 else 1 for item in vectors)
    rows = _single_rows(vectors)
    first = next(rows, None)
    if first is None or first.ndim != 1 or first.size == 0:
        raise InvalidInput("vectors is empty: at least one participant and one coordinate are needed")
    return first, chain([first], rows), participants


def _at_most(count: int, rows: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    for seen, row in enumerate(rows, start=1):
        if seen > count:
            raise InvalidInput(f"vectors has more rows than participants = {count}")
        yield row


def _single_rows(vectors: Vectors) -> Iterator[NDArray[Any]]:
    for item in vectors:
        array = np.asarray(item)
        if array.ndim == 2:
            yield from array
        else:
            yield array
