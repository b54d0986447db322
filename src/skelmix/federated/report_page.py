"""The report of a training run as one page: `report.html`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from skelmix.display import Document, Fact, Figure, Section
from skelmix.wording import counted, up

if TYPE_CHECKING:
    from skelmix.federated.report import Spent
    from skelmix.federated.round_record import RoundRecord
    from skelmix.federated.run_result import RunResult
    from skelmix.planning import Plan

#: (round, accuracy) of another run that is drawn beside this one
Curve = Sequence[tuple[int, float]]

UNPROTECTED = (
    "cohort sizes, times, norms, clipping, wrapping and measured error are diagnostics of this simulation, "
    "computed from the sample and the participants' data without noise. The guarantee does not cover them: "
    "they were asked for with --diagnostics; do not keep or publish them for real data."
)


def run_facts(plan: Plan, result: RunResult) -> tuple[Fact, ...]:
    """What became of the plan's rounds."""
    facts = [
        Fact(
            "rounds",
            f"{result.rounds:,} of {counted(plan.rounds, 'round')} were charged, "
            f"{result.failed_rounds:,} gave no sum",
        )
    ]
    if result.lost_rounds:
        facts.append(
            Fact(
                "lost rounds",
                f"{result.lost_rounds:,} of the charged rounds were interrupted, and what they did to the "
                "model is lost; their sums may have been seen",
            )
        )
    return tuple(facts)


def run_sections(plan: Plan, result: RunResult) -> tuple[Section, ...]:
    """The privacy card of a run: the plan's facts with the guarantee of the rounds that were charged."""
    guarantee, costs, *rest, left_out = replace(plan, report=result.report).sections
    extra = []
    if result.accuracy is not None:
        extra.append(Fact("test data", "accuracy is measured on records that no noise protects"))
    if any(record.diagnostics for record in result.history):
        extra.append(Fact("diagnostics", UNPROTECTED, alarm=True))
    return (
        Section(guarantee.title, (*guarantee.facts, *run_facts(plan, result))),
        costs,
        *rest,
        Section(left_out.title, (*left_out.facts, *extra)),
    )


def run_page(
    plan: Plan, result: RunResult, config: Mapping[str, Any], spent: Spent, baseline: Curve = ()
) -> str:
    """The run as one page that loads nothing. baseline: accuracy of the central Gaussian, if measured."""
    return Document(
        title="Training run",
        verdict=result.report.verdict,
        alarm=not result.private,
        tiles=_tiles(plan, result),
        sections=run_sections(plan, result),
        figures=_figures(plan, result.history, spent, baseline),
        settings={name: str(value) for name, value in config.items()},
    ).html()


def _tiles(plan: Plan, result: RunResult) -> list[Fact]:
    observers, aggregator, *_ = result.report.guarantee
    accuracy = []
    if result.accuracy is not None:
        accuracy.append(Fact("accuracy", f"{result.accuracy:.2%}", "on test data"))
    failed = f"{result.failed_rounds:,} gave no sum" if result.failed_rounds else "all gave a sum"
    private = "nothing" if not result.private else f"one {result.report.unit}"
    return [
        Fact(observers.name, observers.value, f"at δ = {up(result.report.delta)}"),
        Fact(aggregator.name, aggregator.value, aggregator.note),
        *accuracy,
        Fact("bits per weight", f"{plan.rate:.3g}", f"{plan.upload_bytes:,} bytes per round"),
        Fact("rounds", f"{result.rounds:,}", failed),
        Fact("private", private, result.report.neighbours, alarm=not result.private),
    ]


def _line(name: str, points: Sequence[tuple[int, float]], **look: Any) -> dict[str, Any]:
    x, y = [point[0] for point in points], [point[1] for point in points]
    mode = "lines" if len(points) > 30 else "lines+markers"
    return {"type": "scatter", "mode": mode, "name": name, "x": x, "y": y, **look}


def _figures(plan: Plan, history: Sequence[RoundRecord], spent: Spent, baseline: Curve) -> list[Figure]:
    accuracy = [(record.round, record.accuracy) for record in history if record.accuracy is not None]
    budget = [(record.round, spent.after(record.round)) for record in history]
    figures = [Figure("Privacy spent", "round", "ε for observers (upper bound)", [_line("ε", budget)])]
    if len(accuracy) > 1 or (accuracy and baseline):  # a tile states a single one
        lines = [_line("this run", accuracy)]
        if baseline:
            lines.append(_line("central Gaussian (DP-SGD)", baseline, line={"dash": "dash"}))
        figures.insert(0, Figure("Test accuracy", "round", "accuracy (fraction correct)", lines))
    if plan.adaptive_clip is not None:
        clips = [(record.round, record.clip_norm) for record in history if record.clip_norm is not None]
        figures.append(Figure("Clip norm", "round", "clip norm (L2)", [_line("clip norm", clips)]))
    if any(record.diagnostics for record in history):
        figures += _diagnostics(plan, history)
    return figures


def _diagnostics(plan: Plan, history: Sequence[RoundRecord]) -> list[Figure]:
    """Plots of measurements that no noise protects, only where they were asked for."""

    def points(name: str) -> list[tuple[int, float]]:
        value: Callable[[Any], Any] = attrgetter(name)
        notes = [(r.round, value(r.diagnostics)) for r in history if r.diagnostics]
        return [(round_number, number) for round_number, number in notes if number is not None]

    ends = [history[0].round, history[-1].round]
    predicted = [(end, plan.predicted.mse) for end in ends]
    panels = [
        (
            "Length of participants' vectors",
            "L2 norm (root mean square)",
            [_line("norm", points("rms_norm"))],
        ),
        ("Vectors clipped", "fraction of vectors", [_line("clipped", points("clipped_fraction"))]),
        ("Coordinates wrapped", "fraction of coordinates", [_line("wrapped", points("wrapped_fraction"))]),
        (
            "Error of the sum",
            "squared error per coordinate",
            [_line("measured", points("mse")), _line("predicted", predicted, line={"dash": "dash"})],
        ),
    ]
    look = {"yaxis": {"rangemode": "tozero"}}
    return [Figure(title, "round", y, lines, "not private", look) for title, y, lines in panels]
