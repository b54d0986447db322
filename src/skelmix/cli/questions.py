"""What `skelmix stats` and `skelmix ask` share: the question, its plan, and how answers are shown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skelmix.cli.console import err, say_when_compiling

if TYPE_CHECKING:
    from skelmix.planning import Plan
    from skelmix.statistics import Answers, ExpectedError, Owners, Parties, Question, StatisticsPlan


def question(ask: str | None, queries: Path | None) -> Question:
    """The question, from text or from a file."""
    from skelmix.errors import InvalidInput
    from skelmix.statistics import parse_question, read_question

    if ask is not None and queries is None:
        return parse_question(ask)
    if queries is not None and ask is None:
        return read_question(queries)
    raise InvalidInput('give the question once: --ask "count; mean(age, 0..110)", or --queries FILE.toml')


def owners(column: str | None, rows: int | None) -> Owners | None:
    """The column that names a record's owner, and a bound on the records of each owner; None: no owners."""
    from skelmix.errors import InvalidInput
    from skelmix.statistics import Owners

    if column is None and rows is None:
        return None
    if column is None or rows is None:
        raise InvalidInput(
            "--owner and --rows go together: name the column, and a bound on records per owner"
        )
    return Owners(column, rows)


def planned(
    question: Question,
    epsilon: float | None,
    relative_error: float | None,
    delta: float,
    group: Parties,
    **options: Any,
) -> StatisticsPlan:
    """The plan within ε, or with the least ε for a relative error."""
    from skelmix.errors import InvalidInput
    from skelmix.planning import PrivacyTarget
    from skelmix.statistics import plan_for_error, plan_statistics

    say_when_compiling()
    if relative_error is None:
        target = PrivacyTarget(1.0 if epsilon is None else epsilon, delta)
        return plan_statistics(question, target, group, **options)
    if epsilon is not None:
        raise InvalidInput("--relative-error finds the least ε by itself; leave out --epsilon")
    return plan_for_error(question, relative_error, delta, group, **options)


def records_or_default(records: int | None, relative_error: float | None) -> int:
    """The stated number of records, or a default; no relative error can be planned from the default."""
    from skelmix.cli.question_options import DEFAULT_RECORDS
    from skelmix.errors import InvalidInput

    if records is None and relative_error is not None:
        raise InvalidInput("--relative-error is relative to the number of records: state it, --records")
    return DEFAULT_RECORDS if records is None else records


def expected(plan: Plan, errors: Iterable[ExpectedError], *, assumed: bool = False) -> str:
    """What each answer's error will be, in one line per query. assumed: nobody stated how many records."""
    from skelmix.planning.card import relative_error
    from skelmix.wording import counted, figure, up

    report, records = plan.report, plan.cohort.members
    head = (
        f"expected errors with {counted(records, 'record')}, ε = {up(report.epsilon)} and "
        f"δ = {report.delta:g} for one {plan.cohort.unit}\n(no data was read for this; squared "
        f"error {figure(relative_error(plan))} times the central Gaussian's)"
    )
    lines = [head, *(f"  {error}" for error in errors)]
    if assumed:
        lines.append(
            f"(--records was not given: {records:,} at most are assumed; with fewer, errors "
            "of means, variances and ranks are larger in proportion)"
        )
    return "\n".join(lines)


def warn_of_more_records(answers: Answers, planned: StatisticsPlan) -> None:
    """Say so where the released count is above the number of records that the plan is for."""
    from skelmix.statistics import Count, Estimate

    for answer in answers.answers:
        number, stated = answer.estimates, planned.parties.records
        if isinstance(answer.query, Count) and isinstance(number, Estimate) and number.low > stated:
            err.print(
                f"the count is above --records {stated}: sums of many more records are wrong, because they "
                "wrap around. State more, and ask again, which is another release",
                style="yellow", markup=False, soft_wrap=True,
            )  # fmt: skip


def payload(answers: Answers) -> dict[str, Any]:
    """The JSON of the answers."""
    keys = ("query", "value", "standard_error", "low", "high")
    listing = answers.to_json()
    listed = [{key: answer[key] for key in keys} for answer in listing["answers"]]
    return {key: listing[key] for key in ("epsilon", "delta", "unit")} | {"answers": listed}


def plan_payload(plan: Plan, errors: Iterable[ExpectedError]) -> dict[str, Any]:
    """The JSON of a plan that was not run."""
    from skelmix.statistics.sizing import central_ratio

    expected = [
        {
            "query": str(item.query),
            "standard_error": item.standard_error,
            "relative_error": item.relative,
            "meaning": item.meaning,
        }
        for item in errors
    ]
    return plan.summary() | {"expected": expected, "central_ratio": central_ratio(plan)}


def card(plan: Plan) -> str:
    """The privacy card of answers: the facts that their page states."""
    from skelmix.display import card_text
    from skelmix.statistics.answer_page import sections

    return card_text(plan.report.headline, sections(plan))


def write_page(output: Path | None, answers: Answers, planned: StatisticsPlan) -> str:
    """Write the report, if one was asked for; returns the line that tells the user."""
    if output is None:
        return ""
    from skelmix.rounds.files import write_atomically
    from skelmix.statistics.answer_page import page

    write_atomically(output, page(answers, planned).encode())
    return f"\nwrote       {output}"
