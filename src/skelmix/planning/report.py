"""The privacy report: the guarantee and what it assumes, as a privacy engineer signs it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from skelmix.display import Fact, Section, card_text
from skelmix.errors import InvalidInput
from skelmix.mechanisms.bounds import BOUNDS
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

    opening_delta: the part of delta that pays for rounds whose opening may reveal who was sampled.
    least_survivors: the fewest that open a round whatever its size, where every opened sum has the same
    noise; dropout_rate: the law of dropouts under which epsilon is then proved, None where it needs none.

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
    opening_delta: float = 0.0
    least_survivors: int | None = None
    dropout_rate: float | None = None

    def __post_init__(self) -> None:
        if self.bound not in BOUNDS:
            raise InvalidInput(f"bound = {self.bound!r}: must be one of {', '.join(BOUNDS)}")

    def to_dict(self) -> dict[str, Any]:
        """Every field, as plain data for JSON."""
        return asdict(self)

    @property
    def headline(self) -> str:
        """The claim in one line."""
        return (
            f"({up(self.epsilon)}, {up(self.delta)})-differential privacy over "
            f"{counted(self.rounds, 'round')}"
        )

    @property
    def verdict(self) -> str:
        """What the claim means and how far it is proved, in one sentence."""
        if self.reproducible:
            return "This run is not private: whoever knows its seed can subtract all the noise."
        text = (
            f"One {self.unit} is protected with ε = {up(self.epsilon)} at δ = {up(self.delta)} against "
            f"everyone who sees what was released in {counted(self.rounds, 'round')}"
        )
        text += " and does not know who took part" if self._secretly_sampled else ""
        if self.central:
            text += ", but not against the aggregator, who is trusted with every vector"
        elif math.isinf(self.epsilon_aggregator):
            text += "; nothing is claimed against the aggregator"
        elif self.epsilon_aggregator > self.epsilon:
            text += f"; ε = {up(self.epsilon_aggregator)} against the aggregator"
        else:
            text += "; the same against the aggregator"
        text += ", had this not been a simulation" if self.simulated and not self.central else ""
        return text + ("; one step is a model, not a proof." if self.modelled else ".")

    @property
    def _secretly_sampled(self) -> bool:
        """Whether ε rests on participants being drawn, and on observers not knowing whom."""
        return self.unit == "participant" and self.sampling != "none" and self.sampling_probability < 1

    @property
    def sections(self) -> tuple[Section, ...]:
        """All of the report as facts under three titles: the guarantee, its assumptions, what it leaves out.

        Terminal, page and `report.html` show these, so they say the same.
        """
        return (
            Section("", self.guarantee),
            Section("It holds if", self.assumptions),
            Section("Not covered", self.not_covered),
        )

    @property
    def guarantee(self) -> tuple[Fact, ...]:
        """Both ε, and the theorem behind them."""
        who = "who see all that is released"
        how = BOUNDS[self.bound].statement + (f", order {self.order}" if self.order else "")
        facts = [
            Fact(
                "ε for observers",
                up(self.epsilon),
                f"{who}, not who took part" if self._secretly_sampled else who,
            ),
            Fact("ε for the aggregator", *self._aggregator()),
            Fact("δ", up(self.delta)),
            *self._opening(),
            Fact("accounted by" if self.modelled else "proved by", f"{self.bound}: {how}"),
        ]
        if self.mu is not None:
            extra = f" up to total variation {up(self.slack)}" if self.slack else ""
            own = BOUNDS[self.bound].states_gdp
            by = "" if own else f", by the {self.mu_by} certificate"
            note = ("before sampling" if self.sampling_probability < 1 else "") + by
            facts.append(Fact("one round", f"{up(self.mu)}-GDP{extra}", note.removeprefix(", ")))
        elif self.mu_missing:
            facts.append(Fact("one round", f"no μ-GDP stated: {self.mu_missing}"))
        return tuple(facts)

    @property
    def assumptions(self) -> tuple[Fact, ...]:
        """What must be true for the guarantee to hold, one fact each, in plain words."""
        facts = [
            Fact("neighbours", f"{self.neighbours}; unit of privacy: one {self.unit}"),
            *self._aggregation(),
        ]
        if self.colluding:
            who = counted(self.colluding, f"other {'participant' if self.unit == 'participant' else 'silo'}")
            knows = "; colluders know who took part: see the aggregator's ε" if self._secretly_sampled else ""
            whose = "its" if self.colluding == 1 else "their"
            facts.append(Fact("colluders", f"up to {who} may give {whose} own noise to the adversary{knows}"))
        facts += self._sampling() if self.unit == "participant" else self._silos()
        drawn = self.sampling == "poisson" and self.sampling_probability < 1
        if BOUNDS[self.bound].assumed and (drawn or self.contribute < 1):
            facts.append(Fact("arithmetic", f"assumed, not proved: {BOUNDS[self.bound].assumed}"))
        if self.modelled:
            what = f"A MODEL, NOT PROVED: {self.modelled}"
            facts.append(Fact("model", what, "docs: guarantee, where amplification is a model", alarm=True))
        return tuple(facts)

    @property
    def not_covered(self) -> tuple[Fact, ...]:
        """What the guarantee says nothing about."""
        facts = []
        if self.reproducible:
            facts.append(Fact("this run", "NOT PRIVATE: this run used reproducible randomness", alarm=True))
        if self.central:
            who = "is trusted with everybody's vector: central privacy, not distributed"
            facts.append(Fact("the aggregator", who, alarm=True))
        elif self.simulated:
            who = (
                "SIMULATED: one process held all vectors and added them in the clear; the aggregator's ε is "
                "what secure aggregation would give"
            )
            facts.append(Fact("this machine", who, alarm=True))
        facts.append(
            Fact("other releases", "about the same people, including settings tried on them: their ε adds up")
        )
        if not (self.colluding or self.central) and self.min_survivors > 1:
            contributor = "participant" if self.unit == "participant" else "silo"
            facts.append(
                Fact(
                    f"other {contributor}s",
                    f"each {contributor} of a round knows its own part of the noise: plan with colluding=1 "
                    "or more for an ε against it",
                )
            )
        if self.unit != "participant":
            facts += [
                Fact("two silos", f"an individual with {self.unit}s in more than one silo"),
                Fact(
                    "time",
                    f"how long a silo takes depends on how many {self.unit}s it adds up: whoever can time it "
                    "learns about that number, unless it answers after a fixed time",
                ),
            ]
        facts.append(Fact("groups", f"what many have in common: ε is for one {self.unit}"))
        return tuple(facts)

    def _opening(self) -> list[Fact]:
        """The part of δ that pays for openings; nothing where it is too small to show in any digit of δ."""
        if self.opening_delta < self.delta / 1_000:
            return []
        what = "of δ pays for what may be revealed by whether a round opens"
        return [Fact("opening", f"{up(self.opening_delta)} {what}")]

    def _aggregation(self) -> list[Fact]:
        """How the vectors are added up."""
        if self.central or self.min_survivors <= 1:
            return []
        if self.least_survivors is not None and self._secretly_sampled and self.dropout_rate is None:
            text = (
                f"opens a sum only if everyone in its cohort answers, at least {self.least_survivors:,}: "
                "every opened sum has the same noise"
            )
            return [Fact("secure aggregation", text)]
        varies = self._secretly_sampled and self.sampling == "poisson"
        text = "opens a sum only with "
        if self.least_survivors is not None:
            text += f"at least {self.least_survivors:,} survivors"
            text += ", however small the cohort is" if varies else ""
            if self.min_survivors > self.least_survivors:
                which = "a cohort of the expected size" if varies else "a round"
                text += f"; by default, {which} needs {self.min_survivors:,}"
            text += ". Excess noise is removed, so every opened sum has the same noise"
        elif varies:
            text += (
                f"enough survivors for the promised noise: at least {self.min_survivors:,} in a cohort of "
                "the expected size, proportionally fewer or more in other cohorts"
            )
        else:
            text += (
                f"at least {self.min_survivors:,} survivors: with that many noise shares the promised noise "
                "is complete"
            )
        return [Fact("secure aggregation", text)]

    def _sampling(self) -> list[Fact]:
        """How participants are drawn, and who sees it."""
        facts = []
        if self.sampling == "none" or self.sampling_probability == 1:
            facts.append(
                Fact(
                    "sampling", "everyone takes part in every round: no amplification by sampling is claimed"
                )
            )
        else:
            facts.append(
                Fact(
                    "sampling",
                    f"cohorts are drawn by {self.sampling} sampling at rate {self.sampling_probability:.6g}, "
                    "one per round, whether its sum opens or not, secret from those whom ε is claimed "
                    "against, and dropouts do not depend on who was sampled; the aggregator knows "
                    "who took part: see its own ε",
                )
            )
        if self.dropout_rate is not None:
            facts.append(
                Fact(
                    "dropouts",
                    f"each participant drops out with probability {self.dropout_rate:g} at most, "
                    "independently of the others, of who was sampled and of the order of a sparse graph",
                )
            )
        if self.contribute < 1:
            facts.append(
                Fact(
                    "coin",
                    f"with probability {self.contribute:g} a participant of a round sends its vector, by a "
                    "secret coin of its own, else zero; dropouts do not depend on it",
                )
            )
        if self.max_participations is not None:
            facts.append(
                Fact(
                    "cap",
                    f"a participant contributes to at most {counted(self.max_participations, 'round')}, "
                    "whoever picks the cohorts, and joins later ones with the zero vector",
                )
            )
        return facts

    def _silos(self) -> list[Fact]:
        """What silos draw, what is public of them, and what must not stop them."""
        if self.sampling_probability == 1:
            drawn = f"every {self.unit} is in every round: no amplification by sampling is claimed"
            dropouts = f"of silos do not depend on their {self.unit}s"
        else:
            drawn = (
                f"each silo draws its {self.unit}s independently at rate {self.sampling_probability:.6g}, "
                "afresh in every round and secretly: the aggregator learns no more than observers do"
            )
            dropouts = f"whether a silo drops out does not depend on its {self.unit}s or its draw"
        public = (
            f"all that the plan says, its number of {self.unit}s included: a constant, possibly rough, that "
            "was not counted from secret data"
        )
        return [Fact("sampling", drawn), Fact("public", public), Fact("dropouts", dropouts)]

    def _aggregator(self) -> tuple[str, str]:
        """ε against the aggregator, and which aggregator it holds against."""
        if math.isinf(self.epsilon_aggregator):
            return "none", "nothing is claimed against it"
        value = up(self.epsilon_aggregator)
        if self.unit != "participant" and self.sampling_probability == 1:
            return value, f"it knows that every {self.unit} takes part"
        if self.unit != "participant":
            return value, f"it does not see which {self.unit}s are drawn"
        if self.max_participations is not None:
            return (
                value,
                f"at most {counted(self.max_participations, 'contribution')}, cohorts picked at will",
            )
        if self.sampling == "none" or self.sampling_probability == 1:
            return value, "it knows that everyone takes part"
        picked = f"{up(self.epsilon_every_round)} if it picks the same participant every round"
        return value, f"cohorts drawn as agreed; {picked}"

    def __str__(self) -> str:
        return card_text(self.headline, self.sections)
