"""What a party answers: its own limits, in a TOML file beside its data, whatever an analyst asks for."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skelmix.errors import InvalidInput, PolicyViolation
from skelmix.planning.plans import Plan
from skelmix.rounds.spending import Budget, Charge
from skelmix.statistics.asked import Asked
from skelmix.statistics.domains import checked_name
from skelmix.statistics.statements import KINDS
from skelmix.validation import positive, probability, whole

EXAMPLE = """\
# What this party answers. Nothing else is, whatever the analyst or the server asks for.
data = "stays.csv"         # .csv with a header line, or .parquet; paths are relative to this file
state = "state"            # the ledger of what was spent: keep this directory, and back it up
parties = 5                # the fewest parties that must answer together
# colluding = 1            # other parties that may share what they know; questions must allow for as many
# owner = "patient"        # protect all records of one patient together; leave out to protect each record
answer_seconds = 10        # every answer takes this long, so that its time does not show the data: raise it
                           # until no answer needs longer, which the log would say
count = true               # may `count` be asked? (every kind below but "sum" shows that number, too)

[budget]
epsilon_per_question = 1.0
epsilon_in_all = 3.0       # for all questions ever answered
delta_per_question = 1e-6
delta_in_all = 3e-6

[columns]                  # what may be asked of each column; other columns may not be asked at all
age = ["sum", "mean", "variance", "histogram", "quantiles", "crosstab"]
sex = ["histogram", "crosstab"]
diagnosis = ["histogram", "crosstab", "top"]
stay = ["sum", "mean", "quantiles"]
"""

_QUERY_KINDS = tuple(kind for kind in KINDS if kind not in ("count", "column"))
_OF_NUMBERS = {"sum", "mean", "variance", "quantiles"}
_KEYS = {"data", "state", "parties", "colluding", "owner", "answer_seconds", "count", "budget", "columns"}
_BUDGET = ("epsilon_per_question", "epsilon_in_all", "delta_per_question", "delta_in_all")


@dataclass(frozen=True)
class PartyPolicy:
    """The conditions under which a party answers questions about its records.

    data: its table. state: the directory of its ledger. parties: the fewest that must answer together.
    colluding: how many other parties may share what they know; a question must guard against as many.
    per_question, in_all: the most that one question, and all questions ever, may cost. columns: which kinds
    of query each column may be used in; a plain sum of rows is of kind "sum". count: whether the query
    `count` may be asked; every other kind but "sum" shows the number of records, too. owner: the column that
    names whose records are protected together, or None for record by record; questions must protect the same.
    answer_seconds: how long each answer takes.

    Example: `PartyPolicy.read(Path("policy.toml")).per_question.epsilon`.
    """

    data: Path
    state: Path
    parties: int
    per_question: Budget
    in_all: Budget
    columns: dict[str, frozenset[str]] = field(default_factory=dict)
    colluding: int = 0
    count: bool = True
    owner: str | None = None
    answer_seconds: float | None = None

    @classmethod
    def read(cls, path: Path) -> PartyPolicy:
        """The policy in a TOML file; `InvalidInput` names the key that is wrong or missing."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidInput(f"{path}: cannot be read ({error.strerror}); name a policy file") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path}: not TOML: {error}") from error
        try:
            return cls._from(content, path.resolve().parent)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from error

    @classmethod
    def _from(cls, content: dict[str, Any], directory: Path) -> PartyPolicy:
        _known(content, _KEYS, "key")
        budget = _table(content, "budget")
        _known(budget, set(_BUDGET), "budget")
        limits = {name: _number(budget, name) for name in _BUDGET}
        positive(**limits)
        probability(**{name: value for name, value in limits.items() if name.startswith("delta")})
        return cls(
            data=directory / _string(content, "data"),
            state=directory / (_string(content, "state") if "state" in content else "state"),
            parties=_whole(content, "parties", 2),
            colluding=_whole(content, "colluding", 0) if "colluding" in content else 0,
            per_question=Budget(limits["epsilon_per_question"], limits["delta_per_question"]),
            in_all=Budget(limits["epsilon_in_all"], limits["delta_in_all"]),
            columns={name: _kinds(name, kinds) for name, kinds in _table(content, "columns").items()},
            count=_truth(content, "count") if "count" in content else True,
            owner=checked_name(content["owner"], "owner") if "owner" in content else None,
            answer_seconds=_number(content, "answer_seconds") if "answer_seconds" in content else None,
        )

    @property
    def numeric_columns(self) -> tuple[str, ...]:
        """The columns that must hold numbers, since a query that may be asked needs them."""
        return tuple(name for name, kinds in self.columns.items() if kinds & _OF_NUMBERS)

    def check(self, asked: Asked, plan: Plan) -> None:
        """Raise `PolicyViolation`, with every reason, unless the question keeps to the policy.

        The plan's own claim must have been proved by now. The text depends on question and policy only.
        """
        if reasons := list(self._reasons(asked, plan)):
            raise PolicyViolation("; ".join(reasons))

    def _reasons(self, asked: Asked, plan: Plan) -> Iterator[str]:
        for column, kind in sorted(asked.uses):
            if not column:
                if not self.count:
                    yield "count may not be asked here"
            elif column not in self.columns:
                yield f"column {column!r} may not be asked here"
            elif kind not in self.columns[column]:
                yield f"{kind} of column {column!r} may not be asked here"
        cost, limit = question_cost(plan), self.per_question
        if not cost.epsilon <= limit.epsilon:
            yield f"the question costs ε = {cost.epsilon:.4g}, this party allows {limit.epsilon:g}"
        if not cost.delta <= limit.delta:
            yield f"the question costs δ = {cost.delta:.3g}, this party allows {limit.delta:g}"
        if plan.cohort.uploads < self.parties:
            yield f"{plan.cohort.uploads} parties are asked, this one answers among {self.parties} or more"
        if plan.cohort.colluding < self.colluding:
            yield (
                f"the plan guards against {plan.cohort.colluding} colluding parties, this one wants "
                f"{self.colluding}"
            )
        owner = None if asked.owners is None else asked.owners.column
        if owner != self.owner and self.owner is None:
            yield "this party protects each record by itself: ask without an owner"
        elif owner != self.owner:
            yield f"this party protects all records of one {self.owner!r} together: ask with that owner"


