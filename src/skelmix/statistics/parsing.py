"""Read a question from text, as in `--ask "count; mean(age, 0..110); histogram(diagnosis: A|B|C)"`.

Statements are separated by `;` or line breaks: `count`, `sum(column, low..high)`, `mean`, `variance`,
`histogram(column: A|B|C)`, `histogram(column: low..high by width)`, `quantiles(column, low..high by width;
0.25 0.5)`, `crosstab(first: A|B, second: F|M)`, `top(column: A|B|C; 2)`. A domain that is stated once holds
for the whole question, so `crosstab(diagnosis, sex)` may follow; `column(sex: F|M)` states one without asking
anything. Names with punctuation stand in quotes. `importance 4` may follow a statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from skelmix.errors import InvalidInput
from skelmix.statistics.domains import Bins, Bounds, Categories, Domain
from skelmix.statistics.queries import Question
from skelmix.statistics.statements import KINDS, ColumnUse, Statement, UnreadableQuestion, resolve

_LONGEST = 1_000_000  # characters
_NUMBER = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*\.\.(?!\.)\s*({_NUMBER})(?:\s+by\s+({_NUMBER}))?(?=\s*[,;)]|\s*$)")
_BARE = re.compile(r"[^\s'\"|,;:()]+(?: [^\s'\"|,;:()]+)*")
_QUOTED = re.compile(r"'([^'\n]*)'|\"([^\"\n]*)\"")
_WORD = re.compile(r"[A-Za-z]+")


def parse_question(text: str, *, columns: Mapping[str, Domain] | None = None) -> Question:
    """The question that `text` asks; `InvalidInput` points at the character that could not be read.

    columns: domains that are known otherwise (a public schema), for columns named without one.

    Example:

        >>> question = parse_question("count; mean(age, 0..110); histogram(sex: F|M)")
        >>> len(question.queries), question.columns
        (3, ('age', 'sex'))
    """
    if not isinstance(text, str):
        raise InvalidInput(f"the question is {type(text).__name__}: pass text, e.g. 'count'")
    if len(text) > _LONGEST:
        raise InvalidInput(f"the question has {len(text)} characters: at most {_LONGEST} are read")
    return resolve(_Reader(text).statements(), columns or {}, lambda at, problem: fail(text, at, problem))


def parse_domain(text: str) -> Domain:
    """Bounds (`0..110`), bins (`0..60 by 1`) or categories (`A|B`)."""
    reader = _Reader(text)
    domain = reader.domain()
    reader.end()
    return domain


def fail(text: str, at: int, problem: str) -> NoReturn:
    """Raise `InvalidInput` with the line of the text and a mark under the character."""
    at = min(at, len(text))
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line = text[start : end if end >= 0 else len(text)]
    place = f"line {text.count(chr(10), 0, at) + 1}, character {at - start + 1}" if "\n" in text else (
        f"character {at + 1}"
    )  # fmt: skip
    left = max(0, at - start - 60)
    shown = line[left : left + 100]
    raise UnreadableQuestion(f"question, {place}: {problem}\n  {shown}\n  {' ' * (at - start - left)}^")


@dataclass
class _Reader:
    text: str
    at: int = 0

    def statements(self) -> list[Statement]:
        parsed: list[Statement] = []
        while True:
            self._skip()
            while self.at < len(self.text) and self.text[self.at] == ";":
                self.at += 1
                self._skip()
            if self.at >= len(self.text):
                return parsed
            parsed.append(self._statement())
            line = self.text.rfind("\n", 0, self.at)
            self._skip()
            rest = self.text[self.at : self.at + 1]
            if rest and rest != ";" and self.text.rfind("\n", 0, self.at) == line:
                self._fail("expected ';' before the next statement")

    def end(self) -> None:
        self._skip()
        if self.at < len(self.text):
            self._fail("nothing more was expected here")

    def _fail(self, problem: str, at: int | None = None) -> NoReturn:
        fail(self.text, self.at if at is None else at, problem)

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def _next(self, expected: str) -> str | None:
        """The next character, eaten, when it is one of those expected."""
        self._skip()
        letter = self.text[self.at : self.at + 1]
        if letter and letter in expected:
            self.at += 1
            return letter
        return None

    def _need(self, expected: str, why: str) -> None:
        if self._next(expected) is None:
            self._fail(f"expected {expected!r} {why}")

    def _statement(self) -> Statement:
        start = self.at
        word = _WORD.match(self.text, self.at)
        kind = word[0].lower() if word else ""
        if kind not in KINDS:
            self._fail(f"expected one of {', '.join(KINDS)}")
        self.at += len(kind)
        uses: list[ColumnUse] = []
        numbers: list[float] = []
        if kind == "count":
            if self.text[self.at : self.at + 1] == "(":
                self.at += 1
                self._need(")", "after count(")
        else:
            self._need("(", f"after {kind}")
            uses.append(self._column(":" if kind == "crosstab" else ":,"))
            if kind == "crosstab":
                self._need(",", "between the two columns of a crosstab")
                uses.append(self._column(":"))
            if kind in ("quantiles", "top"):
                self._need(";", f"before the {'probabilities' if kind == 'quantiles' else 'number to list'}")
                numbers = self._numbers()
            self._need(")", f"at the end of {kind}(...)")
        return Statement(kind, tuple(uses), tuple(numbers), self._importance(), start)

    def _importance(self) -> float:
        back = self.at
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        word = _WORD.match(self.text, self.at)
        if word is None or word[0].lower() != "importance":
            self.at = back
            return 1.0
        self.at = word.end()
        self._skip()
        start = self.at
        value = self._number("a number after importance")
        if not 1e-6 <= value <= 1e6:
            self._fail("importance must lie between 1e-6 and 1e6; 1 is the default", start)
        return value

    def _column(self, separators: str) -> ColumnUse:
        self._skip()
        start = self.at
        name = self._name("the name of a column")
        if not self._next(separators):
            return ColumnUse(name, None, start)
        return ColumnUse(name, self.domain(), start)

    def _name(self, expected: str) -> str:
        self._skip()
        if quoted := _QUOTED.match(self.text, self.at):
            name = quoted[1] if quoted[1] is not None else quoted[2]
            if not name.strip():
                self._fail("a name must not be empty")
            self.at = quoted.end()
            return name
        bare = _BARE.match(self.text, self.at)
        if bare is None:
            self._fail(f"expected {expected}")
        self.at = bare.end()
        return bare[0]

    def _number(self, expected: str) -> float:
        self._skip()
        number = re.compile(_NUMBER).match(self.text, self.at)
        if number is None:
            self._fail(f"expected {expected}")
        self.at = number.end()
        return float(number[0])

    def _numbers(self) -> list[float]:
        values = [self._number("a number")]
        while self._next(",") or self.text[self.at : self.at + 1] not in ("", ")"):
            values.append(self._number("a number or ')'"))
        return values

    def domain(self) -> Domain:
        self._skip()
        start = self.at
        if range_match := _RANGE.match(self.text, self.at):
            self.at = range_match.end()
            low, high, width = range_match[1], range_match[2], range_match[3]
            return self._built(
                lambda: (
                    Bounds(float(low), float(high))
                    if width is None
                    else Bins(float(low), float(high), float(width))
                ),
                start,
            )
        names = [self._name("bounds such as 0..110, or categories such as A|B")]
        while self._next("|"):
            names.append(self._name("a category after '|'"))
        if len(names) == 1 and ".." in names[0] and self.text[start] not in "'\"":
            self._fail(
                "expected bounds such as 0..110 or 0..60 by 1 (quote a category that holds '..')", start
            )
        return self._built(lambda: Categories(tuple(names)), start)

    def _built(self, build: Callable[[], Domain], start: int) -> Domain:
        try:
            return build()
        except InvalidInput as error:
            self._fail(str(error), start)
