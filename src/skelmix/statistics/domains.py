"""What a column may hold, as the question states it: bounds, bins or categories, never read from the data."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from skelmix.errors import InvalidInput

OTHER = "other"
MISSING = "missing"
MOST_CELLS = 1 << 20
_LEAST_RANGE = 1e-100  # half of it must not be rounded to zero: values are divided by that
_BARE = re.compile(r"[^\s'\"|,;:()]+( [^\s'\"|,;:()]+)*")


def number_text(value: float) -> str:
    """The shortest text that reads back as the same number; whole numbers without a point."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def name_text(name: str) -> str:
    """A name as it stands in a question: bare, or in quotes when it holds punctuation or odd spaces."""
    if _BARE.fullmatch(name) and ".." not in name:
        return name
    quote = "'" if "'" not in name else '"'
    return f"{quote}{name}{quote}"


def checked_name(name: object, what: str) -> str:
    """A name of a column or category: text, not empty, not with both kinds of quotes or a line break."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"{what} = {name!r}: must be text that is not empty; write its name")
    if ("'" in name and '"' in name) or any(ord(letter) < 32 for letter in name):
        raise InvalidInput(
            f"{what} = {name!r}: must not hold both kinds of quotes or control characters; rename it"
        )
    return name


@dataclass(frozen=True)
class Bounds:
    """The range that a column's values are clamped to, low < high.

    Example: `Bounds(0, 110)`, written `0..110`.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        for name, value in (("low", self.low), ("high", self.high)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InvalidInput(f"{name} = {value!r}: must be a finite number; bounds look like 0..110")
            object.__setattr__(self, name, float(value))
        if self.high - self.low < _LEAST_RANGE or max(abs(self.low), abs(self.high)) > 1e100:
            raise InvalidInput(
                f"bounds {self}: the lower one must be below the upper one by {_LEAST_RANGE:g} or more, both "
                "within 1e100; write for example 0..110"
            )

    def __str__(self) -> str:
        return f"{number_text(self.low)}..{number_text(self.high)}"

    @property
    def middle(self) -> float:
        """The middle of the bounds."""
        return self.low / 2 + self.high / 2

    @property
    def half_range(self) -> float:
        """Half the distance between the bounds."""
        return self.high / 2 - self.low / 2

    @property
    def largest(self) -> float:
        """The largest absolute value within the bounds."""
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class Bins:
    """Ordered bins of equal width from `low` to `high`; the last one ends at `high` and includes it.

    Values outside are clamped, so they count in the first or the last bin; a missing value counts in a cell
    of its own, after the last bin. Example: `Bins(0, 60, 1)`, written `0..60 by 1`.
    """

    low: float
    high: float
    width: float

    def __post_init__(self) -> None:
        bounds = Bounds(self.low, self.high)
        object.__setattr__(self, "low", bounds.low)
        object.__setattr__(self, "high", bounds.high)
        width = self.width
        if isinstance(width, bool) or not isinstance(width, int | float) or not 0 < width < math.inf:
            raise InvalidInput(f"bin width = {width!r}: must be a number > 0; write for example 0..60 by 1")
        object.__setattr__(self, "width", float(width))
        if (self.high - self.low) / width > MOST_CELLS:
            raise InvalidInput(f"bins {self}: more than {MOST_CELLS} bins; take a larger width")

    def __str__(self) -> str:
        return f"{number_text(self.low)}..{number_text(self.high)} by {number_text(self.width)}"

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """The count + 1 edges, strictly increasing from low to high."""
        inner = self.low + self.width * np.arange(1, self.count)
        tidy = [float(f"{edge:.12g}") for edge in inner.tolist()]  # 0.3, not 0.30000000000000004
        edges = np.array([self.low, *tidy, self.high])
        if (np.diff(edges) <= 0).any():
            raise InvalidInput(f"bins {self}: too narrow for the size of their bounds; take a larger width")
        edges.setflags(write=False)
        return edges

    @property
    def count(self) -> int:
        """The number of bins."""
        return max(1, math.ceil((self.high - self.low) / self.width - 1e-9))

    @property
    def size(self) -> int:
        """Cells: the bins, and one for missing values."""
        return self.count + 1

    @cached_property
    def labels(self) -> tuple[str, ...]:
        texts = [number_text(edge) for edge in self.edges.tolist()]
        return (*(f"{low}..{high}" for low, high in pairwise(texts)), MISSING)


@dataclass(frozen=True)
class Categories:
    """The values that a column may take; anything else, missing values included, counts as "other".

    Example: `Categories(("A", "B", "C"))`, written `A|B|C`.
    """

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(checked_name(name, "category") for name in self.names))
        if not self.names:
            raise InvalidInput("categories: at least one is needed; write for example A|B|C")
        for name in self.names:
            if name != name.strip():
                raise InvalidInput(
                    f"category = {name!r}: values are compared without the spaces around them, so nothing "
                    f"would be counted; write {name.strip()!r}"
                )
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise InvalidInput(f"categories: {twice!r} is listed twice; list each category once")
        if len(self.names) >= MOST_CELLS:
            raise InvalidInput(f"categories: more than {MOST_CELLS}; ask about fewer")

    def __str__(self) -> str:
        return "|".join(map(name_text, self.names))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names, and "other" after them unless it is one of them."""
        return self.names if OTHER in self.names else (*self.names, OTHER)

    @property
    def size(self) -> int:
        """Cells: the categories and "other"."""
        return len(self.labels)

    @property
    def other(self) -> int:
        """The cell of unknown and missing values."""
        return self.labels.index(OTHER)


Domain = Bounds | Bins | Categories


@dataclass(frozen=True)
class Axis:
    """A column with the cells that its values are sorted into.

    Example: `Axis("sex", Categories(("F", "M")))`.
    """

    column: str
    domain: Bins | Categories

    def __post_init__(self) -> None:
        checked_name(self.column, "column")

    def __str__(self) -> str:
        return f"{name_text(self.column)}: {self.domain}"
