"""Which participants of a round send their vector, and which send zero: the coin and the cap."""

from __future__ import annotations

import hashlib
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


def sends_vector(cohort: Cohort, uploads: int, entropy: Entropy) -> bool:
    """Whether one participant sends its vector rather than zero in the upload that it is about to make.

    uploads: how many it has made in this run, this one included. The coin, with exactly the probability
    `Cohort.contribute`, is tossed at the cap too, so that the work is the same. The answer is secret.

    Example:

        >>> from skelmix.noise.entropy import system_entropy
        >>> cohort = Cohort.everyone(3, max_participations=2)
        >>> [sends_vector(cohort, uploads, system_entropy()) for uploads in (1, 2, 3)]
        [True, True, False]
    """
    heads = poisson(1, Fraction(cohort.contribute), entropy).size == 1
    allowed = cohort.max_participations is None or uploads <= cohort.max_participations
    return heads and allowed


class SimulatedChoices:
    """What simulated participants decide for themselves in each round: whether to send their vector.

    With `Cohort.contribute` each tosses a coin of its own; with `Cohort.max_participations` each counts its
    uploads, opened or not, and sends zero from then on. path: where the counts are kept, written before
    anything is sent, so that a crash never forgets an upload. Without a cap nothing is kept. The file shows
    how often each participant took part, which the aggregator knows anyway and observers must not; it never
    shows a coin.

    plan_digest: the plan that the counts belong to. charged: rounds of the run that were started before;
    after the first one a missing, damaged or foreign file raises `CorruptState`.

    Example:

        >>> from skelmix.noise.entropy import system_entropy
        >>> choices = SimulatedChoices(Cohort.everyone(3, max_participations=1))
        >>> everyone, entropy = np.arange(3), system_entropy()
        >>> choices.of(everyone, entropy).size, choices.of(everyone, entropy).size
        (3, 0)
    """

    def __init__(
        self, cohort: Cohort, path: Path | None = None, *, plan_digest: str = "", charged: int = 0
    ) -> None:
        self._contribute, self._cap = Fraction(cohort.contribute), cohort.max_participations
        self._path = None if self._cap is None else path
        self._plan = plan_digest.encode()
        self._uploads = np.zeros(0 if self._cap is None else cohort.population, np.int64)
        if self._path is not None and charged:
            self._uploads = self._read(self._path, cohort.population)
        elif self._path is not None:
            self._write(self._path)

    def of(self, participants: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
        """The participants who send their vector in this round; the others upload zero, with noise."""
        heads = participants[poisson(len(participants), self._contribute, entropy)]
        if self._cap is None:
            return heads
        allowed = self._uploads < self._cap
        self._uploads[participants] += 1
        if self._path is not None:
            self._write(self._path)
        return heads[allowed[heads]]

    def _write(self, path: Path) -> None:
        data = io.BytesIO()
        np.save(data, self._uploads, allow_pickle=False)
        write_atomically(path, data.getvalue() + self._checksum(data.getvalue()))

    def _read(self, path: Path, population: int) -> NDArray[np.int64]:
        """The counts of an earlier process, if the file is intact and belongs to this plan."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise CorruptState(
                f"{path} cannot be read ({error}): how often each took part is unknown; start another run"
            ) from error
        array, checksum = content[:-32], content[-32:]
        if checksum != self._checksum(array):
            raise CorruptState(
                f"{path} is damaged or of another plan: how often each took part is unknown; start another "
                "run, elsewhere"
            )
        uploads = np.load(io.BytesIO(array), allow_pickle=False)
        if uploads.shape != (population,):
            raise CorruptState(f"{path} belongs to another run: it does not count {population} participants")
        return np.asarray(uploads)

    def _checksum(self, array: bytes) -> bytes:
        return hashlib.sha256(b"participations" + self._plan + array).digest()
