"""The options of `skelmix sum` that no other command has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Input = Annotated[
    Path | None,
    typer.Option(help="One row per participant: .npy, .csv or .parquet.", rich_help_panel="Data"),
]
Silo = Annotated[
    list[Path] | None,
    typer.Option(
        help="One row per record of a silo, a file per silo: protects records.",
        rich_help_panel="Silos",
    ),
]
Output = Annotated[
    Path | None, typer.Option(help="Where to write the sum: .npy or .csv.", rich_help_panel="Data")
]
Report = Annotated[
    Path | None,
    typer.Option(help="Where to write a page about the sum: .html.", rich_help_panel="Data"),
]
Mean = Annotated[
    bool,
    typer.Option("--mean", help="Divide by the public number of participants.", rich_help_panel="Data"),
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES", help="Columns to add up, by name, such as age,stay.", rich_help_panel="Data"
    ),
]
Inspect = Annotated[
    bool,
    typer.Option(
        "--inspect",
        help="For the owner of the file: what share of rows each clip norm would shorten. NOT "
        "PRIVATE; releases nothing.",
        rich_help_panel="Data",
    ),
]
Participants = Annotated[
    int, typer.Option(help="Number of made-up vectors.", rich_help_panel="Demonstration")
]
Dimension = Annotated[
    int, typer.Option(help="Length of the made-up vectors.", rich_help_panel="Demonstration")
]
Radius = Annotated[float, typer.Option(help="Norm of the made-up vectors.", rich_help_panel="Demonstration")]
Secure = Annotated[
    str,
    typer.Option(help="protocol (secure aggregation), simulated (modular sum) or none."),
]
ClipNorm = Annotated[
    float | None,
    typer.Option(
        help="L2 norm that longer rows are shortened to; needed for your own rows.",
        rich_help_panel="Vector",
    ),
]
Bits = Annotated[
    int | None,
    typer.Option(
        help="Bits per coordinate on the wire, 1..32; default: 16, or more if that lowers the error.",
        rich_help_panel="Vector",
    ),
]
Alignment = Annotated[
    float | None,
    typer.Option(
        help="Mean cosine between rows, 0..1; default: 1 (safe), or 0 for made-up vectors.",
        rich_help_panel="Vector",
    ),
]
Header = Annotated[
    bool,
    typer.Option("--header", help="Line 1 of the CSV names the columns.", rich_help_panel="Data"),
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Release even if the plan warns.", rich_help_panel="Privacy")
]
