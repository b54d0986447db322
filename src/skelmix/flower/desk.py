"""A party's decision about a question: its policy file, its ledger, and the limits for the mod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skelmix.errors import BudgetExhausted, InvalidInput, PolicyViolation, ProtocolError
from skelmix.flower.policy import ClientPolicy
from skelmix.rounds.spending import Charge, SpendingLedger
from skelmix.statistics.party_policy import PartyPolicy

if TYPE_CHECKING:
    from skelmix.planning import Plan

POLICY_KEY = "skelmix-policy"
LEDGER = "spent.jsonl"


def ledger_of(policy: PartyPolicy) -> SpendingLedger:
    """The record of all that the party has ever spent."""
    return SpendingLedger(policy.state / LEDGER)


@dataclass(frozen=True)
class Desk:
    """A party's policy and its ledger, for the time of one message. Every refusal is about the question."""

    policy: PartyPolicy

    @classmethod
    def opened(cls, node_config: Mapping[str, Any]) -> Desk:
        """The desk whose policy file the node-config names as skelmix-policy."""
        path = node_config.get(POLICY_KEY)
        if not isinstance(path, str):
            raise InvalidInput(
                f"this app answers questions: name the policy file, --node-config '{POLICY_KEY}=\"…\"'"
            )
        return cls(PartyPolicy.read(Path(path)))

    @property
    def client_policy(self) -> ClientPolicy:
        """The limits on plan and rounds. One question is one round, so all of its ε are the same number."""
        limit = self.policy.per_question
        return ClientPolicy(
            max_epsilon=limit.epsilon,
            max_epsilon_aggregator=limit.epsilon,
            max_epsilon_round=1.001 * limit.epsilon,  # room for rounding: it is computed another way
            max_delta=limit.delta,
            min_cohort=self.policy.parties,
            mechanisms=("smm", "dgm"),
            allow_modelled=False,
            answer_seconds=self.policy.answer_seconds,
        )

    def check(self, question: str, plan: Plan) -> None:
        """Raise `PolicyViolation` or `ProtocolError`, with a text for the server, if it must be refused."""
        from skelmix.statistics.asked import asked_from_text, check_asked_plan

        try:
            asked = asked_from_text(question)
            check_asked_plan(asked, plan)
        except InvalidInput as error:  # it is about the analyst's text
            raise ProtocolError(str(error)) from error
        self.policy.check(asked, plan)
        report = plan.report
        if report.epsilon_aggregator > report.epsilon:
            raise ProtocolError("the plan costs more against the aggregator than against observers")
        self._within_budget(Charge(report.epsilon, report.delta, question), charge=False)

    def rehearse(self, question: str, plan: Plan) -> None:
        """Compile all that the answer needs, before its time is measured: on made-up records."""
        from skelmix.statistics.asked import asked_from_text
        from skelmix.statistics.rehearsal import rehearse

        self.policy.state.mkdir(parents=True, exist_ok=True)
        rehearse(asked_from_text(question), plan, self.policy.state)

    def charge(self, question: str, epsilon: float, delta: float) -> None:
        """Put the cost on disk, before the data is read; `PolicyViolation` when too little is left."""
        self._within_budget(Charge(epsilon, delta, question), charge=True)

    def _within_budget(self, cost: Charge, *, charge: bool) -> None:
        ledger = ledger_of(self.policy)
        try:
            (ledger.charge if charge else ledger.check)(cost, self.policy.in_all)
        except BudgetExhausted as error:
            raise PolicyViolation(f"this party has answered as much as it allows: {error}") from error
