"""Facts about noise that a seed stands for: the same everywhere, exactly Skellam, removed without a trace."""

import hashlib
import threading
from bisect import bisect_left
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from helpers.hypothesis_tests import follows
from skelmix.errors import InvalidInput
from skelmix.noise import pieces, table
from skelmix.noise.certified import resolve, thresholds
from skelmix.noise.entropy import SeedExpansion
from skelmix.noise.laws import Skellam
from skelmix.noise.pieces import SEGMENT, add_pieces

SEED = bytes(range(32))
LONG = SEGMENT + 1001

# rate, coordinates, the first twelve draws, SHA-256 of all draws as little-endian 32-bit integers
VECTORS = [
    (
        Fraction(5, 384),
        1000,
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        "44846b319284942c8f3c9e84a34b88893420ca4856bbef63a81708443d5115d7",
    ),
    (
        Fraction(1, 3),
        LONG,
        [0, 0, 0, 1, 1, 0, -1, 0, 0, 0, 0, 1],
        "cbf8a985ee7537854e1632150af07e10559bb83aae0d1c36c0b72ab17b2ad23d",
    ),
    (
        Fraction(25, 2),
        4096,
        [1, 3, -3, 4, 8, -1, -4, 0, -2, 2, 3, 6],
        "15b54ae0e0181be67da49bd9635c8dc842ddc9acb1111700e67af3e8c3e30e94",
    ),
    (
        Fraction(12345.678),
        LONG,
        [26, 87, -89, 141, 261, -33, -142, 1, -53, 74, 93, 199],
        "80ef8a36e44f5d107df83e84bb8bebeaf98054f936cd7f30d233c0a0e29b444a",
    ),
]


def expanded(rate, size, seed=SEED, dtype=np.uint32):
    words = np.zeros(size, dtype)
    add_pieces(words, [(seed, Fraction(rate))])
    return words.view(f"int{8 * words.itemsize}")


