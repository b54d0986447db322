"""Those who upload in a round: what cohorts of participants and silos of records have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from skelmix.accounting.schedule import Schedule
from skelmix.errors import InvalidInput
from skelmix.validation import fraction, whole

if TYPE_CHECKING:
    from skelmix.planning.cohort import Cohort


class Contributors(ABC):
    """Those who upload in a round: what a plan asks of a `Cohort` and of `Silos` alike."""

    dropout_tolerance: float
    colluding: int

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

    def min_survivors(self, sampled: int) -> int:
        """Fewest uploads, of `sampled` that started, with which a sum may be opened: never one of several."""
        return max(1, min(2, sampled), math.ceil(sampled * self._kept))

    def shares(self, sampled: int) -> Fraction:
        """The divisor of a round's noise: the shares that are certain to be in an opened sum.

        Of `sampled` uploads; only shares unknown to the adversary count, 0 when there are none.

        sampled·(1 - tolerance) - colluding, at most min_survivors - colluding and not rounded: so the noise
        of a cohort that nobody leaves does not depend on its size (exactly, when one of the two is 0), and
        does not reveal whether somebody was sampled.
        """
        return max(Fraction(0), sampled * self._kept - self.colluding)

    @property
    def whole_shares(self) -> int:
        """`shares` of the expected uploads in whole uploads: the number that a plan's bounds are about."""
        return math.ceil(self.shares(self.uploads))

    def delta_for_small_cohorts(self, delta: float, rounds: int) -> float:
        """The part of δ that pays for rounds whose success reveals who was sampled."""
        return 0.0

    def delta_left_for_noise(self, delta: float, rounds: int) -> float:
        """What is left of δ for the noise."""
        return delta

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, read back by `contributors_from_dict`."""
        return {"kind": type(self).__name__.lower(), **asdict(self)}  # type: ignore[call-overload]

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Its numbers in the JSON of a plan."""

    @property
    def _kept(self) -> Fraction:
        return 1 - Fraction(self.dropout_tolerance).limit_denominator(10**6)

    def _check_uploads(self) -> None:
        fraction(dropout_tolerance=self.dropout_tolerance)
        whole(0, colluding=self.colluding)
        if self.shares(self.uploads) == 0:
            raise InvalidInput(
                f"colluding = {self.colluding}: must be below the {self.min_survivors(self.uploads)} "
                f"survivors of {self.uploads} expected uploads, or nobody adds noise; lower it or the "
                "dropout tolerance"
            )
