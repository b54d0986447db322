"""`skelmix stats`: private statistics of the records of several parties."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from skelmix.cli import options as opt
from skelmix.cli import question_options as question
from skelmix.cli import questions
from skelmix.cli.console import emit, err, progress
from skelmix.cli.places import check_report

Party = Annotated[
    list[Path], typer.Option(help="A party's records, .csv or .parquet; once per party, at least two.")
]


def register(app: typer.Typer) -> None:
    app.command("stats")(stats_command)


def stats_command(
    party: Party,
    more: Annotated[list[Path] | None, typer.Argument()] = None,
    ask: question.Ask = None,
    queries: question.Queries = None,
    records: question.RecordsOrDefault = None,
    epsilon: question.Epsilon = None,
    relative_error: question.RelativeError = None,
    delta: opt.Delta = 1e-6,
    owner: question.Owner = None,
    rows: question.Rows = None,
    colluding: question.Colluding = 0,
    level: question.Level = 0.95,
    joint: question.Joint = False,
    plan_only: question.PlanOnly = False,
    output: question.Output = None,
    as_json: opt.Json = False,
) -> None:
    """Answer a question about all parties' records with one private sum.

    MORE: files of further parties, so that --party *.csv takes every file as a party's.

    Example: skelmix stats --party a.csv --party b.csv --records 5000 --ask "count; mean(age, 0..110)"
    """
    from skelmix.statistics import Parties
    from skelmix.statistics.releases import release

    asked = questions.question(ask, queries)
    files = [*party, *(more or [])]
    _check_parties(files)
    number = questions.records_or_default(records, relative_error)
    group = Parties(len(files), number, questions.owners(owner, rows), colluding)
    check_report(output, "--output")
    planned = questions.planned(asked, epsilon, relative_error, delta, group, level=level, joint=joint)
    errors = planned.expected_errors
    expected = questions.expected(planned.plan, errors, assumed=records is None)
    if plan_only:
        emit(questions.plan_payload(planned.plan, errors), f"{planned.plan}\n\n{expected}", as_json=as_json)
        return
    print(expected, end="\n\n", file=sys.stderr if as_json else sys.stdout, flush=True)
    with progress() as bar:
        task = bar.add_task("parties", total=len(files), note="")
        answers = release(files, planned, notes=_note, read=lambda path: bar.advance(task))
    questions.warn_of_more_records(answers, planned)
    wrote = questions.write_page(output, answers, planned)
    text = f"{answers.table()}\n\n{questions.card(planned.plan)}{wrote}"
    emit(questions.payload(answers), text, as_json=as_json)


def _check_parties(paths: list[Path]) -> None:
    """Check the names of the files; only the parties themselves look at what they hold."""
    from skelmix.errors import InvalidInput

    for path in paths:
        if path.is_dir():
            raise InvalidInput(f"--party {path}: is a directory; name a file in it. Nothing was released")
        if not path.is_file():
            raise InvalidInput(f"--party {path}: no such file; check the path. Nothing was released")
        if path.suffix.lower() not in (".csv", ".parquet"):
            raise InvalidInput(f"--party {path}: the ending must be .csv or .parquet; convert or rename it")
    if len(paths) == 1:
        raise InvalidInput(
            f"--party {paths[0]}: the only one; give a file for each of two parties or more, so that each "
            "holds a part of the noise"
        )
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidInput("--party: a file is given twice, and its records would count twice; give it once")


def _note(path: Path, line: str) -> None:
    err.print(f"{line} (seen by this party only)", style="yellow", markup=False, soft_wrap=True)
