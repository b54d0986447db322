"""Planted defects of noise in pieces: each is caught, and the sound protocol beside it is not flagged."""

from fractions import Fraction

import numpy as np

from helpers.hypothesis_tests import SHARE, follows
from helpers.repeats import agreement_p_value
from skelmix.accounting.openings import NoisePieces
from skelmix.noise import pieces
from skelmix.noise.laws import Skellam
from skelmix.noise.table import sampler
from skelmix.secagg import excess, server
from skelmix.secagg.in_memory import secure_sum

K, N, D = 60.0, 6, 1 << 21  # one part in 38 of the variance is missed with probability below 1e-12
CUTS = [-20, -8, -3, 0, 3, 8, 20]


def noise_of_a_round(*, base=True, d=D, round=0):
    """The noise in a sum of six zero vectors, one of which is missing."""
    draws = sampler(Skellam(Fraction(K) / N))
    rows = (draws.sample(d).astype(np.int64) % 65536 if base else np.zeros(d, np.int64) for _ in range(N))
    total = secure_sum(
        rows,
        modulus=65536,
        threshold=4,
        participants=N,
        colluding=1,
        dropouts={"masked": {2}},
        noise=K,
        round=round,
    )
    return total.view(np.int16).astype(int)


def as_planned(found):
    return follows(found, lambda k: float(Skellam(K).cdf_ball(k, 64)), CUTS)


def removed_twice(words, seeds, *, remove=False):
    seeds = list(seeds)
    pieces.add_pieces(words, seeds + seeds[:1] if remove else seeds, remove=remove)


def test_a_piece_that_is_removed_twice_is_caught(monkeypatch):
    assert as_planned(noise_of_a_round())
    monkeypatch.setattr(server, "pieces", type("Planted", (), {"add_pieces": removed_twice, "VERSION": 1}))
    assert not as_planned(noise_of_a_round())


def test_one_unit_short_is_caught(monkeypatch):
    """Each of five survivors keeps 37 of the 192 units in place of 38 or 39."""
    kept = NoisePieces.kept
    assert as_planned(noise_of_a_round())
    monkeypatch.setattr(NoisePieces, "kept", lambda self, survivors, rank: kept(self, survivors, rank) - 1)
    assert not as_planned(noise_of_a_round())


def test_seeds_that_come_again_in_another_round_are_caught(monkeypatch):
    """What the vectors bring is left out here, so that the kept pieces alone are compared."""

    def two_rounds():
        first, second = (noise_of_a_round(base=False, d=4096, round=number) for number in (1, 2))
        return agreement_p_value(first, second, Skellam(K / N))

    assert two_rounds() > SHARE
    monkeypatch.setattr(
        excess, "derive", lambda secret, purpose, transcript, index, piece: (index + piece).ljust(32, b"\0")
    )
    assert two_rounds() < SHARE
