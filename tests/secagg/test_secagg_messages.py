"""Messages decode to what was encoded; everything else is a MalformedMessage, and nothing but that."""

import tracemalloc
from dataclasses import fields, replace

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.secure_rounds import cast, play
from skelmix.secagg import messages, sets
from skelmix.secagg import settings as rules
from skelmix.secagg.failures import MalformedMessage
from skelmix.secagg.settings import Settings

ANSWERS = {
    "advertise": messages.Advertisement,
    "share": messages.Shares,
    "masked": messages.MaskedInput,
    "consistency": messages.Agreement,
    "unmask": messages.UnmaskShares,
}
REQUESTS = {
    "share": messages.ShareRequest,
    "masked": messages.MaskRequest,
    "consistency": messages.ConsistencyRequest,
    "unmask": messages.UnmaskRequest,
}
KINDS = [*ANSWERS.values(), *REQUESTS.values()]


def kind_of(name: str) -> type[messages.Message]:
    phase, side = name.split()
    return (ANSWERS if side == "answer" else REQUESTS)[phase]


@pytest.fixture(scope="module")
def recorded() -> dict[type[messages.Message], bytes]:
    """One message of each kind from a real round."""
    server, clients = cast(4, Settings(5, 7, 3, colluding=1, malicious=True, noise=50.0))
    tape = play(server, clients, np.ones((4, 5), int), silent={"masked": {12}})
    return {kind_of(name): data for (name, _), data in tape.sent.items()}


def reseal(body: bytes) -> bytes:
    return body + messages._checksum(body)


def test_there_is_one_message_of_each_kind(recorded):
    assert set(recorded) == set(KINDS)
    assert len({kind.KIND for kind in KINDS}) == len(KINDS) == 9
    assert all(len(kind.CHECKS) == len(fields(kind)) for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_round_trip_truncation_excess_and_foreign_kinds(kind, recorded):
    data = recorded[kind]
    message = messages.decode(data, kind, len(data))
    assert messages.encode(message) == data
    for other in KINDS:
        if other is not kind:
            with pytest.raises(MalformedMessage):
                messages.decode(data, other, len(data))
    with pytest.raises(MalformedMessage, match="at most"):
        messages.decode(data, kind, len(data) - 1)
    for wrong in (b"", data[:-1], data[1:], data + b"\0", data[:16], "text", None):
        with pytest.raises(MalformedMessage):
            messages.decode(wrong, kind, 10**6)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_flipped_bit_is_found(kind, recorded):
    data = recorded[kind]
    for at in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(MalformedMessage):
            messages.decode(bytes(flipped), kind, len(data))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damage_under_a_right_checksum_gives_another_valid_message_or_malformed(data, recorded):
    kind = data.draw(st.sampled_from(KINDS))
    body = bytearray(recorded[kind][: -messages.CHECKSUM_BYTES])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, min(len(body) - 1, 400)))] = data.draw(st.integers(0, 255))
    sealed = reseal(bytes(body))
    try:
        message = messages.decode(sealed, kind, len(sealed))
    except MalformedMessage:
        return
    assert messages.encode(message) == sealed


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=200), kind=st.sampled_from(KINDS))
def test_arbitrary_bytes_never_raise_anything_else(body, kind):
    for data in (body, reseal(body)):
        with pytest.raises(MalformedMessage):
            messages.decode(data, kind, 10**6)


def test_huge_claimed_lengths_are_refused_before_anything_is_allocated():
    for head in (b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 5000):
        with pytest.raises(MalformedMessage):
            messages.decode(reseal(head), messages.Shares, 10**6)


