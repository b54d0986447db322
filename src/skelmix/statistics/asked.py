"""A question as it travels to a party on another machine: text, what it needs of a plan, and its answer.

Two kinds: statistics (`AskedStatistics`) and the plain sum of rows of numbers (`AskedSum`). A party computes
everything from the text that it was given; the text is bound into the round, so parties that were given
different texts share no key and their sum cannot be opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput
from skelmix.mechanisms import Mechanism, SiloSum
from skelmix.planning.plans import Plan
from skelmix.planning.silos import Silos
from skelmix.statistics import arrow
from skelmix.statistics.accumulate import Accumulator, Columns
from skelmix.statistics.domains import checked_name
from skelmix.statistics.files import batches
from skelmix.statistics.layout import Layout
from skelmix.statistics.parsing import parse_question
from skelmix.statistics.party import Owners, PartySum, add_to_silo, party_sum, unusable_note
from skelmix.statistics.queries import Question
from skelmix.statistics.sizing import planned_sizes

MOST_COLUMNS = 10_000
LAYOUT = 2  # rises whenever a question's vector is laid out in another way: all must do it alike
_MOST_NUMBERS = 1 << 22  # of rows in memory at a time
Notes = tuple[str, ...]


class Asked(Protocol):
    """What parties and analyst need of a question."""

    @property
    def dimension(self) -> int:
        """The length of a record's vector."""

    @property
    def owners(self) -> Owners | None:
        """Owners whose records are protected together; None: each record is protected by itself."""

    @property
    def uses(self) -> frozenset[tuple[str, str]]:
        """(column, kind of query) of all that is asked; ("", "count") for the number of records."""

    def to_text(self) -> str:
        """The question as text, for `asked_from_text`."""

    def check_mechanism(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism can carry the answer."""

    def sum_of_file(self, path: Path, mechanism: Mechanism) -> tuple[SiloSum, Notes]:
        """The exact sum over the party's file, and notes for the party's own eyes.

        A file that cannot be used gives the sum of an empty party. Others wait for the sum, so nothing is
        done here that single bad records would make longer: `file_notes` lists those.
        """


@dataclass(frozen=True)
class AskedStatistics:
    """Counts, means, histograms and so on, with the unit that they protect.

    Example:

        >>> asked = AskedStatistics(parse_question("count; mean(age, 0..110)"))
        >>> asked_from_text(asked.to_text()) == asked, sorted(asked.uses)
        (True, [('', 'count'), ('age', 'mean')])
    """

    question: Question
    owners: Owners | None = None

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.question)

    @property
    def dimension(self) -> int:
        return self.layout.dimension

    @property
    def uses(self) -> frozenset[tuple[str, str]]:
        names = set()
        for query in self.question.queries:
            kind = str(query).partition("(")[0]
            columns = Question((query,)).columns or ("",)
            names |= {(column, kind) for column in columns}
        return frozenset(names)

    def to_text(self) -> str:
        owner = None if self.owners is None else {"column": self.owners.column, "rows": self.owners.rows}
        fields = {"kind": "statistics", "ask": str(self.question), "owner": owner, "layout": LAYOUT}
        return _text(fields)

    @classmethod
    def from_fields(cls, ask: Any, owner: Any, layout: Any = None) -> AskedStatistics:
        if layout != LAYOUT:
            raise InvalidInput(
                "the question was written by another version of skelmix; install the same version everywhere"
            )
        owners = None if owner is None else Owners(**owner)
        return cls(parse_question(ask), owners)

    def check_mechanism(self, mechanism: Mechanism) -> None:
        silo = mechanism.silo_sum(round=0)
        rows = self.owners.rows if self.owners else 1
        add_to_silo(silo, PartySum(Accumulator(self.layout, silo.unit_radius, rows).total()))

    def sum_of_file(self, path: Path, mechanism: Mechanism) -> tuple[SiloSum, Notes]:
        silo = mechanism.silo_sum(round=0)
        party = party_sum(path, self.layout, silo.unit_radius, self.owners, notes=False)
        add_to_silo(silo, party)
        return silo, party.private_notes


@dataclass(frozen=True)
class AskedSum:
    """The sum of rows of numbers: each record's named columns are one vector, clipped to the plan's norm.

    Example:

        >>> asked_from_text(AskedSum(("weight", "height")).to_text()).dimension
        2
    """

    columns: tuple[str, ...]
    owners: None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.columns) <= MOST_COLUMNS or len(set(self.columns)) < len(self.columns):
            raise InvalidInput(
                f"columns: {len(self.columns)} names; give 1 to {MOST_COLUMNS}, each once, e.g. weight,height"
            )
        for name in self.columns:
            checked_name(name, "column")

    @property
    def dimension(self) -> int:
        return len(self.columns)

    @property
    def uses(self) -> frozenset[tuple[str, str]]:
        return frozenset((name, "sum") for name in self.columns)

    def to_text(self) -> str:
        return _text({"kind": "sum", "columns": list(self.columns)})

    @classmethod
    def from_fields(cls, columns: Any) -> AskedSum:
        if not isinstance(columns, list):
            raise InvalidInput("columns: must be a list of names")
        return cls(tuple(columns))

    def check_mechanism(self, mechanism: Mechanism) -> None:
        mechanism.silo_sum(round=0)

    def sum_of_file(self, path: Path, mechanism: Mechanism) -> tuple[SiloSum, Notes]:
        silo = mechanism.silo_sum(round=0)
        try:
            silo.add(self._rows(path, mechanism.dimension))
        except (InvalidInput, arrow.pyarrow().ArrowException) as error:
            return mechanism.silo_sum(round=0), (unusable_note(path, error),)
        return silo, ()

    def _rows(self, path: Path, length: int) -> Iterator[NDArray[np.float64]]:
        """The rows, with zeros behind them up to the plan's length."""
        step = max(1, _MOST_NUMBERS // length)
        for batch in batches(path, self.columns):
            for start in range(0, batch.num_rows, step):
                columns = Columns(batch.slice(start, step))
                rows = np.zeros((len(columns), length))
                for place, name in enumerate(self.columns):
                    rows[:, place] = columns.numbers(name)
                yield rows


_KINDS: dict[str, Callable[..., Asked]] = {
    "statistics": AskedStatistics.from_fields,
    "sum": AskedSum.from_fields,
}


def asked_from_text(text: str) -> Asked:
    """The question that `to_text` wrote; `InvalidInput` for anything else."""
    try:
        fields = json.loads(text)
        kind = _KINDS[fields.pop("kind")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput("this is not a question that this version of skelmix can read") from error
    try:
        return kind(**fields)
    except TypeError as error:
        raise InvalidInput(f"the question is malformed: {error}") from error


def check_asked_plan(asked: Asked, plan: Plan) -> None:
    """Raise `InvalidInput` unless the plan is one sum over all records that carries the answer."""
    cohort, mechanism = plan.cohort, plan.mechanism
    if not isinstance(cohort, Silos):
        raise InvalidInput("the plan protects participants: questions need one for records of silos")
    if plan.adaptive_clip is not None:
        raise InvalidInput("the plan moves its clip norm from round to round: a question is one sum")
    if cohort.dropout_tolerance > 0:
        raise InvalidInput(
            "the plan tolerates dropouts, and who dropped out is the server's word: a question is answered "
            "by all or not at all; plan with dropout_tolerance=0"
        )
    if plan.rounds != 1 or cohort.batch != cohort.records:
        raise InvalidInput("the plan has several rounds, or samples: a question is one sum of all records")
    if cohort.unit != ("record" if asked.owners is None else "owner"):
        raise InvalidInput(f"the plan protects one {cohort.unit}, the question another unit")
    if mechanism.dimension not in planned_sizes(asked.dimension):
        raise InvalidInput(
            f"the plan is for {mechanism.dimension} numbers, the question asks {asked.dimension}"
        )
    asked.check_mechanism(mechanism)


def _text(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, ensure_ascii=True)
