"""How often one participant's data enters the released sums, as an accountant sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Rounds, and how the data of a round is drawn.

    rounds: sums released. sampling: "poisson" (each enters independently), "fixed" (exactly `expected` of
    `population`, without replacement) or "none" (everyone, always).

    Example:

        >>> Schedule(rounds=1_000, sampling="poisson", expected=240, population=60_000).rate
        0.004
    """

    rounds: int
    sampling: str
    expected: int
    population: int

    @property
    def rate(self) -> float:
        """Probability that given data is in a given round."""
        return self.expected / self.population

    @property
    def amplified(self) -> bool:
        """Whether sampling hides who takes part: not when everyone always does."""
        return self.expected < self.population
