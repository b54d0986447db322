"""Parties with policies, files and ledgers of their own, on the in-process fleet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import skelmix as sk
from skelmix.flower.desk import POLICY_KEY, ledger_of
from skelmix.flower.question_client import app
from skelmix.flower.question_server import ask_parties, unpacked
from skelmix.flower.waves import Waiting
from skelmix.statistics import Owners, Parties, StatisticsPlan, parse_question, plan_statistics
from skelmix.statistics.asked import AskedStatistics
from skelmix.statistics.party_policy import PartyPolicy

POLICY = """
data = "stays.csv"
parties = {parties}
{more}
[budget]
epsilon_per_question = 1.0
epsilon_in_all = {in_all}
delta_per_question = 1e-6
delta_in_all = 1e-5
[columns]
age = ["mean", "sum"]
stay = ["sum"]
diagnosis = ["histogram"]
"""
ASK = "count; mean(age, 0..110); histogram(diagnosis: A|B|C)"
QUICK = Waiting(5.0, 0.2, 0.01)


def planned(
    ask: str = ASK,
    *,
    parties: int = 3,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    owners: Owners | None = None,
) -> StatisticsPlan:
    group = Parties(parties, 900, owners)
    return plan_statistics(parse_question(ask), sk.PrivacyTarget(epsilon, delta), group)


def text_of(plan: StatisticsPlan) -> str:
    return AskedStatistics(plan.question, plan.parties.owners).to_text()


class Hospitals:
    """A fleet whose nodes are parties; every question is asked in a run of its own, unless told otherwise."""

    def __init__(
        self, directory: Path, fleet: Callable[..., Any], files: list[Path], *, in_all: float = 1.5,
        more: str = "", parties: int = 3,
    ) -> None:  # fmt: skip
        self.nodes = fleet(len(files))
        self.run = 100
        self.homes = {}
        for node, file in zip(self.nodes.apps, files, strict=True):
            home = directory / f"party-{node}"
            home.mkdir(parents=True)
            (home / "stays.csv").write_bytes(file.read_bytes())
            (home / "policy.toml").write_text(POLICY.format(in_all=in_all, more=more, parties=parties))
            self.homes[node] = home
            self.nodes.apps[node] = app
        self.next_run()

    def next_run(self) -> None:
        self.run += 1
        self.restart()

    def restart(self) -> None:
        """What SuperNodes lose with their processes: all that was in memory."""
        TaskIdentity.run_id = self.run
        for node, home in self.homes.items():
            config: dict[str, bool | float | int | str] = {POLICY_KEY: str(home / "policy.toml")}
            self.nodes.contexts[node] = Context(self.run, node, config, RecordDict(), {})

    def ask(self, plan: StatisticsPlan, text: str | None = None) -> dict[str, Any]:
        return ask_parties(self.nodes, plan.plan, text_of(plan) if text is None else text, QUICK)

    def total(self, plan: StatisticsPlan) -> Any:
        result = self.ask(plan)
        assert "total" in result, result
        return unpacked(result["total"])

    def charges(self) -> list[int]:
        """How many answers each party has charged."""
        policies = [PartyPolicy.read(home / "policy.toml") for home in self.homes.values()]
        return [len(ledger_of(policy).charges()) for policy in policies]
