"""Composition of the (ε, δ) of single rounds, for mechanisms without a Rényi bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.accounting.participations import Participations, smallest_cap
from skelmix.accounting.rdp.closed_form import composed_epsilon
from skelmix.mechanisms.bounds.bound import Bound, ProvedEpsilon

if TYPE_CHECKING:
    from skelmix.accounting.schedule import Schedule
    from skelmix.mechanisms.base import Mechanism


_RARE_SHARE = 0.01


class CompositionBound(Bound):
    """Linear or advanced composition, whichever is better, of a mechanism's `approximate_dp`."""

    name = "composition"
    statement = "(ε, δ) of one round, linear or advanced composition"
    certified = False
    amplifies_fixed_cohorts = False

    def epsilon(
        self, mechanism: Mechanism, schedule: Schedule, delta: float, slack: float | None = None
    ) -> ProvedEpsilon:
        # only the participant's own coin amplifies here; cohorts of a fixed size do not
        rate = schedule.rate if schedule.independent else schedule.contribute
        return ProvedEpsilon(composed_epsilon(mechanism.approximate_dp, rate, schedule.rounds, delta), self)

    def epsilon_aggregator(
        self,
        proved: ProvedEpsilon,
        mechanism: Mechanism,
        participations: Participations,
        contribute: float,
        delta: float,
    ) -> float:
        rare = _RARE_SHARE * delta  # pays for the chance of more participations than `most`
        most, left = participations.most, delta
        if not participations.fixed:
            often = smallest_cap(participations.rounds, participations.sampling_probability, rare)
            if often < most:
                most, left = often, delta - rare
        return composed_epsilon(mechanism.approximate_dp, contribute, most, left)
