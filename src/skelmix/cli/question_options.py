"""The options that stats and ask share: the question, its privacy and its intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_RECORDS = 500_000

Ask = Annotated[
    str | None, typer.Option(help='The question, e.g. "count; mean(age, 0..110); histogram(sex: F|M)".')
]
Queries = Annotated[Path | None, typer.Option(help="The question as a TOML file.")]
Records = Annotated[
    int,
    typer.Option(
        help="Upper limit of the number of records, all parties together: a public number, never read from "
        "the data."
    ),
]
RecordsOrDefault = Annotated[
    int | None,
    typer.Option(
        help="Upper limit of the number of records, all parties together: a public number, never read from "
        f"the data; default: {DEFAULT_RECORDS}."
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(help="Privacy target ε of all answers together; default: 1.", rich_help_panel="Privacy"),
]
RelativeError = Annotated[
    float | None,
    typer.Option(
        help="In place of ε: the relative standard error that every answer may have; the least ε is found.",
        rich_help_panel="Privacy",
    ),
]
Owner = Annotated[
    str | None,
    typer.Option(help="Column that names the owner of a record: protects owners.", rich_help_panel="Privacy"),
]
Rows = Annotated[
    int | None,
    typer.Option(
        help="Records per owner that count in full; needed with --owner.", rich_help_panel="Privacy"
    ),
]
Colluding = Annotated[
    int,
    typer.Option(help="Parties that may share what they know with the adversary.", rich_help_panel="Privacy"),
]
Level = Annotated[float, typer.Option(help="Probability that an interval covers the true value.")]
Joint = Annotated[
    bool,
    typer.Option("--joint", help="The probability holds for all intervals together, not for each by itself."),
]
PlanOnly = Annotated[
    bool, typer.Option("--plan-only", help="Print the plan and stop before any data is read.")
]
Output = Annotated[Path | None, typer.Option(help="Where to write a report: .html.")]
