"""From the statements of a text or a TOML file to typed queries, with domains filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from skelmix.errors import InvalidInput
from skelmix.statistics.domains import Axis, Bins, Bounds, Categories, Domain
from skelmix.statistics.queries import (
    Count,
    CrossTable,
    Histogram,
    Mean,
    Quantiles,
    Query,
    Question,
    Sum,
    Top,
    Variance,
)

KINDS = ("count", "sum", "mean", "variance", "histogram", "quantiles", "crosstab", "top", "column")
_EXAMPLES = {Bounds: "0..110", Bins: "0..60 by 1", Categories: "A|B|C"}
Kind = TypeVar("Kind", bound=Domain)
Fail = Callable[[int, str], NoReturn]


class UnreadableQuestion(InvalidInput):
    """A question that cannot be read; the message says where."""


@dataclass(frozen=True)
class ColumnUse:
    """A column named in a statement, with the domain stated there, and where."""

    name: str
    domain: Domain | None
    at: int


@dataclass(frozen=True)
class Statement:
    """One statement before the domains of its columns are filled in."""

    kind: str
    columns: tuple[ColumnUse, ...]
    numbers: tuple[float, ...]
    importance: float
    at: int


def resolve(statements: list[Statement], known: Mapping[str, Domain], fail: Fail) -> Question:
    """The question that the statements ask. `fail(at, problem)` raises with the place of a statement."""
    domains = _Domains(statements, known, fail)
    queries: dict[Query, None] = {}  # not a list: looking through it would take an analyst's long text hours
    importance: list[float] = []
    for statement in statements:
        if statement.kind == "column":
            continue
        try:
            query = _query(statement, domains, fail)
        except UnreadableQuestion:
            raise
        except InvalidInput as error:
            fail(statement.at, str(error))
        if query in queries:
            fail(statement.at, f"{query} is asked twice: ask it once, the answer would be the same")
        queries[query] = None
        importance.append(statement.importance)
    if not queries:
        fail(0, 'nothing is asked: write for example "count"')
    return Question(tuple(queries), tuple(importance))


def _query(statement: Statement, domains: _Domains, fail: Fail) -> Query:
    if statement.kind == "count":
        return Count()
    use = statement.columns[0]
    if statement.kind in ("sum", "mean", "variance"):
        kinds: dict[str, type[Sum] | type[Mean] | type[Variance]] = {
            "sum": Sum, "mean": Mean, "variance": Variance,
        }  # fmt: skip
        return kinds[statement.kind](use.name, domains.bounds(use))
    if statement.kind == "histogram":
        return Histogram(domains.axis(use))
    if statement.kind == "crosstab":
        return CrossTable(*map(domains.axis, statement.columns))
    if statement.kind == "quantiles":
        return Quantiles(use.name, domains.find(use, (Bins,)), statement.numbers)
    if len(statement.numbers) != 1 or not statement.numbers[0].is_integer():
        fail(statement.at, "top(...) lists how many? Write one whole number, e.g. top(diagnosis: A|B|C; 2)")
    return Top(Axis(use.name, domains.find(use, (Categories,))), int(statement.numbers[0]))


class _Domains:
    """The domain of each column: stated in place, else declared, else the only one stated elsewhere."""

    def __init__(self, statements: list[Statement], known: Mapping[str, Domain], fail: Fail) -> None:
        self._fail = fail
        self._declared: dict[str, Domain] = dict(known)
        self._stated: dict[str, dict[Domain, None]] = {}
        here: set[str] = set()
        for statement in statements:
            for use in statement.columns:
                if statement.kind == "column":
                    if use.domain is None:
                        fail(use.at, f"column({use.name}) states nothing: add its bounds or categories")
                    if use.name in here:
                        fail(use.at, f"column({use.name}) is declared twice: declare it once")
                    here.add(use.name)
                    self._declared[use.name] = use.domain
                elif use.domain is not None:
                    self._stated.setdefault(use.name, {})[use.domain] = None

    def find(self, use: ColumnUse, kinds: tuple[type[Kind], ...]) -> Kind:
        needs = " or ".join(_EXAMPLES[kind] for kind in kinds)
        if use.domain is not None:
            if not isinstance(use.domain, kinds):
                self._fail(use.at, f"{use.name}: {use.domain} does not fit here; write {needs}")
            return use.domain
        declared = self._declared.get(use.name)
        if isinstance(declared, kinds):
            return declared
        fitting = [domain for domain in self._stated.get(use.name, {}) if isinstance(domain, kinds)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            self._fail(use.at, f"{use.name}: several domains are stated elsewhere; say which one here")
        self._fail(
            use.at,
            f"{use.name}: nothing says which values it may take, and that is never read from the data; "
            f"write {use.name}: {needs}",
        )

    def axis(self, use: ColumnUse) -> Axis:
        kinds: tuple[type[Categories | Bins], ...] = (Categories, Bins)
        return Axis(use.name, self.find(use, kinds))

    def bounds(self, use: ColumnUse) -> Bounds:
        if use.domain is None:
            ranges = [self._declared.get(use.name), *self._stated.get(use.name, {})]
            if not any(isinstance(domain, Bounds) for domain in ranges):
                ends = {(domain.low, domain.high) for domain in ranges if isinstance(domain, Bins)}
                if len(ends) == 1:
                    return Bounds(*ends.pop())
        return self.find(use, (Bounds,))
