"""One bit of one field changed on the way, under a right checksum: an error, or no effect on the sum."""

import struct
from dataclasses import fields, replace

import numpy as np
import pytest

from helpers.secure_rounds import cast, play
from skelmix.errors import ProtocolError, RoundFailed
from skelmix.secagg import messages
from skelmix.secagg.settings import Settings

N, D = 3, 3
NOISE = 2.0**-40  # pieces of noise are added, shared and removed, and are all zero but once in 10^11 tests
SETTINGS = Settings(dimension=D, bits=6, threshold=2, malicious=True, context=b"plan, round", noise=NOISE)
VECTORS = np.array([[1, 2, 3], [10, 20, 30], [60, 61, 62]], np.uint8)
KINDS = {
    "advertise answer": messages.Advertisement,
    "share request": messages.ShareRequest,
    "share answer": messages.Shares,
    "masked request": messages.MaskRequest,
    "masked answer": messages.MaskedInput,
    "consistency request": messages.ConsistencyRequest,
    "consistency answer": messages.Agreement,
    "unmask request": messages.UnmaskRequest,
    "unmask answer": messages.UnmaskShares,
}


def flips(value, path=()):
    """Paths to the leaves of a field, with bits to flip: first, middle, last of bytes, low of numbers."""
    if isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from flips(item, (*path, i))
    elif isinstance(value, bytes):
        for bit in sorted({0, 4 * len(value), 8 * len(value) - 1} if value else ()):
            yield path, bit
    else:
        yield from ((path, bit) for bit in ((0,) if isinstance(value, bool) else (0, 1, 5)))


def flip(value, path, bit):
    if path:
        rest = list(value)
        rest[path[0]] = flip(value[path[0]], path[1:], bit)
        return tuple(rest)
    if isinstance(value, bytes):
        changed = bytearray(value)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)
    if isinstance(value, float):
        return struct.unpack(">d", flip(struct.pack(">d", value), (), bit))[0]
    return not value if isinstance(value, bool) else value ^ (1 << bit)


def cases():
    server, clients = cast(N, SETTINGS)
    tape = play(server, clients, VECTORS, silent={"masked": {12}})
    for name, kind in KINDS.items():
        message = messages.decode(tape.sent[name, 11], kind, 10**5)
        for field in fields(kind):
            for path, bit in flips(getattr(message, field.name)):
                yield name, field.name, path, bit


@pytest.mark.parametrize("name", KINDS)
def test_a_flipped_bit_in_any_field_of_any_message_is_detected_or_harmless(name):
    mine = [case for case in cases() if case[0] == name]
    assert {case[1] for case in mine} == {field.name for field in fields(KINDS[name])}
    detected = 0
    for _, field, path, bit in mine:

        def tamper(seen, participant, data, field=field, path=path, bit=bit):
            if (seen, participant) != (name, 11):
                return data
            message = messages.decode(data, KINDS[name], 10**5)
            return messages.encode(replace(message, **{field: flip(getattr(message, field), path, bit)}))

        server, clients = cast(N, SETTINGS)
        try:
            tape = play(server, clients, VECTORS, tamper=tamper, silent={"masked": {12}})
        except (ProtocolError, RoundFailed):
            detected += 1
            continue
        assert (tape.total == VECTORS[:2].sum(axis=0) % 64).all(), (field, path, bit)
    assert detected == len(mine)  # with no answer to spare, harmless does not occur


@pytest.mark.parametrize("malicious", [False, True])
def test_every_bit_of_a_masked_input_on_the_wire_is_covered(malicious):
    settings = Settings(dimension=D, bits=6, threshold=3, malicious=malicious)
    server, clients = cast(N, settings)
    size = len(play(server, clients, VECTORS).sent["masked answer", 11])
    for bit in range(0, 8 * size, 5):

        def tamper(seen, participant, data, bit=bit):
            return flip(data, (), bit) if (seen, participant) == ("masked answer", 11) else data

        server, clients = cast(N, settings)
        with pytest.raises(ProtocolError):
            play(server, clients, VECTORS, tamper=tamper)
