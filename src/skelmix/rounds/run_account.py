"""What a run has spent so far: its ledger read without touching it, and the guarantee of its rounds."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from skelmix.display import Fact, Section, card_text
from skelmix.errors import CorruptState, InvalidInput
from skelmix.planning import Plan, PrivacyReport, privacy_report
from skelmix.rounds.ledger import read_ledger
from skelmix.wording import counted


@dataclass(frozen=True)
class SpentSoFar:
    """The rounds of a plan that were started, and what they cost; report is None before the first."""

    plan: Plan
    charged: int
    private: bool
    report: PrivacyReport | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what `skelmix account RUN --json` prints."""
        spent = self.report
        return {
            "rounds_charged": self.charged,
            "rounds_planned": self.plan.rounds,
            "epsilon": 0.0 if spent is None else spent.epsilon,
            "delta": self.plan.target.delta,
            "epsilon_aggregator": 0.0 if spent is None else spent.epsilon_aggregator,
            "epsilon_planned": self.plan.report.epsilon,
            "epsilon_aggregator_planned": self.plan.report.epsilon_aggregator,
            "bound": self.plan.report.bound,
            "private": self.private,
        }

    def __str__(self) -> str:
        left = self.plan.rounds - self.charged
        rounds = Fact(
            "rounds",
            f"{self.charged:,} of {counted(self.plan.rounds, 'round')} charged",
            f"{left:,} left" if left else "none left",
        )
        planned = Fact("planned", self.plan.report.headline)
        if self.report is None:
            return card_text("Nothing is spent yet", [Section("", (rounds, planned))])
        first, *rest = self.report.sections
        return card_text(
            f"Spent so far: {self.report.headline}",
            [Section(first.title, (rounds, planned, *first.facts)), *rest],
        )


def spent_so_far(path: Path, plan_file: Path | None = None) -> SpentSoFar:
    """What the run in a directory, or of a ledger, has spent.

    path: a run directory of `skelmix train`, or a ledger file, such as that of a `SecureGrid` on Flower.
    plan_file: the plan in JSON; by default plan.json beside the ledger. A running run may be asked about:
    nothing is locked or written. A torn last line counts as a started round. `InvalidInput` where a file is
    missing or the plan is another one, `CorruptState` where the ledger is damaged.
    """
    ledger = path / "ledger.jsonl" if path.is_dir() else path
    if not ledger.is_file():
        raise InvalidInput(
            f"{path}: has no ledger.jsonl; give the directory of a run, or the file that "
            "SecureGrid(ledger=…) names"
        )
    plan_file = ledger.with_name("plan.json") if plan_file is None else plan_file
    if not plan_file.is_file():
        raise InvalidInput(
            f"{plan_file}: no such file; a ledger names its plan by digest only: give the plan with "
            "--plan FILE (plan.to_json(), or skelmix plan --output)"
        )
    plan = Plan.from_json(plan_file.read_bytes())
    ledger_state = read_ledger(ledger)
    if (ledger_state.plan_digest, ledger_state.budget) != (plan.digest(), plan.rounds):
        raise InvalidInput(
            f"{plan_file}: is not the plan of {ledger}; give the plan that the run was started with"
        )
    report = None
    if ledger_state.charged:
        report = privacy_report(
            plan.mechanism, bound=plan.report.bound, cohort=plan.cohort, rounds=ledger_state.charged,
            delta=plan.target.delta, slack=plan.slack or None,
        )  # fmt: skip
        report = replace(report, reproducible=not ledger_state.private, simulated=_simulated(ledger.parent))
        if report.epsilon > plan.report.epsilon:  # fewer rounds never cost more: the plan's ε holds too
            report = replace(report, epsilon=plan.report.epsilon)
    return SpentSoFar(plan, ledger_state.charged, ledger_state.private, report)


def _simulated(directory: Path) -> bool:
    """Whether the run added its vectors in the clear, as its settings say."""
    path = directory / "config.json"
    if not path.is_file():
        return False
    try:
        return bool(json.loads(path.read_text())["secure"] == "simulated")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptState(f"{path} is damaged: {error}") from error
