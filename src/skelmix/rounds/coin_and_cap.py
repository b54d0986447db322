"""Which participants of a round send their vector, and which send zero: the coin and the cap."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import CorruptState
from skelmix.noise.entropy import Entropy
from skelmix.planning import Cohort
from skelmix.rounds.files import write_atomically
from skelmix.rounds.sampling import poisson


class Contributions:
    """What simulated participants decide for themselves in each round: whether to send their vector.

    With `Cohort.contribute` each tosses a coin of its own; with `Cohort.max_participations` each counts its
    uploads, opened or not, and sends zero from then on. path: where the counts are kept, written before
    anything is sent, so that a crash never forgets an upload. Without a cap nothing is kept.

    Example:

        >>> from skelmix.noise.entropy import system_entropy
        >>> choices = Contributions(Cohort.everyone(3, max_participations=1))
        >>> everyone, entropy = np.arange(3), system_entropy()
        >>> choices.of(everyone, entropy).size, choices.of(everyone, entropy).size
        (3, 0)
    """

    def __init__(self, cohort: Cohort, path: Path | None = None) -> None:
        self._contribute, self._cap = Fraction(cohort.contribute), cohort.max_participations
        self._path = None if self._cap is None else path
        self._uploads = np.zeros(0 if self._cap is None else cohort.population, np.int64)
        if self._path is not None and self._path.exists():
            self._uploads = _read(self._path, cohort.population)

    def of(self, participants: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
        """Those who send their vector in this round; each of `participants` uploads, with its noise."""
        heads = participants[poisson(len(participants), self._contribute, entropy)]
        if self._cap is None:
            return heads
        allowed = self._uploads < self._cap
        self._uploads[participants] += 1
        if self._path is not None:
            data = io.BytesIO()
            np.save(data, self._uploads, allow_pickle=False)
            write_atomically(self._path, data.getvalue())
        return heads[allowed[heads]]


def _read(path: Path, population: int) -> NDArray[np.int64]:
    try:
        uploads = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise CorruptState(f"{path} is damaged: how often each took part is unknown ({error})") from error
    if uploads.shape != (population,) or uploads.dtype != np.int64 or (uploads < 0).any():
        raise CorruptState(f"{path} is of another run: it does not count {population} participants")
    return np.asarray(uploads)
