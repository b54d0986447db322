"""The messages of secure aggregation: one frozen dataclass each, and their bytes.

A message on the wire is a msgpack array [version, kind, fields…] followed by a 16-byte BLAKE2b checksum of
it. The checksum finds damage, not fraud: fraud is met by the seals and signatures inside. `decode` refuses,
before it allocates anything for them, messages longer than the caller's limit; and it refuses another version
or kind, fields of the wrong type or length (each as it is met, with no container built that the field does
not have), and every encoding but the one that `encode` writes.

With n participants, k neighbours and d coordinates of b bits, sizes in bytes are at most
advertisement 160; share request 320 + 152·(k+1); shares 170 + 16·w + (54 + 16·w)·k; mask request
60 + n/8 + (90 + 16·w)·k; **masked input ⌈d·b/8⌉ + 140**; consistency request 60 + n/8; agreement 120; unmask
request 60 + n/8 + 70·n (signatures only with a malicious server); unmask shares 130 + (21 + 16·w)·(k+1),
where w is the number of pieces of excess noise per participant, 0 in a round without.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

import msgpack

from skelmix.secagg.excess import MOST_PIECES
from skelmix.secagg.failures import MalformedMessage
from skelmix.secagg.keys import COMMITMENT_BYTES, KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES
from skelmix.secagg.sharing import SHARE_BYTES

VERSION = 3
CHECKSUM_BYTES = 16
SESSION_BYTES = 16
MOST_PARTICIPANTS = 1 << 16
MOST_COORDINATES, MOST_CONTEXT_BYTES = 1 << 31, 64

Check = Callable[[Any], bool]


def sealed_bytes(pieces: int) -> int:
    """The size of the sealed shares for one neighbour: of seed, mask key and pieces of noise."""
    return (2 + pieces) * SHARE_BYTES + TAG_BYTES


def _integer(high: int) -> Check:
    return lambda value: type(value) is int and 0 <= value <= high


def _octets(*lengths: int) -> Check:
    return lambda value: type(value) is bytes and len(value) in lengths


def _any_octets(value: Any) -> bool:
    return type(value) is bytes


def _flag(value: Any) -> bool:
    return type(value) is bool


def _positive_or_zero(value: Any) -> bool:
    return type(value) is float and 0.0 <= value < float("inf")


class _Rows:
    """A field that is a table: an array of rows, each an array of as many cells as there are columns."""

    def __init__(self, *columns: Check) -> None:
        self.columns = columns


_INDEX = _integer(MOST_PARTICIPANTS - 1)
_COUNT = _integer(MOST_PARTICIPANTS)
_WIDE = _integer(2**64 - 1)
_KEY = _octets(KEY_BYTES)
_OPTIONAL_KEY = _octets(0, KEY_BYTES)
_OPTIONAL_SIGNATURE = _octets(0, SIGNATURE_BYTES)
_HEADER = (_octets(SESSION_BYTES), _WIDE)
_SEALED = _octets(*(sealed_bytes(pieces) for pieces in range(MOST_PIECES + 1)))
_COMMITMENTS = _octets(*((1 + pieces) * COMMITMENT_BYTES for pieces in range(MOST_PIECES + 1)))
_SHARES = _octets(*((1 + pieces) * SHARE_BYTES for pieces in range(MOST_PIECES + 1)))

Peer = tuple[int, int, bytes, bytes, bytes]
"""index, participant, channel key, identity key, signature of the advertisement"""


@dataclass(frozen=True, slots=True)
class Message:
    """Base of all messages. `KIND` is its number on the wire, `CHECKS` one predicate per field, in order."""

    KIND: ClassVar[int] = 0
    CHECKS: ClassVar[tuple[Check | _Rows, ...]] = ()


@dataclass(frozen=True, slots=True)
class Advertisement(Message):
    """Client to server, once: the long-lived channel key, signed by the identity when there is one."""

    participant: int
    channel_key: bytes
    identity_key: bytes
    signature: bytes
    KIND: ClassVar[int] = 1
    CHECKS: ClassVar[tuple[Check | _Rows, ...]] = (_WIDE, _KEY, _OPTIONAL_KEY, _OPTIONAL_SIGNATURE)


@dataclass(frozen=True, slots=True)
class ShareRequest(Message):
    """Server to client: the round's settings and the client's closed neighbourhood, in share order.

    noise, context: as in `Settings`. expansion: the version of `noise.pieces`. roster: the digest of all
    participants' keys.
    """

    session: bytes
    round: int
    dimension: int
    bits: int
    threshold: int
    colluding: int
    malicious: bool
    noise: float
    expansion: int
    context: bytes
    participants: int
    degree: int
    share_threshold: int
    graph_seed: bytes
    roster: bytes
    index: int
    neighbourhood: tuple[Peer, ...]
    KIND: ClassVar[int] = 2
    CHECKS: ClassVar[tuple[Check | _Rows, ...]] = (
        *_HEADER,
        _integer(MOST_COORDINATES),
        _integer(32),
        _COUNT,
        _COUNT,
        _flag,
        _positive_or_zero,
        _COUNT,
        _octets(*range(MOST_CONTEXT_BYTES + 1)),
        _COUNT,
        _COUNT,
        _COUNT,
        _KEY,
        _KEY,
        _INDEX,
        _Rows(_INDEX, _WIDE, _KEY, _OPTIONAL_KEY, _OPTIONAL_SIGNATURE),
    )


@dataclass(frozen=True, slots=True)
class Shares(Message):
    """Client to server: a fresh mask key, sealed shares, commitments to the self-mask seed and each piece."""

    session: bytes
    round: int
    sender: int
    mask_key: bytes
    commitments: bytes
    sealed: tuple[tuple[int, bytes], ...]
    signature: bytes
    KIND: ClassVar[int] = 3
    CHECKS: ClassVar[tuple[Check | _Rows, ...]] = (
        *_HEADER,
        _INDEX,
        _KEY,
        _COMMITMENTS,
        _Rows(_INDEX, _SEALED),
        _OPTIONAL_SIGNATURE,
    )


@dataclass(frozen=True, slots=True)
class MaskRequest(Message):
    """Server to client: who has shared, and the neighbours' mask keys and sealed shares for this client."""

    session: bytes
    round: int
    sharers: bytes
    sealed: tuple[tuple[int, bytes, bytes], ...]
    KIND: ClassVar[int] = 4
    CHECKS: ClassVar[tuple[Check | _Rows, ...]] = (
        *_HEADER,
        _any_octets,
        _Rows(_INDEX, _KEY, _SEALED),
    )


