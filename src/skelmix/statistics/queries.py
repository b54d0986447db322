"""The questions that can be asked: plain data, each with the text that the parser reads back."""

from __future__ import annotations

from dataclasses import dataclass, field

from skelmix.errors import InvalidInput
from skelmix.statistics.domains import (
    MOST_CELLS,
    Axis,
    Bins,
    Bounds,
    Categories,
    checked_name,
    name_text,
    number_text,
)
from skelmix.validation import positive, whole


@dataclass(frozen=True)
class Count:
    """How many records there are; it costs one entry of the vector. Example: `count`."""

    def __str__(self) -> str:
        return "count"


@dataclass(frozen=True)
class _OfBoundedColumn:
    column: str
    bounds: Bounds

    def __post_init__(self) -> None:
        checked_name(self.column, "column")

    def _text(self, kind: str) -> str:
        return f"{kind}({name_text(self.column)}, {self.bounds})"


@dataclass(frozen=True)
class Sum(_OfBoundedColumn):
    """The sum of a column's values, each clamped to the bounds; missing values add nothing.

    Example: `sum(cost, 0..5000)`.
    """

    def __str__(self) -> str:
        return self._text("sum")


@dataclass(frozen=True)
class Mean(_OfBoundedColumn):
    """The mean of the values that are not missing, each clamped to the bounds.

    Example: `mean(age, 0..110)`.
    """

    def __str__(self) -> str:
        return self._text("mean")


@dataclass(frozen=True)
class Variance(_OfBoundedColumn):
    """The variance (mean squared distance from the mean) of the clamped values that are not missing.

    Example: `variance(age, 0..110)`.
    """

    def __str__(self) -> str:
        return self._text("variance")


@dataclass(frozen=True)
class Histogram:
    """How many records fall into each category or bin.

    Examples: `histogram(diagnosis: A|B|C)`, `histogram(age: 0..110 by 10)`.
    """

    axis: Axis

    def __str__(self) -> str:
        return f"histogram({self.axis})"


@dataclass(frozen=True)
class CrossTable:
    """How many records fall into each pair of cells of two columns.

    Example: `crosstab(diagnosis: A|B, sex: F|M)`.
    """

    first: Axis
    second: Axis

    def __post_init__(self) -> None:
        if self.first.column == self.second.column:
            raise InvalidInput(f"crosstab of {self.first.column!r} with itself: name two different columns")
        cells = self.first.domain.size * self.second.domain.size
        if cells > MOST_CELLS:
            raise InvalidInput(
                f"{self.first.column} x {self.second.column}: {cells} cells, more than {MOST_CELLS}; "
                "merge categories or widen bins"
            )

    def __str__(self) -> str:
        return f"crosstab({self.first}, {self.second})"


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of a column, read off an ordered histogram: as fine as its bins.

    The p-quantile is the smallest value that at least a fraction p of the non-missing, clamped values do not
    exceed. Example: `quantiles(stay, 0..60 by 1; 0.25 0.5 0.9)`.
    """

    column: str
    bins: Bins
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        checked_name(self.column, "column")
        object.__setattr__(self, "probabilities", tuple(float(p) for p in self.probabilities))
        if not self.probabilities:
            raise InvalidInput("quantiles: no probabilities; write for example 0.25 0.5 0.75")
        for p in self.probabilities:
            if not 0 < p < 1:
                raise InvalidInput(f"quantiles: {p!r} must lie strictly between 0 and 1, e.g. 0.5")
        if len(set(self.probabilities)) < len(self.probabilities):
            raise InvalidInput("quantiles: a probability is listed twice; list each once")

    def __str__(self) -> str:
        texts = " ".join(map(number_text, self.probabilities))
        return f"quantiles({name_text(self.column)}, {self.bins}; {texts})"

    @property
    def axis(self) -> Axis:
        """The column with its bins."""
        return Axis(self.column, self.bins)


@dataclass(frozen=True)
class Top:
    """The k most frequent of the stated categories, "other" left out, with their counts.

    Example: `top(diagnosis: A|B|C|D; 2)`.
    """

    axis: Axis
    k: int

    def __post_init__(self) -> None:
        whole(1, len(self.names), k=self.k)

    @property
    def names(self) -> tuple[str, ...]:
        """The categories that are ranked."""
        if not isinstance(self.axis.domain, Categories):
            raise InvalidInput(f"top({self.axis}): bins are not ranked; state categories, or ask a histogram")
        return self.axis.domain.names

    def __str__(self) -> str:
        return f"top({self.axis}; {self.k})"


#: any one of the queries above
Query = Count | Sum | Mean | Variance | Histogram | CrossTable | Quantiles | Top


@dataclass(frozen=True)
class Question:
    """Queries that are answered together by one private sum.

    importance: one number per query, 1 by default; a query of importance 16 gets half the relative standard
    error of a query of importance 1. `str(question)` is text that `parse_question` reads back.

    Example:

        >>> str(Question((Count(), Mean("age", Bounds(0, 110)))))
        'count; mean(age, 0..110)'
    """

    queries: tuple[Query, ...]
    importance: tuple[float, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.queries:
            raise InvalidInput('the question is empty: ask for something, e.g. "count"')
        if not self.importance:
            object.__setattr__(self, "importance", (1.0,) * len(self.queries))
        if len(self.importance) != len(self.queries):
            raise InvalidInput(
                f"importance has {len(self.importance)} values for {len(self.queries)} queries: give one each"
            )
        for value in self.importance:
            positive(importance=value)
            if not 1e-6 <= value <= 1e6:
                raise InvalidInput(f"importance = {value!r}: must lie between 1e-6 and 1e6; 1 is the default")
        object.__setattr__(self, "importance", tuple(map(float, self.importance)))
        if len(set(self.queries)) < len(self.queries):
            twice = next(query for query in self.queries if self.queries.count(query) > 1)
            raise InvalidInput(f"{twice} is asked twice: ask it once, the answer would be the same")

    def __str__(self) -> str:
        return "; ".join(
            str(query) if importance == 1 else f"{query} importance {number_text(importance)}"
            for query, importance in zip(self.queries, self.importance, strict=True)
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a party must have, in order of first use."""
        seen: dict[str, None] = {}
        for query in self.queries:
            match query:
                case Count():
                    pass
                case CrossTable():
                    seen |= {query.first.column: None, query.second.column: None}
                case Histogram() | Top():
                    seen[query.axis.column] = None
                case _:
                    seen[query.column] = None
        return tuple(seen)