def question_cost(plan: Plan, purpose: str = "") -> Charge:
    """What answering costs: the larger of the ε for observers and for the aggregator."""
    report = plan.report
    return Charge(max(report.epsilon, report.epsilon_aggregator), report.delta, purpose)


def _known(table: dict[str, Any], allowed: set[str], what: str) -> None:
    if unknown := sorted(set(table) - allowed):
        raise InvalidInput(f"unknown {what} {unknown[0]!r}; there is {', '.join(sorted(allowed))}")


def _given(table: dict[str, Any], name: str) -> Any:
    if name not in table:
        raise InvalidInput(f"{name} is missing: `skelmix party --example` prints a whole policy")
    return table[name]


def _table(table: dict[str, Any], name: str) -> dict[str, Any]:
    value = _given(table, name)
    if not isinstance(value, dict):
        raise InvalidInput(f"{name} must be a table: write [{name}] and keys below it")
    return value


def _string(table: dict[str, Any], name: str) -> str:
    value = _given(table, name)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f'{name} = {value!r}: must be text in quotes, e.g. "stays.csv"')
    return value


def _number(table: dict[str, Any], name: str) -> float:
    value = _given(table, name)
    positive(**{name: value})
    return float(value)


def _whole(table: dict[str, Any], name: str, least: int) -> int:
    value = _given(table, name)
    whole(least, **{name: value})
    return int(value)


def _truth(table: dict[str, Any], name: str) -> bool:
    value = table[name]
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} = {value!r}: write true or false")
    return value


def _kinds(column: str, kinds: Any) -> frozenset[str]:
    checked_name(column, "column")
    if not isinstance(kinds, list) or not all(kind in _QUERY_KINDS for kind in kinds):
        raise InvalidInput(f"columns.{column} = {kinds!r}: list some of {', '.join(_QUERY_KINDS)}")
    return frozenset(kinds)
