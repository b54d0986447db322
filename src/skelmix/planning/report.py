"""The privacy report: the guarantee and what it assumes, as a privacy engineer signs it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from skelmix.errors import InvalidInput
from skelmix.mechanisms.bounds import BOUNDS, GaussianBound
from skelmix.wording import counted, up


@dataclass(frozen=True)
class PrivacyReport:
    """The guarantee of a plan, with every assumption behind it.

    (ε, δ) against those who see the models or sums, and ε against the aggregator.

    epsilon holds against observers of all released sums and models, who do not know who took part.
    epsilon_aggregator holds against an adversary who also sees who takes part, when cohorts are drawn as
    agreed; with a cap, however they are drawn. epsilon_every_round holds against one that picks the same
    participant for every round. Infinity means that no claim is made.

    mu: one round, before sampling, is mu-GDP up to total variation `slack`, by the certificate `mu_by`
    ("gdp", "flat", or "gaussian", the central one itself). It is stated whichever bound gave ε, and need not
    lead to that ε. None when there is no certificate; `mu_missing` says why.

    modelled: a step of epsilon that is a model and not proved, in words; empty when there is none.
    epsilon_aggregator has none, except for DGM's certified bounds in cohorts smaller than expected. central:
    the aggregator is trusted with the vectors. simulated: they were added in the clear, by one process.

    Example:

        >>> report = PrivacyReport(
        ...     epsilon=1.0, delta=1e-6, bound="rdp", epsilon_aggregator=1.0, rounds=1, sampling="none",
        ...     sampling_probability=1.0, min_survivors=9, colluding=0, order=12,
        ... )
        >>> str(report).splitlines()[0]
        '(1, 1e-06)-differential privacy over 1 round'
    """

    epsilon: float
    delta: float
    bound: str
    epsilon_aggregator: float
    rounds: int
    sampling: str
    sampling_probability: float
    min_survivors: int
    colluding: int
    order: int | None = None
    mu: float | None = None
    slack: float = 0.0
    mu_by: str | None = None
    mu_missing: str = ""
    epsilon_every_round: float = math.inf
    contribute: float = 1.0
    max_participations: int | None = None
    neighbours: str = "one participant's vector replaced by the zero vector"
    unit: str = "participant"
    modelled: str = ""
    central: bool = False
    simulated: bool = False
    reproducible: bool = False

    def __post_init__(self) -> None:
        if self.bound not in BOUNDS:
            raise InvalidInput(f"bound = {self.bound!r}: must be one of {', '.join(BOUNDS)}")

    def to_dict(self) -> dict[str, Any]:
        """Every field, as plain data for JSON."""
        return asdict(self)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must be true for the guarantee to hold, in plain words."""
        lines = [f"Neighbours: {self.neighbours}; unit of privacy: one {self.unit}.", *self._aggregation()]
        if self.colluding:
            who = "participants" if self.unit == "participant" else "silos"
            lines.append(f"Up to {self.colluding} other {who} may give their own noise to the adversary.")
        lines += self._sampling() if self.unit == "participant" else self._silos()
        drawn = self.sampling == "poisson" and self.sampling_probability < 1
        if BOUNDS[self.bound].assumed and (drawn or self.contribute < 1):
            lines.append(f"Assumed of the arithmetic, not proved: {BOUNDS[self.bound].assumed}.")
        if self.modelled:
            lines.append(
                f"A MODEL, NOT PROVED: {self.modelled} (docs: guarantee, where amplification is a model)."
            )
        if self.reproducible:
            lines.append("NOT PRIVATE: this run used reproducible randomness.")
        return tuple(lines)

    def _aggregation(self) -> list[str]:
        """How the vectors are added up, and who is trusted with what."""
        if self.central:
            return ["The aggregator is trusted with everybody's vector: central privacy, not distributed."]
        if self.simulated:
            return [
                "SIMULATED: one process held all vectors and added them in the clear. ε against the "
                "aggregator is what secure aggregation, opened only with at least "
                f"{self.min_survivors} survivors of an expected round, would give."
            ]
        if self.min_survivors > 1:
            return [
                f"Secure aggregation adds up, and opens a sum only with at least {self.min_survivors} "
                "survivors of an expected round (fewer in a smaller one, more in a larger one): with that "
                "many noise shares the promised noise is complete."
            ]
        return []

    def _sampling(self) -> list[str]:
        """How participants are drawn, and who sees it."""
        lines = []
        if self.sampling == "none" or self.sampling_probability == 1:
            lines.append("Everyone takes part in every round: no amplification by sampling is claimed.")
        else:
            lines.append(
                f"Cohorts are drawn by {self.sampling} sampling at rate {self.sampling_probability:.6g}, "
                "secret from those whom ε is claimed against, and dropouts do not depend on who was sampled. "
                "The aggregator knows who took part: see its own ε."
            )
        if self.contribute < 1:
            lines.append(
                "Each participant of a round sends its vector only with probability "
                f"{self.contribute:g}, by a secret coin of its own, else zero; dropouts do not depend on it."
            )
        if self.max_participations is not None:
            lines.append(
                f"A participant contributes to at most {counted(self.max_participations, 'round')}, whoever "
                "picks the cohorts, and joins later ones with the zero vector."
            )
        return lines

    def _silos(self) -> list[str]:
        return [
            f"Each silo draws its {self.unit}s independently at rate {self.sampling_probability:.6g}, afresh "
            "in every round and secretly: the aggregator learns no more than observers do.",
            "Whether a silo drops out does not depend on its records or its draw. A person with records in "
            "two silos is not covered.",
        ]

    def _aggregator_statement(self) -> str:
        """Against which aggregator ε holds, in a few words."""
        if self.unit != "participant":
            return f"it does not see which {self.unit}s are drawn"
        if self.max_participations is not None:
            return f"at most {counted(self.max_participations, 'contribution')}, cohorts picked at will"
        if self.sampling == "none" or self.sampling_probability == 1:
            return "it knows that everyone takes part"
        return f"cohorts drawn as agreed; {up(self.epsilon_every_round)} if it picks one every round"

    def __str__(self) -> str:
        how = BOUNDS[self.bound].statement + (f", order {self.order}" if self.order else "")
        lines = [
            f"({up(self.epsilon)}, {up(self.delta)})-differential privacy over "
            f"{counted(self.rounds, 'round')}",
            f"  {'accounted by' if self.modelled else 'proved by':<21} {self.bound}: {how}",
        ]
        if self.mu is not None:
            extra = f" up to total variation {up(self.slack)}" if self.slack else ""
            own = isinstance(BOUNDS[self.bound], GaussianBound)
            by = "" if own else f" (by the {self.mu_by} certificate)"
            lines.append(f"  one round             {up(self.mu)}-GDP{extra}, before sampling{by}")
        elif self.mu_missing:
            lines.append(f"  one round             no μ-GDP stated: {self.mu_missing}")
        lines.append(
            f"  against the aggregator ε = {up(self.epsilon_aggregator)} ({self._aggregator_statement()})"
        )
        lines += [f"  - {line}" for line in self.assumptions]
        return "\n".join(lines)
