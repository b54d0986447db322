"""A card as plain text: an aligned table that keeps within 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from skelmix.display.facts import Section

WIDTH = 80  # characters
_TIED = "\u00a0"
#: spaces that no line is broken at: between a number and its unit, and around "=" and "≤"
_TIES = re.compile(r"(?<=\d) (?=[^\W\d_])|(?<=[^\W\d_]) (?=[=≤] )|(?<=[=≤]) ")


def card_text(headline: str, sections: Iterable[Section], width: int = WIDTH) -> str:
    """The headline, then each section's facts in two aligned columns.

    Words and numbers with their units stay whole; a word longer than a line is the one thing that may stick
    out. Sections without facts are left out.

    Example:

        >>> from skelmix.display import Fact
        >>> print(card_text("(1, 1e-06)-DP", [Section("", (Fact("upload", "8 bits", "per weight"),))]))
        (1, 1e-06)-DP
          upload  8 bits (per weight)
    """
    shown = [section for section in sections if section.facts]
    names = max((len(fact.name) for section in shown for fact in section.facts), default=0)
    lines = _paragraph(headline, width) if headline else []
    for section in shown:
        lines += ["", section.title] if section.title else []
        for fact in section.facts:
            lines += _paragraph(str(fact), width, f"  {fact.name:<{names}}  ", " " * (names + 4))
    return "\n".join(lines)


def _paragraph(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    wrapped = textwrap.wrap(
        _TIES.sub(_TIED, text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_TIED, " ") for line in wrapped] or [first.rstrip()]