@dataclass(frozen=True, slots=True)
class MaskedInput(Message):
    """Client to server: the masked vector, packed to b bits per coordinate."""

    session: bytes
    round: int
    sender: int
    payload: bytes
    signature: bytes
    KIND: ClassVar[int] = 5
    CHECKS: ClassVar[tuple[Check | _Rows, ...]] = (*_HEADER, _INDEX, _any_octets, _OPTIONAL_SIGNATURE)


@dataclass(frozen=True, slots=True)
class ConsistencyRequest(Message):
    """Server to client, malicious model: the survivors, to be signed."""

    session: bytes
    round: int
    survivors: bytes
    KIND: ClassVar[int] = 6
    CHECKS: ClassVar[tuple[Check | _Rows, ...]] = (*_HEADER, _any_octets)


@dataclass(frozen=True, slots=True)
class Agreement(Message):
    """Client to server, malicious model: the signature over the survivors that this client was shown."""

    session: bytes
    round: int
    sender: int
    signature: bytes
    KIND: ClassVar[int] = 7
    CHECKS: ClassVar[tuple[Check | _Rows, ...]] = (*_HEADER, _INDEX, _octets(SIGNATURE_BYTES))


@dataclass(frozen=True, slots=True)
class UnmaskRequest(Message):
    """Server to client: the survivors, with the others' agreements in the malicious model."""

    session: bytes
    round: int
    survivors: bytes
    agreements: tuple[tuple[int, bytes], ...]
    KIND: ClassVar[int] = 8
    CHECKS: ClassVar[tuple[Check | _Rows, ...]] = (
        *_HEADER,
        _any_octets,
        _Rows(_INDEX, _octets(SIGNATURE_BYTES)),
    )


