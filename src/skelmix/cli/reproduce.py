"""`skelmix reproduce`: the paper's figures and tables measured again, its claims judged by the numbers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skelmix.cli.console import emit, err, progress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from skelmix.studies.rows import Row
    from skelmix.studies.study import Outcome

STUDIES = {
    "figure1": "Sums of 100 vectors: error of every mechanism, ten panels (Figure 1).",
    "figure2": "Training on MNIST: accuracy of every mechanism, and against bits (Figure 2).",
    "figure3": "Training on Fashion-MNIST (Figure 3).",
    "figure4": "Sums with the discrete Gaussian mixture (Figure 4).",
    "figure5": "Training with the discrete Gaussian mixture (Figure 5).",
    "rate": "Training at any rate: accuracy against bits per weight, 0.016 to 8.",
    "aggregator": "Accuracy on MNIST against the aggregator's ε, three schedules.",
    "silos": "Training over ten silos beside central DP-SGD and noise of each site.",
    "table1": "Running time of exact and approximate samplers (Table 1).",
}

Quick = Annotated[bool, typer.Option(help="A small version, a minute or so, in files of its own.")]
Seeds = Annotated[
    int | None, typer.Option(min=1, help="Repetitions of each setting; default: the study's own.")
]
Output = Annotated[Path, typer.Option(help="Where table, figure and report go; rows already there are kept.")]
Workers = Annotated[int | None, typer.Option(min=0, help="Processes; 0 measures in this one. Default: two.")]
DrawOnly = Annotated[bool, typer.Option(help="Measure nothing: draw and judge the rows that are there.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Measure the paper's figures and tables again.", no_args_is_help=True)
    for name, text in STUDIES.items():
        group.command(name, help=text)(_command(name))
    app.add_typer(group, name="reproduce")


def _command(name: str):  # type: ignore[no-untyped-def]  # typer reads the signature of what is returned
    def command(
        quick: Quick = False,
        seeds: Seeds = None,
        output: Output = Path("results"),
        workers: Workers = None,
        draw_only: DrawOnly = False,
        as_json: Json = False,
    ) -> None:
        from skelmix.studies.study import run

        study = import_module(f"skelmix.studies.{name}").STUDY
        words = [
            f"skelmix reproduce {name}",
            *(["--quick"] if quick else []),
            *([f"--seeds {seeds}"] if seeds else []),
        ]
        with progress() as bar:
            task = bar.add_task(name, total=None, note="")

            def on_row(done: int, total: int, row: Row) -> None:
                bar.update(task, completed=done, total=total, note=str(row.get("note") or ""))

            outcome = run(
                study, output, command=" ".join(words), quick=quick, seeds=seeds, workers=workers,
                measure=not draw_only, on_row=on_row,
            )  # fmt: skip
        emit(outcome.to_dict(), _readable(outcome), as_json=as_json)
        err.print(f"wrote {', '.join(str(path) for path in (outcome.csv, *outcome.figures, outcome.report))}")

    return command


def _readable(outcome: Outcome) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [grid.rich() for grid in outcome.study.tables(outcome.rows)]
    parts += [Text(sentence) for sentence in outcome.study.words(outcome.rows)]
    colours = {True: "green", False: "red", None: "yellow"}
    for claim in outcome.claims:
        parts.append(
            Text.assemble(
                (f"{outcome.verdict(claim):>13}", colours[claim.holds]),
                f"  {claim.text} [{claim.source}] {claim.numbers}",
            )
        )
    return Group(*parts)
