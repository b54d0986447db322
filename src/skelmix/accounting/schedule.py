"""How often given data enters the released sums, as observers and the aggregator see it."""

from __future__ import annotations

from dataclasses import dataclass

from skelmix.accounting.participations import Participations


@dataclass(frozen=True)
class Schedule:
    """The number of rounds, and how the data of a round is drawn.

    rounds: sums released. sampling: "poisson" (each enters independently), "fixed" (exactly `expected` of
    `population`, without replacement) or "none" (everyone, always). contribute: the probability with which
    a participant of a round secretly sends its vector, else zero. cap: rounds after which a participant
    contributes nothing more, None for no cap. secret: the draw is hidden from the aggregator, too.

    Example:

        >>> Schedule(rounds=1_000, sampling="poisson", expected=240, population=60_000).rate
        0.004
    """

    rounds: int
    sampling: str
    expected: int
    population: int
    contribute: float = 1.0
    cap: int | None = None
    secret: bool = False

    @property
    def participation(self) -> float:
        """The probability that a participant is in the cohort of a given round, which the aggregator sees."""
        return self.expected / self.population

    @property
    def rate(self) -> float:
        """Probability that given data is in the sum of a given round."""
        return self.participation * self.contribute

    @property
    def amplified(self) -> bool:
        """Whether sampling hides who contributed; it does not when everyone always contributes."""
        return self.rate < 1

    @property
    def independent(self) -> bool:
        """Whether participants contribute independently of each other, as the Poisson theorems need."""
        return self.sampling != "fixed" or self.expected == self.population

    @property
    def seen_by_aggregator(self) -> Participations:
        """How often the aggregator sees given data take part: cohorts as agreed, or with a cap at will."""
        return Participations(self.rounds, self.participation) if self.cap is None else self.at_will

    @property
    def at_will(self) -> Participations:
        """How often an aggregator that picks the cohorts can make a participant contribute."""
        return Participations(self.rounds, cap=self.cap)
