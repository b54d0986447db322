"""Extra noise that covers possible dropouts, in pieces that are removed again when nobody drops out.

The sum of a round is to hold the noise Sk(K, K), whoever survives. Each of n participants encodes its vector
with Sk(K/n, K/n), its base, and `Client.masked` adds pieces of 1, 2, 4, … units to it, each from a secret of
its own (`accounting.openings.NoisePieces`). A unit is K/(32·n), or the whole base if nobody colludes: then
one piece is enough. Of the units of all n, each of s survivors is to keep its part, or one more. The server
is given the secrets of the pieces beyond those, and of no others, and removes them: everybody computes which
they are from the set of survivors that it unmasks for.
docs/explanation/exact-noise.md has the proof and the attacker's view.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from skelmix.accounting.openings import NoisePieces, units_per_participant
from skelmix.noise.pieces import LARGEST_RATE, Piece
from skelmix.secagg.keys import derive, number
from skelmix.secagg.sets import rank

MOST_PIECES = 22
"""2^22 units exceed 32·(the most participants): no round has more pieces per participant."""


@dataclass(frozen=True, slots=True)
class ExcessNoise:
    """The pieces of a round: `noise` is K, 0 for a round without; `fewest` survivors open it."""

    noise: float
    participants: int
    fewest: int
    colluding: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of the pieces that each participant adds to its base; none in a round without noise."""
        return self._division[1] if self.noise else ()

    @property
    def _division(self) -> tuple[NoisePieces, tuple[int, ...]]:
        return _divided(self.participants, self.fewest, units_per_participant(self.colluding))

    @property
    def no_table(self) -> bool:
        """Whether a piece has a rate beyond the largest exact table, or one that is zero as a float."""
        return any(not 0 < float(self.rate(piece)) <= LARGEST_RATE for piece in range(len(self.sizes)))

    def rate(self, piece: int) -> Fraction:
        """r of the piece's law Sk(r, r), as an exact number: its units' part of K."""
        division, sizes = self._division
        return Fraction(self.noise) * sizes[piece] / division.units

    def removed(self, survivors: int, index: int) -> tuple[int, ...]:
        """The pieces by which the noise of survivor `index` exceeds what it keeps among these survivors."""
        if not self.noise:
            return ()
        division, sizes = self._division
        extra = division.kept(survivors.bit_count(), rank(survivors, index)) - division.base
        return tuple(piece for piece, units in enumerate(sizes) if not extra & units)

    def expandable(self, secrets: Iterable[tuple[int, bytes]], transcript: bytes, index: int) -> list[Piece]:
        """What `add_pieces` takes, from (piece, secret) of participant `index`."""
        return [
            (derive(secret, b"noise piece", transcript, number(index), number(piece)), self.rate(piece))
            for piece, secret in secrets
        ]


@lru_cache(maxsize=64)
def _divided(participants: int, fewest: int, units: int) -> tuple[NoisePieces, tuple[int, ...]]:
    """The units that the noise is divided into, and the units of each piece."""
    division = NoisePieces(participants, fewest, units)
    return division, division.sizes