NESTED = b"\x97" + b"\xc0" * 7
NILS = {
    "one flat array": lambda size: b"\xdd" + size.to_bytes(4, "big") + b"\xc0" * size,
    "arrays of seven": lambda size: b"\xdd" + (size // 8).to_bytes(4, "big") + NESTED * (size // 8),
    "sevens of sevens": lambda size: b"\x97" * 5 + NESTED * (size // 8),
    "empty arrays": lambda size: b"\xdd" + size.to_bytes(4, "big") + b"\x90" * size,
    "rows of small cells": lambda size: (
        b"\xdd" + (size // 3).to_bytes(4, "big") + b"\x92\x00\x00" * (size // 3)
    ),
}


@pytest.mark.parametrize("filling", NILS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_body_of_containers_takes_no_more_memory_than_its_bytes(kind, filling, recorded):
    """In place of each field, and of the whole: a megabyte of them would be tens of megabytes of objects."""
    size = 1 << 20
    junk = NILS[filling](size)
    values = msgpack.unpackb(recorded[kind][: -messages.CHECKSUM_BYTES], use_list=False)
    parts = [msgpack.packb(value) for value in values]
    bodies = [junk]
    for at in range(len(parts)):
        bodies.append(bytes([0x90 + len(parts)]) + b"".join([*parts[:at], junk, *parts[at + 1 :]]))
    for body in map(reseal, bodies):
        tracemalloc.start()
        try:
            with pytest.raises(MalformedMessage):
                messages.decode(body, kind, len(body))
            assert tracemalloc.get_traced_memory()[1] < 2 * len(body)
        finally:
            tracemalloc.stop()


def test_another_version_and_non_canonical_encodings_are_refused(recorded):
    body = recorded[messages.Advertisement][: -messages.CHECKSUM_BYTES]
    values = msgpack.unpackb(body, use_list=True)
    values[0] = 1
    with pytest.raises(MalformedMessage, match="version 1"):
        messages.decode(reseal(msgpack.packb(values)), messages.Advertisement, 10**6)
    padded = body.replace(b"\xc4\x20", b"\xc5\x00\x20", 1)  # the same 32 bytes under a longer head
    assert padded != body
    with pytest.raises(MalformedMessage, match="canonical"):
        messages.decode(reseal(padded), messages.Advertisement, 10**6)
    for value in (True, 1.0, -1, 2**64 - 1):
        bad = replace(messages.decode(recorded[messages.Shares], messages.Shares, 10**6), sender=value)
        with pytest.raises(MalformedMessage):
            messages.decode(messages.encode(bad), messages.Shares, 10**6)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 65])
def test_bitmaps_hold_exactly_the_participants(n):
    survivors = {i for i in range(n) if i % 3 != 1}
    found = sets.members(sets.bitmap(survivors, n), n)
    assert {i for i in range(n + 3) if sets.contains(found, i)} == survivors
    assert found.bit_count() == len(survivors)
    for wrong in (b"", sets.bitmap(survivors, n) + b"\0", (1 << n).to_bytes(n // 8 + 1, "little")):
        with pytest.raises(MalformedMessage):
            sets.members(wrong, n)


@pytest.mark.parametrize("noise", [0.0, 50.0])
@pytest.mark.parametrize("malicious", [False, True])
def test_real_messages_keep_to_the_limits_and_the_documented_sizes(malicious, noise):
    n, d, b = 12, 1000, 7
    server, clients = cast(n, Settings(d, b, 9, colluding=1, malicious=malicious, noise=noise))
    w = 4 if noise else 0
    tape = play(server, clients, np.zeros((n, d), int), silent={"masked": {10}})
    k = n - 1
    documented = {
        messages.Advertisement: 160,
        messages.ShareRequest: 320 + 152 * (k + 1),
        messages.Shares: 170 + 16 * w + (54 + 16 * w) * k,
        messages.MaskRequest: 60 + n // 8 + (90 + 16 * w) * k,
        messages.MaskedInput: d * b // 8 + 140,
        messages.ConsistencyRequest: 60 + n // 8,
        messages.Agreement: 120,
        messages.UnmaskRequest: 60 + n // 8 + 70 * n,
        messages.UnmaskShares: 130 + (21 + 16 * w) * (k + 1),
    }
    limits = {
        messages.Advertisement: rules.limit_advertisement(),
        messages.ShareRequest: rules.limit_share_request(n),
        messages.Shares: rules.limit_shares(k, w),
        messages.MaskRequest: rules.limit_mask_request(n, k, w),
        messages.MaskedInput: rules.limit_masked_input(d * b // 8),
        messages.ConsistencyRequest: rules.limit_consistency_request(n),
        messages.Agreement: rules.limit_agreement(),
        messages.UnmaskRequest: rules.limit_unmask_request(n),
        messages.UnmaskShares: rules.limit_unmask_shares(k, w),
    }
    for (name, _), data in tape.sent.items():
        assert len(data) <= documented[kind_of(name)] <= limits[kind_of(name)], name
