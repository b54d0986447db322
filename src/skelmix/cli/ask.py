"""`skelmix ask`: private statistics, or a private sum, over parties on other machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skelmix.cli import options as opt
from skelmix.cli import question_options as question
from skelmix.cli import questions
from skelmix.cli.console import emit
from skelmix.cli.places import check_report

if TYPE_CHECKING:
    from skelmix.flower.ask import SuperLink
    from skelmix.planning import Plan
    from skelmix.statistics import Answers, Parties
    from skelmix.statistics.asked import Asked


Address = Annotated[
    str, typer.Option(help="Address of the SuperLink, host:port, or a name in Flower's configuration.")
]
PartyCount = Annotated[
    int, typer.Option(help="How many parties answer: all that are connected and do not refuse.")
]
Columns = Annotated[
    str | None,
    typer.Option(help='In place of a question: columns whose rows are added up, e.g. "weight,height".'),
]
ClipNorm = Annotated[
    float | None, typer.Option(help="With --sum: L2 norm that rows are clipped to; default: 1.")
]
RootCertificates = Annotated[
    Path | None,
    typer.Option(help="Root certificate that the SuperLink's is checked with.", rich_help_panel="Connection"),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="No TLS: for 127.0.0.1 only.", rich_help_panel="Connection")
]
Seconds = Annotated[
    float, typer.Option(help="How long to wait in each of four phases.", rich_help_panel="Connection")
]


def register(app: typer.Typer) -> None:
    app.command("ask")(ask_command)


def ask_command(
    superlink: Address,
    parties: PartyCount,
    records: question.Records,
    ask: question.Ask = None,
    queries: question.Queries = None,
    sum: Columns = None,
    clip_norm: ClipNorm = None,
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
    root_certificates: RootCertificates = None,
    insecure: Insecure = False,
    seconds: Seconds = 300.0,
    as_json: opt.Json = False,
) -> None:
    """Ask all parties at a SuperLink: each checks its policy, answers from its file, adds its noise.

    Example: skelmix ask --superlink stats.example.org:8000 --parties 5 --records 5000 --ask "count"
    """
    from skelmix.errors import InvalidInput
    from skelmix.flower.ask import SuperLink
    from skelmix.statistics import Parties

    link = SuperLink(superlink, root_certificates, insecure)
    group = Parties(parties, records, questions.owners(owner, rows), colluding)
    if sum is not None:
        if ask or queries or relative_error or output or owner:
            raise InvalidInput("--sum: leave out --ask, --queries, --relative-error, --output and --owner")
        _sum(sum, clip_norm, _target(epsilon, delta), group, link, level, seconds, plan_only, as_json)
        return
    if clip_norm is not None:
        raise InvalidInput("--clip-norm belongs to --sum: a question states bounds")
    check_report(output, "--output")
    statistics = questions.question(ask, queries)
    planned = questions.planned(statistics, epsilon, relative_error, delta, group, level=level, joint=joint)
    errors = planned.expected_errors
    expected = questions.expected(planned.plan, errors)
    if plan_only:
        emit(questions.plan_payload(planned.plan, errors), f"{planned.plan}\n\n{expected}", as_json=as_json)
        return
    from skelmix.statistics.asked import AskedStatistics
    from skelmix.statistics.releases import answers_from

    print(expected, end="\n\n", file=sys.stderr if as_json else sys.stdout, flush=True)
    total = _asked(planned.plan, AskedStatistics(statistics, group.owners), link, seconds)
    answers = answers_from(total, planned)
    questions.warn_of_more_records(answers, planned)
    wrote = questions.write_page(output, answers, planned)
    text = f"{answers.table()}\n\n{questions.card(planned.plan)}{wrote}"
    emit(questions.payload(answers), text, as_json=as_json)


def _target(epsilon: float | None, delta: float) -> Any:
    from skelmix.planning import PrivacyTarget

    return PrivacyTarget(1.0 if epsilon is None else epsilon, delta)


def _asked(plan: Plan, asked: Asked, link: SuperLink, seconds: float) -> Any:
    from skelmix.flower.ask import ask_superlink
    from skelmix.statistics.asked import check_asked_plan

    check_asked_plan(asked, plan)
    return ask_superlink(plan, asked.to_text(), link, seconds=seconds)


def _sum(
    columns: str,
    clip_norm: float | None,
    target: Any,
    group: Parties,
    link: SuperLink,
    level: float,
    seconds: float,
    plan_only: bool,
    as_json: bool,
) -> None:
    """The plain sum of rows: each record's columns are one vector."""
    from skelmix.statistics.asked import AskedSum
    from skelmix.statistics.row_sums import plan_row_sum, row_sum_answers, row_sum_errors

    asked = AskedSum(tuple(name.strip() for name in columns.split(",")))
    plan = plan_row_sum(asked, target, group, clip_norm=1.0 if clip_norm is None else clip_norm)
    errors = row_sum_errors(asked, plan)
    expected = questions.expected(plan, errors)
    if plan_only:
        emit(questions.plan_payload(plan, errors), f"{plan}\n\n{expected}", as_json=as_json)
        return
    print(expected, end="\n\n", file=sys.stderr if as_json else sys.stdout, flush=True)
    answers: Answers = row_sum_answers(_asked(plan, asked, link, seconds), asked, plan, level)
    clipped = f"clip norm   rows longer than {plan.mechanism.clip_norm:g} were shortened to it"
    text = f"{answers.table()}\n\n{questions.card(plan)}\n{clipped}"
    emit(questions.payload(answers), text, as_json=as_json)
