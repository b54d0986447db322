"""`skelmix reproduce`: the paper's figures and tables measured again, its claims judged by the numbers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skelmix.cli.console import emit, err, progress
from skelmix.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import RenderableType

    from skelmix.studies.rows import Row
    from skelmix.studies.study import Outcome, Study

STUDIES = {
    "figure1": "Sums of 100 vectors: error of every mechanism, ten panels (Figure 1).",
    "figure2": "Training on MNIST: accuracy of every mechanism, and against bits (Figure 2).",
    "figure3": "Training on Fashion-MNIST (Figure 3).",
    "figure4": "Sums with the discrete Gaussian mixture (Figure 4).",
    "figure5": "Training with the discrete Gaussian mixture (Figure 5).",
    "rate": "Training at any rate: accuracy against bits per weight, 0.016 to 8.",
    "aggregator": "Accuracy on MNIST against the aggregator's ε, by schedule.",
    "recipes": "The best recipes on images and text at a fraction of a bit per weight, beside central noise.",
    "silos": "Training over ten silos beside central DP-SGD and noise of each site.",
    "table1": "Running time of exact and approximate samplers (Table 1).",
}

Quick = Annotated[bool, typer.Option(help="At toy size, within seconds, in files of its own.")]
Seeds = Annotated[
    int | None, typer.Option(min=1, help="Repetitions of each setting; default: the study's own.")
]
Output = Annotated[Path, typer.Option(help="Where table, figure and report go; rows already there are kept.")]
Workers = Annotated[int | None, typer.Option(min=0, help="Processes; 0 measures in this one. Default: two.")]
DrawOnly = Annotated[bool, typer.Option(help="Measure nothing: draw and judge the rows that are there.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Measure the paper's figures and tables again, and the studies that skelmix adds.",
        no_args_is_help=True,
        invoke_without_command=True,
    )
    group.callback()(_every_study)
    for name, text in STUDIES.items():
        group.command(name, help=text)(_command(name))
    app.add_typer(group, name="reproduce")


def _every_study(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Every study, one after the other.")] = False,
    quick: Quick = False,
    output: Output = Path("results"),
    workers: Workers = None,
) -> None:
    if context.invoked_subcommand is not None:
        if every or quick or workers is not None or output != Path("results"):
            raise InvalidInput(
                f"options before {context.invoked_subcommand!r} belong to --all; write them after it"
            )
        return
    if not every:
        raise InvalidInput("name a study, or pass --all for every one; --help lists them")
    if quick and workers is None:
        workers = 0  # toy sizes take less time than starting a process
    for name in STUDIES:
        _reproduce(name, quick=quick, output=output, workers=workers)


def _command(name: str):  # type: ignore[no-untyped-def]  # typer reads the signature of what is returned
    def command(
        quick: Quick = False,
        seeds: Seeds = None,
        output: Output = Path("results"),
        workers: Workers = None,
        draw_only: DrawOnly = False,
        as_json: Json = False,
    ) -> None:
        outcome = _reproduce(
            name, quick=quick, seeds=seeds, output=output, workers=workers, draw_only=draw_only
        )
        emit(outcome.to_dict(), _readable(outcome), as_json=as_json)

    return command


def _reproduce(
    name: str,
    *,
    quick: bool,
    output: Path,
    workers: int | None,
    seeds: int | None = None,
    draw_only: bool = False,
) -> Outcome:
    """Run one study, saying beforehand how long it will take and, on the way, how far it is."""
    from skelmix.studies.study import run

    study = import_module(f"skelmix.studies.{name}").STUDY
    command = f"skelmix reproduce {name}" + " --quick" * quick + (f" --seeds {seeds}" if seeds else "")
    processes = max(1, study.workers if workers is None else workers)
    with progress() as bar:
        task = bar.add_task(name, total=None, note="")

        def on_start(missing: int, total: int) -> None:
            bar.update(task, completed=total - missing, total=total)
            if missing:
                err.print(_forecast(study, missing, total, processes, quick), highlight=False, soft_wrap=True)

        def on_row(done: int, total: int, row: Row) -> None:
            bar.update(task, completed=done, total=total, note=str(row.get("note") or ""))
            if not err.is_terminal:
                err.print(f"{name}: {done} of {total} settings measured", highlight=False)

        outcome = run(
            study, output, command=command, quick=quick, seeds=seeds, workers=workers,
            measure=not draw_only, on_start=on_start, on_row=on_row,
        )  # fmt: skip
    written = ", ".join(str(path) for path in (outcome.csv, *outcome.figures, outcome.report))
    err.print(f"wrote {written}", highlight=False, soft_wrap=True)
    return outcome


def _forecast(study: Study, missing: int, total: int, processes: int, quick: bool) -> str:
    """How many settings are left and how long they will take, before the first one is measured."""
    left = f"{study.name}: {missing} of {total} settings to measure"
    if quick:
        return f"{left}, at toy size"
    minutes = missing * study.seconds_per_setting / processes / 60
    span = f"{minutes / 60:.1f} hours" if minutes > 90 else f"{max(1, round(minutes))} min"
    return (
        f"{left}, about {span} on free cores with {processes} process{'es' * (processes > 1)}; rows are "
        "kept as they come, so you may stop it and run the same command again"
    )


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
