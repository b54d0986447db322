"""`skelmix stats`: private statistics of the records of several parties."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skelmix.cli import options as opt
from skelmix.cli.console import emit, err, progress

if TYPE_CHECKING:
    from skelmix.statistics import Answers, Parties, Question, StatisticsPlan


def register(app: typer.Typer) -> None:
    @app.command()
    def stats(
        party: Annotated[
            list[Path],
            typer.Option(help="A party's records, .csv or .parquet; once per party, at least two."),
        ],
        records: Annotated[
            int,
            typer.Option(
                help="Records of all parties together: a public number, no fewer than there may be; never "
                "read from the data."
            ),
        ],
        ask: Annotated[
            str | None,
            typer.Option(help='The question, e.g. "count; mean(age, 0..110); histogram(sex: F|M)".'),
        ] = None,
        queries: Annotated[Path | None, typer.Option(help="The question as a TOML file.")] = None,
        epsilon: Annotated[
            float | None,
            typer.Option(
                help="Privacy target ε of all answers together; default: 1.", rich_help_panel="Privacy"
            ),
        ] = None,
        relative_error: Annotated[
            float | None,
            typer.Option(
                help="In place of ε: the relative standard error that every answer may have; the least ε is "
                "found.",
                rich_help_panel="Privacy",
            ),
        ] = None,
        delta: opt.Delta = 1e-6,
        owner: Annotated[
            str | None,
            typer.Option(
                help="Column that names the owner of a record: protects owners.", rich_help_panel="Privacy"
            ),
        ] = None,
        rows: Annotated[
            int | None,
            typer.Option(
                help="Records per owner that count in full; needed with --owner.", rich_help_panel="Privacy"
            ),
        ] = None,
        colluding: Annotated[
            int,
            typer.Option(
                help="Parties that may share what they know with the adversary.", rich_help_panel="Privacy"
            ),
        ] = 0,
        level: Annotated[float, typer.Option(help="How often an interval covers the truth.")] = 0.95,
        joint: Annotated[
            bool, typer.Option("--joint", help="All intervals hold together that often, not each by itself.")
        ] = False,
        plan_only: Annotated[bool, typer.Option("--plan-only", help="Stop before any data is read.")] = False,
        output: Annotated[Path | None, typer.Option(help="Where to write a report: .html.")] = None,
        as_json: opt.Json = False,
    ) -> None:
        """Answer a question about all parties' records with one private sum.

        Example: skelmix stats --party a.csv --party b.csv --records 5000 --ask "count; mean(age, 0..110)"
        """
        from skelmix.statistics import Owners, Parties
        from skelmix.statistics.releases import release

        question = _question(ask, queries)
        owners = _owners(owner, rows)
        group = Parties(len(party), records, Owners(*owners) if owners else None, colluding)
        _check_parties(party)
        if output is not None:
            _check_output(output, party)
        planned = _planned(question, epsilon, relative_error, delta, group, level=level, joint=joint)
        if plan_only:
            emit(_plan_payload(planned), f"{planned.plan}\n\n{_expected(planned)}", as_json=as_json)
            return
        print(_expected(planned), end="\n\n", file=sys.stderr if as_json else sys.stdout, flush=True)
        with progress() as bar:
            task = bar.add_task("parties", total=len(party), note="")
            answers = release(party, planned, notes=_note, read=lambda path: bar.advance(task))
        if output is not None:
            from skelmix.rounds.files import write_atomically
            from skelmix.statistics.page import page

            write_atomically(output, page(answers, planned).encode())
        wrote = "" if output is None else f"\nwrote       {output}"
        emit(_payload(answers), f"{answers.table()}\n\n{planned.plan.report}{wrote}", as_json=as_json)


def _question(ask: str | None, queries: Path | None) -> Question:
    from skelmix.errors import InvalidInput
    from skelmix.statistics import parse_question, read_question

    if ask is not None and queries is None:
        return parse_question(ask)
    if queries is not None and ask is None:
        return read_question(queries)
    raise InvalidInput('give the question once: --ask "count; mean(age, 0..110)", or --queries FILE.toml')


def _owners(column: str | None, rows: int | None) -> tuple[str, int] | None:
    from skelmix.errors import InvalidInput

    if column is None and rows is None:
        return None
    if column is None or rows is None:
        raise InvalidInput(
            "--owner and --rows go together: name the column, and a bound on records per owner"
        )
    return column, rows


def _planned(
    question: Question,
    epsilon: float | None,
    relative_error: float | None,
    delta: float,
    group: Parties,
    **options: Any,
) -> StatisticsPlan:
    from skelmix.errors import InvalidInput
    from skelmix.planning import PrivacyTarget
    from skelmix.statistics import plan_for_error, plan_statistics

    if relative_error is None:
        target = PrivacyTarget(1.0 if epsilon is None else epsilon, delta)
        return plan_statistics(question, target, group, **options)
    if epsilon is not None:
        raise InvalidInput("--relative-error: finds the least ε; leave out --epsilon")
    return plan_for_error(question, relative_error, delta, group, **options)


def _check_parties(paths: list[Path]) -> None:
    """Check the names of the files; only the parties themselves look at what they hold."""
    from skelmix.errors import InvalidInput

    for path in paths:
        if not path.is_file():
            raise InvalidInput(f"--party {path}: no such file; check the path. Nothing was released")
        if path.suffix not in (".csv", ".parquet"):
            raise InvalidInput(f"--party {path}: the ending must be .csv or .parquet; convert or rename it")
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidInput("--party: a file is given twice, and its records would count twice; give it once")


def _check_output(path: Path, inputs: list[Path]) -> None:
    """Refuse a report that cannot be written, before anything is released."""
    from skelmix.errors import InvalidInput
    from skelmix.rounds.files import storing
    from skelmix.statistics.page import script

    script()
    if path.suffix != ".html":
        raise InvalidInput(f"--output {path}: the ending must be .html")
    if path.is_dir() or not path.parent.is_dir():
        raise InvalidInput(f"--output {path}: must be a file in a directory that exists; make it first")
    probe = path.with_name(path.name + ".tmp")
    with storing(path):
        probe.touch()
        probe.unlink()


def _note(path: Path, line: str) -> None:
    err.print(f"{line} (seen by this party only)", style="yellow", markup=False, soft_wrap=True)


def _expected(planned: StatisticsPlan) -> str:
    """What each answer's error will be, in one line per query."""
    from skelmix.wording import up

    report = planned.plan.report
    head = (
        f"expected errors with ε = {up(report.epsilon)}, δ = {report.delta:g} for one "
        f"{planned.plan.cohort.unit}, {planned.central_ratio:.3f} times the central "
        "Gaussian's; no data was read for this"
    )
    return "\n".join([head, *(f"  {expected}" for expected in planned.expected_errors)])


def _payload(answers: Answers) -> dict[str, Any]:
    keys = ("query", "value", "standard_error", "low", "high")
    found = answers.to_json()
    listed = [{key: answer[key] for key in keys} for answer in found["answers"]]
    return {key: found[key] for key in ("epsilon", "delta", "unit")} | {"answers": listed}


def _plan_payload(planned: StatisticsPlan) -> dict[str, Any]:
    expected = [
        {
            "query": str(item.query),
            "standard_error": item.standard_error,
            "relative_error": item.relative,
            "meaning": item.meaning,
        }
        for item in planned.expected_errors
    ]
    return planned.plan.summary() | {"expected": expected, "central_ratio": planned.central_ratio}
