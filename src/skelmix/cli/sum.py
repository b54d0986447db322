"""`skelmix sum`: a private sum over the rows of a file, or over synthetic vectors."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from skelmix.cli import options as opt
from skelmix.cli import sum_options as own
from skelmix.cli.console import emit, err, progress
from skelmix.cli.places import check_report

if TYPE_CHECKING:
    from skelmix.cli.rows import RowFile
    from skelmix.planning import Plan
    from skelmix.rounds import PrivateSum
    from skelmix.rounds.security import Secure

_DEMONSTRATION = (
    "demonstration: {:,} made-up vectors, whose error can be shown; give --input FILE to add up your own rows"
)
_MANY = 1_000  # participants, from which on the protocol takes a while
_SLOW = (
    "{:,} participants run secure aggregation in this process, which takes a while; --secure simulated adds "
    "at once, with the same noise"
)


def register(app: typer.Typer) -> None:
    @app.command(name="sum")
    def sum_(
        context: typer.Context,
        input: own.Input = None,
        silo: own.Silo = None,
        records: opt.Records = None,
        output: own.Output = None,
        report: own.Report = None,
        mean: own.Mean = False,
        columns: own.Columns = None,
        inspect: own.Inspect = False,
        participants: own.Participants = 100,
        dimension: own.Dimension = 65_536,
        radius: own.Radius = 1.0,
        secure: own.Secure = "protocol",
        epsilon: opt.Epsilon = 3.0,
        delta: opt.Delta = 1e-5,
        clip_norm: own.ClipNorm = None,
        rate: opt.Rate = None,
        bits: own.Bits = None,
        keep: opt.Keep = None,
        mechanism: opt.MechanismName = "smm",
        bound: opt.Bound = "tight",
        scale: opt.Scale = None,
        dropout_tolerance: opt.DropoutTolerance = 0.0,
        colluding: opt.Colluding = 0,
        alignment: own.Alignment = None,
        header: own.Header = False,
        yes: own.Yes = False,
        as_json: opt.Json = False,
    ) -> None:
        """Release one private sum: every row is clipped to --clip-norm, encoded with noise and added.

        Without a file it is a demonstration with made-up vectors, and shows the error.

        Example: skelmix sum --input visits.csv --columns age,stay --clip-norm 120 --epsilon 1

        Records in silos: skelmix sum --silo north.csv --silo south.csv --records 2000 --clip-norm 10
        """
        from skelmix.cli import sum_checks as checks
        from skelmix.cli import sum_result as shown
        from skelmix.planning.card import plan_text
        from skelmix.rounds.security import check_secure, secure_of

        given = opt.given(context)
        files = [*(silo or []), *([] if input is None else [input])]
        checks.check_silos(silo, given)
        checks.check_options(given, files, mechanism)
        if output is not None:
            checks.check_output(output, files)
        check_report(report)
        start = time.perf_counter()
        opened = _open_all(files, header, columns)
        names = opened[0].names if opened else None
        if inspect:
            emit(*shown.inspect(row for rows in opened for row in rows), as_json=as_json)
            return
        data: Iterable[Any]
        if opened:
            clip_norm = checks.required_clip_norm(clip_norm)
            data, dimension = (opened if silo else opened[0]), opened[0].width
            participants = len(silo) if silo else opened[0].rows
            if output is None and not as_json:
                checks.check_shown(dimension)
        else:
            data = _sphere(participants, dimension, radius)
        plan = opt.build_plan(
            epsilon=epsilon, delta=delta, dimension=dimension,
            clip_norm=radius if clip_norm is None else clip_norm,
            bits="auto" if bits is None and rate is None else bits, rate=rate, keep=keep,
            cohort=participants, population=None, rounds=1, mechanism=mechanism, bound=bound, scale=scale,
            dropout_tolerance=dropout_tolerance,
            colluding=colluding, sampling="none",
            alignment=(1.0 if files else 0.0) if alignment is None else alignment,
            silos=len(silo) if silo else None, records=records, batch=records,
        )  # fmt: skip
        check_secure(secure_of(secure), plan.mechanism)
        if not files:
            err.print(_DEMONSTRATION.format(participants), soft_wrap=True)
        elif not yes:
            checks.check_warnings(plan)
        result = _release(data, plan, secure_of(secure), participants, silos=bool(silo), shown=not files)
        divisor = participants if mean else 1
        estimate, deviation = result.estimate / divisor, result.deviation / divisor
        payload: dict[str, Any] = plan.summary() | {
            "mean": mean, "participants": participants, "seconds": time.perf_counter() - start,
            "secure": secure, "deviation": deviation, "columns": names, "demonstration": not files,
        }  # fmt: skip
        payload |= {} if result.true_mse is None else {"mse": result.true_mse}
        if output is not None:
            shown.write(output, estimate, names)
        payload |= {"output": str(output)} if output else {"estimate": estimate.tolist()} if files else {}
        shown.write_report(report, plan, result, payload, estimate)
        table = shown.table(estimate, deviation, names, mean=mean)
        card = plan_text(replace(plan, report=result.report), participants if mean else None)
        text = f"{card}\n\n{table}\n\n{shown.notes(payload)}"
        emit(payload, text, as_json=as_json)


def _release(
    data: Iterable[Any], plan: Plan, secure: Secure, participants: int, *, silos: bool, shown: bool
) -> PrivateSum:
    """The private sum, with progress on stderr; shown: made-up vectors, whose true error may be seen."""
    from skelmix.rounds.summation import private_sum

    together = secure == "protocol" and not silos
    if together and participants >= _MANY:
        err.print(_SLOW.format(participants), soft_wrap=True)
    with progress() as bar:
        task = bar.add_task("silos" if silos else "participants", total=participants, note="")
        rows = iter(data) if together else _ticking(data, lambda: bar.advance(task))
        return private_sum(rows, plan, secure, diagnostics=shown, heard=lambda: bar.advance(task, 0.25))


def _ticking(data: Iterable[Any], tick: Any) -> Iterable[Any]:
    for row in data:
        yield row
        tick()


def _sphere(participants: int, dimension: int, radius: float) -> Iterable[Any]:
    """Uniform points on a sphere (public test data, Section 6.1 of the paper)."""
    import numpy as np

    from skelmix.noise.entropy import system_entropy
    from skelmix.validation import positive, whole

    whole(1, participants=participants, dimension=dimension)
    positive(radius=radius)
    generator = np.random.default_rng(int.from_bytes(system_entropy().bytes(16), "little"))
    for _ in range(participants):
        point = generator.standard_normal(dimension)
        yield point * (radius / np.linalg.norm(point))


def _open_all(paths: list[Path], header: bool, columns: str | None) -> list[RowFile]:
    """The checked files, all with the same columns."""
    from skelmix.cli.rows import open_rows
    from skelmix.errors import InvalidInput

    opened = [open_rows(path, header=header, columns=columns) for path in paths]
    for rows in opened:
        if rows.width != opened[0].width:
            raise InvalidInput(
                f"{rows.path}: {rows.width} columns, but {opened[0].path} has {opened[0].width}; give the "
                "same columns in every file"
            )
    return opened
