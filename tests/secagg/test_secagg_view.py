"""What the server sees is uniform but for the sum: chi-square at level 1e-9 each, with controls that fail."""

import hashlib
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2

from helpers.secure_rounds import cast, play
from skelmix.encoding.wrapping import unpack
from skelmix.secagg import checks, masking, messages, sets, sharing
from skelmix.secagg.client import Client
from skelmix.secagg.failures import UnsafeRequest
from skelmix.secagg.keys import KeyPair, self_mask_key
from skelmix.secagg.settings import Settings

LEVEL = 1e-9
D = 4096


def p_value(values: np.ndarray, bits: int) -> float:
    """Chi-square of the top (at most 8) bits against the uniform law."""
    kept = min(bits, 8)
    counts = np.bincount((values >> (bits - kept)).astype(np.int64), minlength=1 << kept)
    expected = values.size / (1 << kept)
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), (1 << kept) - 1))


def observe(
    bits: int, vectors: np.ndarray, *, channels: list[KeyPair] | None = None, round: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masked inputs as sent, the same with the self masks removed that the server learns, and the sum.

    `channels`: the long-lived keys of the participants, when they have been here before.
    """
    n = len(vectors)
    server, clients = cast(n, Settings(D, bits, threshold=2), round=round)
    if channels is not None:
        clients = {p: Client(p, key) for p, key in zip(clients, channels, strict=True)}
    tape = play(server, clients, vectors)
    sent = {p: messages.decode(tape.sent["masked answer", p], messages.MaskedInput, 10**6) for p in clients}
    masked = np.array([unpack(sent[p].payload, D, bits) for p in clients])
    answers = [messages.decode(tape.sent["unmask answer", p], messages.UnmaskShares, 10**6) for p in (10, 11)]
    bare = masked.copy()
    for index in range(n):
        seed = sharing.recover([1, 2], [dict(answer.seed_shares)[index] for answer in answers])
        masking.apply(bare[index], [], [self_mask_key(seed, server._transcript, index)])
        masking.reduce(bare[index], bits)
    return masked, bare, tape.total


@pytest.mark.parametrize("bits", [1, 5, 8, 12, 32])
def test_masked_inputs_are_uniform_before_and_after_the_self_masks_are_known(bits):
    vectors = np.zeros((4, D), np.uint64)
    vectors[0] = (1 << bits) - 1
    masked, bare, total = observe(bits, vectors)
    for row in (*masked, *bare):
        assert p_value(row, bits) > LEVEL
    # without the last row the rest is still uniform, and all rows together give the sum and nothing else
    modulus = 1 << bits
    partial = bare[:-1].astype(np.uint64).sum(axis=0) % modulus
    assert p_value(partial, bits) > LEVEL
    assert (bare.astype(np.uint64).sum(axis=0) % modulus == total).all()
    assert (total == vectors.sum(axis=0) % modulus).all()


@pytest.mark.parametrize("bits", [1, 8, 12])
def test_the_view_is_independent_of_the_vectors(bits):
    """Masked input minus vector is uniform too: subtracting the truth finds no trace of it."""
    vectors = np.random.default_rng(3).integers(0, 2**bits, (3, D)).astype(np.uint64)
    masked, bare, _ = observe(bits, vectors)
    for row, vector in zip((*masked, *bare), (*vectors, *vectors), strict=True):
        assert p_value((row.astype(np.uint64) - vector) % (1 << bits), bits) > LEVEL


def test_the_same_test_rejects_plain_vectors_and_masks_that_miss_one_value():
    assert p_value(np.zeros(D, np.uint8), 8) < LEVEL
    draws = np.random.default_rng(4).integers(0, 255, 64 * D)  # never 255
    assert p_value(draws, 8) < LEVEL


def two_rounds() -> list[float]:
    """p-values of the difference between the same participant's vectors in rounds 0 and 1 of one session,
    as sent and without self masks: long-lived keys and inputs are the same."""
    channels = [KeyPair.generate() for _ in range(3)]
    first, second = (observe(8, np.zeros((3, D), np.uint8), channels=channels, round=r) for r in (0, 1))
    return [
        p_value((old - new).astype(np.uint8), 8)
        for kind in (0, 1)
        for old, new in zip(first[kind], second[kind], strict=True)
    ]


def test_two_rounds_of_the_same_clients_share_no_mask():
    assert min(two_rounds()) > LEVEL


def test_pair_masks_from_the_long_lived_keys_alone_would_be_seen(monkeypatch):
    """The control: with a key that knows neither round nor fresh mask key, pair masks come again."""

    def of_the_pair(shared, transcript, one, other):
        return hashlib.sha256(bytes(sorted((one[0], other[0])))).digest()

    monkeypatch.setattr("skelmix.secagg.client.pair_mask_key", of_the_pair)
    values = two_rounds()
    assert min(values[:3]) > LEVEL  # as sent: the self masks are fresh
    assert max(values[3:]) < LEVEL


def split_view(seen: set[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A malicious server tells index 3, and nobody else, that only `seen` have shared; 3 never signs, the
    other three do. The vector of 3, what is left of it without its self mask, and the error of the sum."""
    rules = Settings(D, 8, threshold=3, malicious=True)
    server, clients = cast(4, rules)
    vectors = np.random.default_rng(6).integers(0, 4, (4, D)).astype(np.uint8)

    def lie(name: str, participant: int, data: bytes) -> bytes:
        if (name, participant) != ("masked request", 13):
            return data
        request = messages.decode(data, messages.MaskRequest, 10**5)
        rows = tuple(row for row in request.sealed if row[0] in seen)
        return messages.encode(replace(request, sharers=sets.bitmap(seen, 4), sealed=rows))

    tape = play(server, clients, vectors, tamper=lie, silent={"consistency": {13}})
    assert server.survivors == (10, 11, 12, 13)
    sent = messages.decode(tape.sent["masked answer", 13], messages.MaskedInput, 10**6)
    answers = [
        messages.decode(tape.sent["unmask answer", p], messages.UnmaskShares, 10**6) for p in (10, 11, 12)
    ]
    seed = sharing.recover([1, 2, 3], [dict(answer.seed_shares)[3] for answer in answers])
    left = unpack(sent.payload, D, 8)
    masking.apply(left, [], [self_mask_key(seed, server._transcript, 3)])
    return vectors[3], left, tape.total - vectors.sum(axis=0, dtype=np.uint8)


@pytest.mark.parametrize("seen", [{0, 1, 3}, {1, 2, 3}])
def test_a_client_shown_fewer_sharers_stays_hidden_though_the_others_open_the_survivors(seen):
    vector, left, error = split_view(seen)
    assert p_value(left - vector, 8) > LEVEL  # a pair mask with a signer is still on
    assert p_value(error, 8) > LEVEL  # and the sum is spoilt by the pair mask that only one side added


@pytest.mark.parametrize("seen", [{3}, {0, 3}, {2, 3}])
def test_a_client_shown_fewer_sharers_than_the_threshold_sends_nothing(seen):
    with pytest.raises(UnsafeRequest, match="too few"):
        split_view(seen)


def test_without_that_refusal_the_client_cut_off_would_be_exposed(monkeypatch):
    """The control: a client that masks with nobody, because it believes that nobody else has shared."""
    real = checks.delivered
    monkeypatch.setattr(checks, "delivered", lambda asked, got: real(asked, got) if got.sealed else {})
    vector, left, _ = split_view({3})
    assert (left == vector).all()


@pytest.mark.parametrize(("n", "threshold", "colluding"), [(3, 2, 0), (4, 3, 1), (5, 3, 0), (5, 4, 2)])
def test_no_lists_of_sharers_cut_an_honest_survivor_off_from_the_honest_signers(n, threshold, colluding):
    """Every list and every set of signers that the checks let pass; with a lower threshold some list cuts."""

    def cut(t: int) -> bool:
        everyone, bad = set(range(n)), set(range(colluding))
        lists = [set(c) for k in range(t, n + 1) for c in combinations(range(n), k)]
        return any(
            u not in signers and u in sharers and not sharers & signers - bad
            for signers in lists
            for u in everyone - bad
            for sharers in lists
        )

    assert 2 * threshold > n + colluding
    assert not cut(threshold)
    assert cut((n + colluding) // 2)
