"""The privacy target: the (ε, δ) that is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from skelmix.errors import InvalidInput
from skelmix.validation import positive, probability


@dataclass(frozen=True)
class PrivacyTarget:
    """The (ε, δ) that the whole job may spend, counted per participant (or per record, in silos).

    epsilon holds against everyone who sees the released sums or models. epsilon_aggregator, if given, is a
    second limit: against the aggregator, who also sees who takes part, at the same δ.

    Example:

        >>> PrivacyTarget(epsilon=3.0, delta=1e-6, epsilon_aggregator=8.0).epsilon_aggregator
        8.0
    """

    epsilon: float
    delta: float
    epsilon_aggregator: float | None = None

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon)
        probability(delta=self.delta)
        if self.epsilon_aggregator is None:
            return
        positive(epsilon_aggregator=self.epsilon_aggregator)
        if self.epsilon_aggregator < self.epsilon:
            raise InvalidInput(
                f"epsilon_aggregator = {self.epsilon_aggregator:g}: the aggregator sees all that observers "
                f"see, so it cannot be below epsilon = {self.epsilon:g}; lower epsilon too"
            )