def by_the_book(rate, size, seed=SEED):
    """The expansion as the module's docstring describes it, with big integers and no table."""
    first, steps = thresholds(Skellam(rate), 64)
    found = []
    for segment in range(-(-size // SEGMENT)):
        cipher = Cipher(algorithms.AES(seed), modes.CTR(segment.to_bytes(8, "big") + bytes(8))).encryptor()
        count = min(SEGMENT, size - segment * SEGMENT)
        words = np.frombuffer(cipher.update(bytes(2 * count)), "<u2").tolist()
        drawn = {}
        for place, word in enumerate(words):
            low, high = word << 48, (word << 48) + (1 << 48) - 1
            at = bisect_left(steps, low)
            inside = at == bisect_left(steps, high) and (at == len(steps) or steps[at] != high)
            if 0 < word < 0xFFFF and inside:
                drawn[place] = first + at
        open_places = [place for place in range(count) if place not in drawn]
        more = np.frombuffer(cipher.update(bytes(8 * len(open_places))), "<u8").tolist()
        for place, extra in zip(open_places, more, strict=True):
            value = words[place] << 48 | extra >> 16
            at = bisect_left(steps, value)
            if (at < len(steps) and steps[at] == value) or value in (0, (1 << 64) - 1):
                bits = lambda: int.from_bytes(cipher.update(bytes(8)), "little")  # noqa: B023, E731
                drawn[place] = resolve(Skellam(rate), value << 64 | bits(), 128, bits)
            else:
                drawn[place] = first + at
        found += [drawn[place] for place in range(count)]
    return found


@pytest.mark.parametrize(("rate", "size", "start", "digest"), VECTORS)
def test_known_answers(rate, size, start, digest):
    drawn = expanded(rate, size)
    assert (drawn[:12].tolist(), hashlib.sha256(drawn.astype("<i4").tobytes()).hexdigest()) == (start, digest)


@pytest.mark.parametrize(("rate", "size"), [(Fraction(5, 384), 3000), (Fraction(7, 3), LONG), (900, 2000)])
def test_the_expansion_is_the_one_described(rate, size):
    assert expanded(rate, size).tolist() == by_the_book(rate, size)


def test_bits_beyond_the_64th_come_last_in_the_order_of_the_coordinates(monkeypatch):
    """An event of probability 2^-40 made common: every open coordinate is treated as undecided."""
    real = table._search

    def nothing_is_decided(words, places, more, steps, guide, first, out, undecided):
        real(words, places, more, steps, guide, first, out, undecided)
        more[:] = words[places].astype(np.uint64) << np.uint64(48) | more >> np.uint64(16)
        undecided[:] = np.arange(places.size)
        return places.size

    monkeypatch.setattr(table, "_search", nothing_is_decided)
    rate, size = Fraction(1250), 3000
    law, stream = Skellam(rate), SeedExpansion(SEED, bytes(16))
    sampler = table.sampler(law)
    words = np.empty(size, np.uint16)
    stream.fill(words)
    open_places = np.flatnonzero(sampler.values[words] == sampler.sentinel)
    more = np.empty(open_places.size, np.uint64)
    stream.fill(more)
    drawn = expanded(rate, size)
    assert open_places.size > 3
    for place, extra in zip(open_places, more.tolist(), strict=True):
        value = int(words[place]) << 48 | extra >> 16
        beyond = value << 64 | int.from_bytes(stream.bytes(8), "little")
        assert drawn[place] == resolve(law, beyond, 128, lambda: pytest.fail("128 bits decide"))


def test_the_draws_do_not_depend_on_chunks_threads_or_the_width_of_words(monkeypatch):
    seeds = [(hashlib.sha256(bytes([i])).digest(), Fraction(i + 1, 3)) for i in range(6)]
    whole = np.zeros(LONG, np.uint32)
    add_pieces(whole, seeds)
    for dtype in (np.uint8, np.uint16):
        narrow = np.zeros(LONG, dtype)
        add_pieces(narrow, seeds)
        assert (narrow == whole.astype(dtype)).all()
    monkeypatch.setattr(table, "CHUNK", 1000)
    parts = [np.zeros(LONG, np.uint32) for _ in seeds]
    threads = [threading.Thread(target=add_pieces, args=(p, [s])) for p, s in zip(parts, seeds, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(parts) == whole).all()
    for size in (1, 63, SEGMENT - 1, SEGMENT):  # the coordinates before stay as they are, but for open ones
        shorter = np.zeros(size, np.uint32)
        add_pieces(shorter, seeds[:1])
        assert np.mean(shorter == parts[0][:size]) > 0.99


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_what_was_added_is_removed_without_a_trace(dtype):
    seeds = [(hashlib.sha256(bytes([i])).digest(), Fraction(3**i, 7)) for i in range(9)]
    before = np.arange(LONG).astype(dtype)
    words = before.copy()
    add_pieces(words, seeds)
    assert (words != before).any()
    add_pieces(words, reversed(seeds), remove=True)
    assert (words == before).all()


@pytest.mark.parametrize("rate", [Fraction(1, 50), Fraction(7, 3)])
def test_draws_follow_the_skellam_law_and_segments_are_independent(rate):
    drawn = np.concatenate(
        [expanded(rate, 2 * SEGMENT, hashlib.sha256(bytes([i])).digest()) for i in range(8)]
    )
    cuts = range(-3, 4)
    law = Skellam(rate)
    assert follows(drawn, lambda k: float(law.cdf_ball(k, 64)), cuts)
    assert not follows(drawn, lambda k: float(Skellam(rate * Fraction(26, 25)).cdf_ball(k, 64)), cuts)
    assert not follows(drawn + 1, lambda k: float(law.cdf_ball(k, 64)), cuts)
    first, second = drawn.reshape(-1, 2, SEGMENT)[:, 0].ravel(), drawn.reshape(-1, 2, SEGMENT)[:, 1].ravel()
    twice = Skellam(2 * rate)
    assert follows(first + second, lambda k: float(twice.cdf_ball(k, 64)), cuts)
    assert not follows(first + first, lambda k: float(twice.cdf_ball(k, 64)), cuts)


def test_other_seeds_and_other_segments_give_other_draws():
    other = expanded(3, LONG, SEED[::-1])
    mine = expanded(3, LONG)
    assert np.mean(mine == other) < 0.3
    assert np.mean(mine[:1001] == mine[SEGMENT:]) < 0.3


def test_bad_words_seeds_and_rates_are_refused():
    for words in (np.zeros(3, np.int32), np.zeros((2, 2), np.uint8), np.zeros(8, np.uint8)[::2]):
        with pytest.raises(InvalidInput, match="words"):
            add_pieces(words, [])
    words = np.zeros(3, np.uint8)
    for seed in (bytes(31), bytes(33), "x" * 32):
        with pytest.raises(InvalidInput, match="32 secret bytes"):
            add_pieces(words, [(seed, Fraction(1))])
    for rate in (Fraction(0), Fraction(-1), Fraction(2 * pieces.LARGEST_RATE)):
        with pytest.raises(InvalidInput):
            add_pieces(words, [(SEED, rate)])
    assert not words.any()


def test_a_seed_expansion_is_the_keystream_in_order_however_it_is_asked_for():
    counter = (7).to_bytes(8, "big") + bytes(8)
    whole = Cipher(algorithms.AES(SEED), modes.CTR(counter)).encryptor().update(bytes(5_000_000))
    stream = SeedExpansion(SEED, counter)
    asked = b"".join(stream.bytes(size) for size in (1, 2, 0, 4096, 4095, 3_000_000, 17))
    assert asked == whole[: len(asked)]
    assert SEED.hex() not in repr(stream)
    with pytest.raises(TypeError, match="cannot be split"):
        stream.spawn()


@pytest.mark.parametrize("dtype", ["u1", "u2", "u8"])
def test_words_are_little_endian_on_machines_that_are_not(monkeypatch, dtype):
    monkeypatch.setattr("sys.byteorder", "big")
    stream = Cipher(algorithms.AES(SEED), modes.CTR(bytes(16))).encryptor().update(bytes(800))
    words = np.empty(800 // np.dtype(dtype).itemsize, dtype)
    SeedExpansion(SEED, bytes(16)).fill(words)
    native = np.dtype(dtype).newbyteorder("S")  # what this machine would call the other's order
    assert (words.view(native) == np.frombuffer(stream, f"<{dtype}")).all()