@dataclass(frozen=True, slots=True)
class UnmaskShares(Message):
    """Client to server: a share of each neighbour's self-mask seed or of its mask key, never both.

    A seed's share is followed by the shares of that neighbour's removed pieces of noise.
    """

    session: bytes
    round: int
    sender: int
    seed_shares: tuple[tuple[int, bytes], ...] = field(repr=False)
    key_shares: tuple[tuple[int, bytes], ...] = field(repr=False)
    signature: bytes
    KIND: ClassVar[int] = 9
    CHECKS: ClassVar[tuple[Check | _Rows, ...]] = (
        *_HEADER,
        _INDEX,
        _Rows(_INDEX, _SHARES),
        _Rows(_INDEX, _octets(SHARE_BYTES)),
        _OPTIONAL_SIGNATURE,
    )


M = TypeVar("M", bound=Message)


def _body(message: Message) -> bytes:
    values = [getattr(message, field.name) for field in fields(message)]
    packed: bytes = msgpack.packb([VERSION, message.KIND, *values], use_bin_type=True)
    return packed


def _checksum(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=CHECKSUM_BYTES, person=b"skelmix-secagg").digest()


def encode(message: Message) -> bytes:
    """The bytes of a message; the only bytes that `decode` accepts for it."""
    body = _body(message)
    return body + _checksum(body)


def signed_part(message: Message) -> bytes:
    """What a signature inside the message covers: its encoding with the signature left empty."""
    return _body(replace(message, signature=b""))  # type: ignore[call-arg]


def decode(data: bytes, kind: type[M], limit: int) -> M:
    """The message in `data`, of class `kind` and at most `limit` bytes; else `MalformedMessage`."""
    name = kind.__name__
    if not isinstance(data, bytes):
        raise MalformedMessage(f"{name}: expected bytes, got {type(data).__name__}")
    if len(data) > limit:
        raise MalformedMessage(f"{name}: {len(data)} bytes, at most {limit} are accepted")
    view = memoryview(data)
    body, checksum = view[:-CHECKSUM_BYTES], view[-CHECKSUM_BYTES:]
    if len(data) <= CHECKSUM_BYTES or _checksum(body) != checksum:
        raise MalformedMessage(
            f"{name}: checksum is wrong; the message was damaged or cut on the way, send it again"
        )
    try:
        message = _read(body, kind)
    except MalformedMessage:
        raise
    except Exception as error:  # msgpack raises several unrelated classes
        raise MalformedMessage(f"{name}: not a well-formed message ({error})") from error
    if _body(message) != body:
        raise MalformedMessage(f"{name}: not in canonical form")
    return message


def _read(body: memoryview, kind: type[M]) -> M:
    """Field by field, each checked before the next is built: a hostile body takes no more than its bytes.

    The unpacker itself builds no array at all; those of a table are opened here, where one is expected.
    """
    name = kind.__name__
    none = {f"max_{container}_len": 0 for container in ("array", "map", "ext", "str")}
    size = len(body)
    unpacker = msgpack.Unpacker(use_list=False, raw=False, read_size=size, max_buffer_size=size, **none)
    unpacker.feed(body)
    if unpacker.read_array_header() != 2 + len(kind.CHECKS):
        raise MalformedMessage(f"{name}: wrong number of fields")
    version, number = unpacker.unpack(), unpacker.unpack()
    if version != VERSION or type(version) is not int:
        raise MalformedMessage(
            f"{name}: version {version!r}, this side speaks {VERSION}; update the older side"
        )
    if number != kind.KIND or type(number) is not int:
        raise MalformedMessage(f"{name}: a message of another kind ({number!r}) came in its place")

    def cell(at: str, check: Check) -> Any:
        value = unpacker.unpack()
        if not check(value):
            raise MalformedMessage(f"{name}: field {at} is outside its limits")
        return value

    def row(at: str, columns: tuple[Check, ...]) -> tuple[Any, ...]:
        if unpacker.read_array_header() != len(columns):
            raise MalformedMessage(f"{name}: field {at} has a row of another length")
        return tuple([cell(at, column) for column in columns])

    values: list[Any] = []
    for at, check in zip((entry.name for entry in fields(kind)), kind.CHECKS, strict=True):
        if isinstance(check, _Rows):
            values.append(tuple([row(at, check.columns) for _ in range(unpacker.read_array_header())]))
        else:
            values.append(cell(at, check))
    return kind(*values)
