"""Those who upload in a round: what cohorts of participants and silos of records have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from skelmix.accounting.openings import honest_share, likely_survivors, survivors_to_open, total_noise
from skelmix.accounting.schedule import Schedule
from skelmix.errors import InvalidInput
from skelmix.secagg.graph import LEAST_SPARSE
from skelmix.validation import fraction, whole

if TYPE_CHECKING:
    from skelmix.planning.cohort import Cohort


class Contributors(ABC):
    """Those who upload in a round: what a plan asks of a `Cohort` and of `Silos` alike.

    least_survivors: the fewest survivors that open a round, whatever its size. `plan` chooses it for
    mechanisms whose noise is drawn in pieces, so that the excess of a round can be removed and every opened
    sum carries the same noise. None: each participant adds a fixed share, and more survivors add more.
    """

    dropout_tolerance: float
    colluding: int
    dropout_rate: float | None
    least_survivors: int | None

    @property
    @abstractmethod
    def neighbours(self) -> str:
        """The two worlds that must look alike."""

    @property
    @abstractmethod
    def roster(self) -> Cohort:
        """Who is asked to upload in a round, and how they are drawn: what an engine runs."""

    @property
    @abstractmethod
    def uploads(self) -> int:
        """Uploads expected in a round."""

    @property
    @abstractmethod
    def divisor(self) -> float:
        """Vectors expected in a sum: what a sum is divided by to give a mean. A constant of the plan."""

    @property
    @abstractmethod
    def members(self) -> int:
        """How many are protected in all: participants, or records."""

    @abstractmethod
    def schedule(self, rounds: int) -> Schedule:
        """How often a member's data enters `rounds` rounds, as the accountant sees it."""

    def tolerated_survivors(self, asked: int) -> int:
        """How many of `asked` uploads remain when the tolerated fraction drops out.

        At least two, if two or more were asked. A server waits for that many answers, even where fewer would
        open the sum.
        """
        return max(1, min(2, asked), math.ceil(asked * self._kept))

    def min_survivors(self, sampled: int, *, malicious: bool = False, sparse: bool = True) -> int:
        """Fewest uploads, of `sampled` that started, with which a sum may be opened.

        At least two, if two or more started, and a majority with malicious=True (a round secured against a
        malicious server). A result above `sampled` means that the round cannot open. With `least_survivors`
        the result is that number, in general.

        sparse: whether the round may share masks along a sparse graph, which is the default for rounds of 100
        and more participants. With `least_survivors` it then needs as many as practically always survive at
        the assumed dropout rate (but no more than are tolerated), since fewer would need more neighbours.
        """
        if self.least_survivors is None:
            least = self.tolerated_survivors(sampled)
        elif not self.dropout_tolerance:
            least = max(self.least_survivors, sampled)
        elif sparse and not malicious and sampled >= LEAST_SPARSE:
            rate = self.dropout_tolerance if self.dropout_rate is None else self.dropout_rate
            tolerated = math.ceil(sampled * self._kept)
            least = max(self.least_survivors, min(tolerated, likely_survivors(sampled, float(rate))))
        else:
            least = self.least_survivors
        return survivors_to_open(least, sampled, self.colluding, malicious=malicious)

    def shares(self, sampled: int) -> Fraction:
        """The divisor of a round's noise: the shares that are certain to be in an opened sum.

        Of `sampled` uploads; only shares unknown to the adversary count, 0 when there are none. A sum that
        is opened with `min_survivors` holds all the noise that was accounted for, whoever adds it up.

        sampled·(1 - tolerance) - colluding, at most min_survivors - colluding and not rounded: so the noise
        of a cohort that nobody leaves does not depend on its size (exactly, when one of the two is 0), and
        does not reveal whether somebody was sampled. With `least_survivors` the engines divide by
        `encoding_shares` instead, and secure aggregation makes up for those who are missing; least_survivors
        - colluding shares are in any opened sum, whatever its size.
        """
        if self.least_survivors is None:
            return max(Fraction(0), sampled * self._kept - self.colluding)
        least = self.least_survivors if self.dropout_tolerance else self.min_survivors(sampled)
        return Fraction(max(0, least - self.colluding))

    def noise_in_sum(self, noise: float) -> float:
        """All noise in the sum of an expected round without dropouts; `noise`: the part behind ε.

        With `least_survivors` every opened sum has it, whatever its size and its dropouts.
        """
        if self.least_survivors is None:
            return float(Fraction(noise) * self.uploads / self.shares(self.uploads))
        return total_noise(noise, self.least_survivors, self.colluding)

    def encoding_shares(self, noise: float, sampled: int) -> Fraction:
        """The number by which `Mechanism.encode` divides its total `noise`, for one of `sampled` uploads.

        With `least_survivors` the noise of all of them is exactly `noise_in_sum`: ONLY for rounds of secure
        aggregation with `Settings.noise`, in which survivors make up for those who are missing; for any other
        sum use `shares`.
        """
        if self.least_survivors is None:
            return self.shares(sampled)
        return sampled * Fraction(noise) / Fraction(self.noise_in_sum(noise))

    def noisy_uploads(self, sampled: int, survivors: int) -> int:
        """How many uploads' noise is in a sum of `survivors` of `sampled`; see `encoding_shares`."""
        return survivors if self.least_survivors is None else sampled

    @property
    def divides_noise_into_pieces(self) -> bool:
        """Whether Skellam noise is drawn in pieces here, so that the excess can be removed."""
        return self.dropout_tolerance > 0

    @abstractmethod
    def with_least_survivors(self, delta: float, rounds: int) -> Self:
        """The same with the `least_survivors` that a plan of this many rounds needs where noise is in pieces.

        Raises `PrivacyUnattainable` when there is none.
        """

    def failing_rounds(self, dropout_rate: float, *, malicious: bool = False, sparse: bool = True) -> float:
        """The expected share of rounds that cannot be opened, when each upload fails with this probability.

        Uploads fail independently of each other. malicious, sparse: see `min_survivors`.
        """
        fraction(dropout_rate=dropout_rate)
        from scipy.special import bdtr  # loads slowly: clients that only check a plan do without

        sizes, masses = self._upload_counts()
        rules = {"malicious": malicious, "sparse": sparse}
        need = np.array([self.min_survivors(int(size), **rules) for size in sizes])
        short = np.where(need > sizes, 1.0, bdtr(np.minimum(need, sizes) - 1.0, sizes, 1 - dropout_rate))
        return min(1.0, float(short @ masses))

    @abstractmethod
    def _upload_counts(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """How many start a round, and with which probability."""

    @property
    def whole_shares(self) -> int:
        """`shares` of the expected uploads, as a whole number: the number that bounds are for."""
        return math.ceil(self.shares(self.uploads))

    def delta_for_small_cohorts(self, delta: float, rounds: int) -> float:
        """The part of δ that pays for rounds whose success reveals who was sampled."""
        return 0.0

    def delta_left_for_noise(self, delta: float, rounds: int) -> float:
        """What is left of δ for the noise."""
        return delta

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `contributors_from_dict`."""
        data: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        # left out where not in use, so that digests of older plans stay the same
        later = ("dropout_rate", "least_survivors")
        used = {name: value for name, value in data.items() if name not in later or value is not None}
        return {"kind": type(self).__name__.lower(), **used}

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Its numbers in the JSON of a plan."""

    @property
    def _kept(self) -> Fraction:
        return 1 - Fraction(self.dropout_tolerance).limit_denominator(10**6)

    def _check_uploads(self) -> None:
        fraction(dropout_tolerance=self.dropout_tolerance)
        whole(0, colluding=self.colluding)
        if self.dropout_rate is not None:
            fraction(dropout_rate=self.dropout_rate)
        if self.least_survivors is not None:
            whole(min(2, self.uploads), self.uploads, least_survivors=self.least_survivors)
            honest_share(self.least_survivors, self.colluding)  # there must be some
        if self.shares(self.uploads) == 0:
            raise InvalidInput(
                f"colluding = {self.colluding}: must be below the {self.min_survivors(self.uploads)} "
                f"survivors of {self.uploads} expected uploads, or nobody adds noise; lower it or the "
                "dropout tolerance"
            )
