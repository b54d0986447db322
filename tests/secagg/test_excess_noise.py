"""The noise of a sum is exactly what was planned, whoever drops out, and what is kept stays secret."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.hypothesis_tests import follows
from helpers.secure_rounds import cast, play
from skelmix.accounting.openings import honest_share
from skelmix.errors import InvalidInput
from skelmix.noise.laws import Skellam
from skelmix.noise.pieces import add_pieces
from skelmix.noise.table import sampler
from skelmix.secagg import sharing
from skelmix.secagg.excess import ExcessNoise
from skelmix.secagg.in_memory import secure_sum
from skelmix.secagg.sets import as_integer
from skelmix.secagg.settings import Settings

K = 300.0


@st.composite
def survivors(draw, most=60):
    """A round with noise K, and a set of survivors that opens it."""
    n = draw(st.integers(1, most))
    fewest = draw(st.integers(1, n))
    alive = draw(st.sets(st.integers(0, n - 1), min_size=fewest, max_size=n))
    return ExcessNoise(draw(st.floats(1e-6, 1e6)), n, fewest, draw(st.integers(0, 1))), sorted(alive)


@settings(max_examples=200, deadline=None)
@given(survivors())
def test_base_and_kept_pieces_of_any_survivors_add_up_to_exactly_the_planned_rate(case):
    excess, alive = case
    total = len(alive) * Fraction(excess.noise) / excess.participants
    for index in alive:
        removed = excess.removed(as_integer(alive), index)
        total += sum(excess.rate(piece) for piece in range(len(excess.sizes)) if piece not in removed)
    assert total == Fraction(excess.noise)


@pytest.mark.parametrize(("n", "fewest"), [(10, 7), (50, 35), (100, 59), (1, 1), (3, 2)])
@pytest.mark.parametrize("colluding", [0, 1])
def test_the_sum_holds_exactly_the_planned_rate_for_every_number_of_survivors(n, fewest, colluding):
    excess = ExcessNoise(K, n, fewest, colluding)
    for s in range(fewest, n + 1):
        for alive in (range(s), range(n - s, n)):
            kept = [set(range(len(excess.sizes))) - set(excess.removed(as_integer(alive), i)) for i in alive]
            rates = [sum((excess.rate(piece) for piece in pieces), Fraction(0)) for pieces in kept]
            assert sum(rates) + s * Fraction(K) / n == K
            assert max(rates) - min(rates) <= Fraction(K) / n / (32 if colluding else 1)


def recorded(server, clients, vectors, silent):
    """The sum of a round, and the pieces of noise that each client had drawn for it."""
    drawn = {}
    for client in clients.values():
        real = client.masked

        def masked(data, vector, participants, client=client, real=real):
            state = client._round
            secrets = enumerate(sharing.parts(bytes(state.pieces)))
            drawn[state.request.index] = state.excess.expandable(
                secrets, state.transcript, state.request.index
            )
            return real(data, vector, participants=participants)

        client.masked = masked
    return play(server, clients, vectors, silent=silent).total, drawn


SILENT = {
    "nobody": {},
    "before the upload": {"masked": {10, 13}},
    "after the upload": {"unmask": {11, 18}},
    "in every phase": {"share": {12}, "masked": {15}, "unmask": {19}},
}


@pytest.mark.parametrize("who", SILENT)
@pytest.mark.parametrize("malicious", [False, True])
def test_exactly_the_kept_pieces_are_left_in_the_sum(malicious, who):
    n, d, bits, silent = 10, 50, 11, SILENT[who]
    server, clients = cast(n, Settings(d, bits, 7, malicious=malicious, colluding=int(malicious), noise=K))
    rows = np.random.default_rng(3).integers(0, 1 << bits, (n, d))
    total, drawn = recorded(server, clients, rows, silent)
    gone = {p - 10 for phase in ("share", "masked") for p in silent.get(phase, ())}
    alive = sorted(set(range(n)) - gone)
    excess = server.settings.excess(n)
    expected = rows[alive].sum(axis=0).astype(np.uint16)
    for index in alive:
        removed = excess.removed(as_integer(alive), index)
        add_pieces(expected, [piece for i, piece in enumerate(drawn[index]) if i not in removed])
    assert (total == expected % (1 << bits)).all()
    assert len({seed for pieces in drawn.values() for seed, _ in pieces}) == len(drawn) * len(excess.sizes)


def noise_of(n, threshold, dropouts, *, noise=K, brought=None, d=160_000, **model):
    """The noise in a sum of zero vectors that bring Sk(noise/n, noise/n) each, or what is said instead."""
    base = sampler(Skellam(Fraction(brought or noise) / n))
    rows = (base.sample(d).astype(np.int64) % 65536 for _ in range(n))
    total = secure_sum(
        rows, modulus=65536, threshold=threshold, participants=n, dropouts=dropouts, noise=noise, **model
    )
    return total.view(np.int16).astype(int)


CUTS = [-40, -20, -10, -3, 0, 3, 10, 20, 40]


@pytest.mark.parametrize(
    ("n", "threshold", "dropouts", "model"),
    [
        (10, 7, {}, {}),
        (10, 7, {"masked": {0, 4}}, {"malicious": True}),
        (10, 7, {"masked": {0, 4, 9}}, {"colluding": 2}),
        (9, 3, {"masked": {0, 2, 4, 6, 8}}, {}),
        (10, 7, {"share": {1}, "masked": {3}, "unmask": {9}}, {"malicious": True}),
        (120, 96, {"masked": range(0, 24, 2), "unmask": range(1, 13, 2)}, {}),
    ],
)
def test_the_noise_of_a_sum_follows_the_planned_law_whoever_drops_out(n, threshold, dropouts, model):
    found = noise_of(n, threshold, dropouts, **model)
    assert follows(found, lambda k: float(Skellam(K).cdf_ball(k, 64)), CUTS)
    for wrong in (0.9 * K, 1.1 * K):  # a cut at ±40 misses them with probability below 1e-17
        assert not follows(found, lambda k, wrong=wrong: float(Skellam(wrong).cdf_ball(k, 64)), CUTS)


def test_without_the_noise_of_the_protocol_a_sum_with_dropouts_has_too_little():
    """The control of the one above: the same vectors in a round that adds and removes nothing."""
    found = noise_of(10, 7, {"masked": {0, 4}}, noise=0.0, brought=K)
    assert not follows(found, lambda k: float(Skellam(K).cdf_ball(k, 64)), CUTS)
    assert follows(found, lambda k: float(Skellam(0.8 * K).cdf_ball(k, 64)), CUTS)


def test_a_round_whose_participants_all_must_survive_adds_nothing():
    assert ExcessNoise(K, 9, 9).sizes == ExcessNoise(K, 9, 9, 2).sizes == ExcessNoise(0.0, 9, 3).sizes == ()


def test_one_piece_is_enough_where_nobody_colludes_and_a_majority_survives():
    assert ExcessNoise(K, 240, 141).sizes == ExcessNoise(K, 10, 7).sizes == (1,)
    assert ExcessNoise(K, 240, 141, colluding=5).sizes == (1, 2, 4, 8, 16)
    assert ExcessNoise(K, 9, 3).sizes == (1, 2)


def test_colluders_know_no_more_of_the_noise_than_was_planned_if_the_round_is_told_of_them():
    allowed = 1 - honest_share(7, 3)

    def known(colluding, s):
        excess = ExcessNoise(K, 10, 7, colluding)
        alive = as_integer(range(s))
        kept = [set(range(len(excess.sizes))) - set(excess.removed(alive, i)) for i in range(s)]
        rates = sorted(sum(map(excess.rate, pieces), Fraction(K) / 10) for pieces in kept)
        return sum(rates[-3:]) / Fraction(K)

    assert all(known(3, s) <= allowed for s in range(7, 11))
    assert any(known(0, s) > allowed for s in range(7, 11))


def test_noise_beyond_the_exact_tables_and_dropouts_before_joining_are_refused():
    rows = np.zeros((4, 3), np.uint8)
    for noise in (-1.0, np.nan, np.inf, 1e12, 5e-324):
        with pytest.raises(InvalidInput, match="noise"):
            secure_sum(rows, modulus=256, threshold=2, noise=noise)
    with pytest.raises(InvalidInput, match="divided by those who join"):
        secure_sum(rows, modulus=256, threshold=2, noise=1.0, dropouts={"advertise": {0}})
