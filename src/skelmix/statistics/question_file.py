"""Read a question from a TOML file: the same content as the text, one table per query."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NoReturn

from skelmix.errors import InvalidInput
from skelmix.statistics.domains import Bins, Bounds, Categories, Domain, checked_name
from skelmix.statistics.parsing import parse_domain
from skelmix.statistics.queries import Question
from skelmix.statistics.statements import KINDS, ColumnUse, Statement, UnreadableQuestion, resolve

_KEYS = {
    "kind", "column", "columns", "bounds", "width", "categories", "probabilities", "k", "importance",
}  # fmt: skip
_LARGEST = 4_000_000  # bytes


def read_question(path: Path) -> Question:
    """The question in a TOML file; `InvalidInput` names the query and the key that could not be read.

    [columns]                       # domains for columns that are named without one
    sex = ["F", "M"]
    age = "0..110"

    [[query]]
    kind = "histogram"
    column = "diagnosis"
    categories = ["A", "B", "C"]

    [[query]]
    kind = "quantiles"
    column = "stay"
    bounds = [0, 60]
    width = 1
    probabilities = [0.25, 0.5, 0.9]

    [[query]]
    kind = "crosstab"
    columns = ["diagnosis", "sex"]

    Example: `read_question(Path("question.toml"))`.
    """
    try:
        raw = path.read_bytes()
        if len(raw) > _LARGEST:
            raise InvalidInput(f"{path}: {len(raw)} bytes are too many for a question; at most {_LARGEST}")
        return question_from(tomllib.loads(raw.decode("utf-8")), str(path))
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}); name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: not TOML: {error}") from error


def question_from(content: dict[str, Any], source: str = "question") -> Question:
    """The question in parsed TOML or JSON; errors begin with `source`."""
    unknown = set(content) - {"columns", "query"}
    if unknown:
        raise InvalidInput(f"{source}: unknown key {sorted(unknown)[0]!r}; write [columns] and [[query]]")
    columns, queries = content.get("columns", {}), content.get("query", [])
    if not isinstance(columns, dict) or not isinstance(queries, list):
        raise InvalidInput(f"{source}: write [columns] once and [[query]] before each query")

    def fail(at: int, problem: str) -> NoReturn:
        raise UnreadableQuestion(f"{source}, query {at + 1}: {problem}")

    known = {}
    for name, value in columns.items():
        try:
            known[checked_name(name, "column")] = _domain(value)
        except InvalidInput as error:
            raise InvalidInput(f"{source}, columns.{name}: {error}") from error
    statements = []
    for index, table in enumerate(queries):
        try:
            statements.append(_statement(index, table))
        except InvalidInput as error:
            fail(index, str(error))
    return resolve(statements, known, fail)


def _statement(index: int, table: Any) -> Statement:
    if not isinstance(table, dict):
        raise InvalidInput("must be a table: write [[query]] and keys below it")
    kind = table.get("kind")
    if kind not in KINDS or kind == "column":
        raise InvalidInput(f"kind = {kind!r}: must be one of {', '.join(KINDS[:-1])}")
    if unknown := set(table) - _KEYS:
        raise InvalidInput(f"unknown key {sorted(unknown)[0]!r}; known are {', '.join(sorted(_KEYS))}")
    names = table.get("columns", [table["column"]] if "column" in table else [])
    wanted = {"count": 0, "crosstab": 2}.get(kind, 1)
    if not isinstance(names, list) or len(names) != wanted:
        raise InvalidInput(f"{kind} needs {wanted} column(s): set column = or columns = [...]")
    domain = _stated(table)
    if domain is not None and wanted != 1:
        raise InvalidInput(f"{kind}: state the domains under [columns]")
    uses = tuple(ColumnUse(checked_name(name, "column"), domain, index) for name in names)
    key = {"quantiles": "probabilities", "top": "k"}.get(kind)
    numbers = table.get(key, []) if key else []
    numbers = numbers if isinstance(numbers, list) else [numbers]
    return Statement(kind, uses, tuple(map(_number, numbers)), _number(table.get("importance", 1)), index)


def _stated(table: dict[str, Any]) -> Domain | None:
    if "categories" in table:
        return _domain(table["categories"])
    if "bounds" not in table:
        if "width" in table:
            raise InvalidInput("width without bounds: add bounds = [low, high]")
        return None
    ends = table["bounds"]
    if not isinstance(ends, list) or len(ends) != 2:
        raise InvalidInput(f"bounds = {ends!r}: must be [low, high]")
    low, high = map(_number, ends)
    return Bins(low, high, _number(table["width"])) if "width" in table else Bounds(low, high)


def _domain(value: Any) -> Domain:
    if isinstance(value, str):
        return parse_domain(value)
    if isinstance(value, list):
        return Categories(tuple(str(item) if isinstance(item, int) else item for item in value))
    raise InvalidInput(f'{value!r}: write ["A", "B"], "0..110" or "0..60 by 1"')


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{value!r} is not a number: write one without quotes")
    return float(value)
