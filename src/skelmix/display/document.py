"""One self-contained HTML page for people: verdict, tiles, plots, privacy card, settings folded away.

The page loads nothing: its content policy forbids every request. All pages of skelmix are made here.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from skelmix.display.facts import Fact, Section
from skelmix.display.json_text import json_in_html
from skelmix.errors import MissingExtra

#: nothing is fetched; plotly draws with inline styles, and saves pictures as blobs
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"

LONG_TABLE = 20  # rows above which a narrow table is set in several columns


@dataclass(frozen=True)
class Figure:
    """A plot: what plotly draws (`traces`), with the meaning and unit of each axis in words.

    The page gives colours, so traces have none; `look` adds to plotly's layout. small: it is a single line.

    Example: `Figure("Test accuracy", "round", "accuracy", [{"x": [1, 2], "y": [0.7, 0.8]}])`.
    """

    title: str
    x: str
    y: str
    traces: Sequence[Mapping[str, Any]]
    note: str = ""
    look: Mapping[str, Any] = field(default_factory=dict)
    small: bool = False


@dataclass(frozen=True)
class Table:
    """Numbers in rows; the first column names the row.

    Example: `Table("Answers", ("query", "estimate"), [("count", "4,996")])`.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Document:
    """What a report says, before it is laid out.

    verdict: one sentence. alarm: the verdict is a warning. tiles: the few numbers that are looked at first.
    sections: the privacy card; the last one, what is not covered, is set apart. settings: name -> value.

    Example: `Document("Sum", plan.report.verdict, tiles=[], sections=plan.sections).html()`.
    """

    title: str
    verdict: str
    tiles: Sequence[Fact]
    sections: Sequence[Section]
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    alarm: bool = False

    def html(self) -> str:
        """The page. Raises `MissingExtra` without plotly, which draws the figures."""
        *card, left_out = self.sections
        parts = [
            f'<header class="band{" alarm" if self.alarm else ""}"><p class="kind">{escape(self.title)}</p>'
            f"<h1>{escape(self.verdict)}</h1></header>",
            tiles_html(self.tiles),
            _figures(self.figures),
            *map(_table, self.tables),
            '<section aria-labelledby="card"><h2 id="card">Privacy card</h2>',
            *map(section_html, card),
            "</section>",
            f'<section class="left-out"><h2>{escape(left_out.title)}</h2>{_rows(left_out.facts)}</section>',
            _settings(self.settings),
        ]
        return _frame(self.title, "\n".join(parts), self.figures)


def tiles_html(tiles: Sequence[Fact]) -> str:
    """The numbers that are looked at first, each with its name and what it means."""
    cells = "".join(
        f'<div class="tile{" alarm" if tile.alarm else ""}"><dt>{escape(tile.name)}</dt>'
        f"<dd><strong{'' if _is_number(tile.value) else ' class=words'}>{escape(tile.value)}</strong>"
        f"<span>{escape(tile.note)}</span></dd></div>"
        for tile in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def _is_number(value: str) -> bool:
    """Whether a tile is set large: a number, or one short word such as "none"."""
    return " " not in value or any(character.isdigit() for character in value)


def section_html(section: Section) -> str:
    """One section of a card as a table, a row per fact."""
    if not section.facts:
        return ""
    title = f"<h3>{escape(section.title)}</h3>" if section.title else ""
    return f"{title}{_rows(section.facts)}"


@cache
def plotly_script() -> str:
    """What draws the figures, in JavaScript. Raises `MissingExtra` where it is not installed.

    Example: `plotly_script()` before a long run shows whether its report can be drawn.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtra("the HTML report needs plotly: pip install 'skelmix[plot]'") from error
    return str(get_plotlyjs())


def asset(name: str) -> str:
    """A style or script of the pages."""
    return files("skelmix.display").joinpath(name).read_text(encoding="utf-8")


def _frame(title: str, body: str, figures: Sequence[Figure]) -> str:
    scripts = ""
    if figures:
        packed = base64.b64encode(gzip.compress(plotly_script().encode(), mtime=0)).decode()
        drawn = [{"x": f.x, "y": f.y, "data": list(f.traces), "layout": dict(f.look)} for f in figures]
        scripts = (
            f'<script type="application/json" id="figures">{json_in_html(drawn)}</script>'
            f'<script type="text/plain" id="plotly">{packed}</script>'
            f"<script>{asset('plots.js')}\n{asset('report.js')}</script>"
        )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · skelmix</title><style>{asset('theme.css')}</style></head>\n"
        f'<body><main class="report">{body}</main>{scripts}</body></html>\n'
    )


def _rows(facts: Sequence[Fact]) -> str:
    rows = "".join(
        f'<tr{" class=alarm" if fact.alarm else ""}><th scope="row">{escape(fact.name)}</th>'
        f"<td>{escape(fact.value)}{f' <small>{escape(fact.note)}</small>' if fact.note else ''}</td></tr>"
        for fact in facts
    )
    return f'<table class="facts">{rows}</table>'


def _figures(figures: Sequence[Figure]) -> str:
    if not figures:
        return ""
    cells = "".join(
        f"<figure><figcaption>{escape(figure.title)}"
        f"{f'<small>{escape(figure.note)}</small>' if figure.note else ''}</figcaption>"
        f'<div class="plot{" small" if figure.small else ""}" id="figure{place}" role="img" '
        f'aria-label="{escape(_described(figure))}"></div>'
        "</figure>"
        for place, figure in enumerate(figures)
    )
    missing = "<noscript><p>The plots need JavaScript; every other number is on this page.</p></noscript>"
    return f'<section class="plots" aria-label="Plots">{cells}</section>{missing}'


def _described(figure: Figure) -> str:
    return f"Plot of {figure.y} over {figure.x}: {figure.title}"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    cells = [(row[0], "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])) for row in table.rows]
    body = "".join(f'<tr><th scope="row">{escape(name)}</th>{rest}</tr>' for name, rest in cells)
    note = f"<p>{escape(table.note)}</p>" if table.note else ""
    long = " long" if len(table.rows) > LONG_TABLE and len(table.columns) <= 3 else ""
    return (
        f'<section><h2>{escape(table.title)}</h2><div class="scroll{long}" tabindex="0" role="region" '
        f'aria-label="{escape(table.title)}"><table class="numbers"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}</section>"
    )


def _settings(settings: Mapping[str, str]) -> str:
    if not settings:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in settings.items()
    )
    return f'<details><summary>Settings</summary><table class="facts">{rows}</table></details>'
