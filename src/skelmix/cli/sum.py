"""`skelmix sum`: a private sum over the rows of a file, or over synthetic vectors."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skelmix.cli import options as opt
from skelmix.cli.console import emit, progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skelmix.cli.rows import RowFile
    from skelmix.planning import Plan
    from skelmix.rounds.summation import PrivateSum

_MOST_SHOWN = 100  # coordinates on the screen; what is not shown could only be had by a second release


def register(app: typer.Typer) -> None:
    @app.command(name="sum")
    def sum_(
        input: Annotated[
            Path | None,
            typer.Option(help="One row per participant: .npy, .csv or .parquet.", rich_help_panel="Data"),
        ] = None,
        silo: Annotated[
            list[Path] | None,
            typer.Option(
                help="One row per record of a silo, a file per silo: protects records.",
                rich_help_panel="Silos",
            ),
        ] = None,
        records: opt.Records = None,
        output: Annotated[
            Path | None, typer.Option(help="Where to write the sum: .npy or .csv.", rich_help_panel="Data")
        ] = None,
        mean: Annotated[
            bool,
            typer.Option(
                "--mean", help="Divide by the public number of participants.", rich_help_panel="Data"
            ),
        ] = False,
        participants: Annotated[
            int, typer.Option(help="Number of synthetic vectors, without --input.", rich_help_panel="Data")
        ] = 100,
        dimension: opt.Dimension = 65_536,
        radius: Annotated[
            float, typer.Option(help="Norm of the synthetic vectors.", rich_help_panel="Data")
        ] = 1.0,
        secure: Annotated[
            str,
            typer.Option(help="protocol (secure aggregation), simulated (modular sum) or none."),
        ] = "protocol",
        epsilon: opt.Epsilon = 3.0,
        delta: opt.Delta = 1e-5,
        clip_norm: Annotated[
            float | None,
            typer.Option(
                help="L2 norm that rows are clipped to; default: 1, or --radius.", rich_help_panel="Vector"
            ),
        ] = None,
        rate: opt.Rate = None,
        bits: Annotated[
            int | None,
            typer.Option(
                help="Bits per coordinate on the wire, 1..32; default: 16, or as --rate has it.",
                rich_help_panel="Vector",
            ),
        ] = None,
        keep: opt.Keep = None,
        mechanism: opt.MechanismName = "smm",
        bound: opt.Bound = "tight",
        scale: opt.Scale = None,
        dropout_tolerance: opt.DropoutTolerance = 0.0,
        colluding: opt.Colluding = 0,
        alignment: Annotated[
            float | None,
            typer.Option(
                help="Mean cosine between rows, 0..1; default: 1 (safe), or 0 for synthetic vectors.",
                rich_help_panel="Vector",
            ),
        ] = None,
        header: Annotated[
            bool,
            typer.Option("--header", help="Line 1 of the CSV names the columns.", rich_help_panel="Data"),
        ] = False,
        as_json: opt.Json = False,
    ) -> None:
        """Release one private sum: every row is clipped to --clip-norm, encoded with noise and added.

        Example: skelmix sum --input visits.csv --output total.csv --epsilon 1 --clip-norm 10

        Records in silos: skelmix sum --silo north.csv --silo south.csv --records 2000 --output total.csv
        """
        from skelmix.cli.rows import open_rows
        from skelmix.rounds.security import secure_of
        from skelmix.rounds.summation import private_sum

        files = [*(silo or []), *([] if input is None else [input])]
        if silo or records is not None:
            _check_silos(silo, records, input, mean)
        if output is not None:
            _check_output(output, files)
        start = time.perf_counter()
        data: Iterable[Any]
        if silo:
            data = _open_silos(silo, header)
            participants, dimension = len(silo), data[0].width
        elif input is not None:
            rows = open_rows(input, header=header)
            data, participants, dimension = rows, rows.rows, rows.width
        else:
            data = _sphere(participants, dimension, radius)
        if files and output is None and not as_json:
            _check_shown(dimension)
        if clip_norm is None:
            clip_norm = 1.0 if files else radius
        if alignment is None:
            alignment = 1.0 if files else 0.0
        if bits is None and rate is None:
            bits = 16
        chosen = opt.build_plan(
            epsilon=epsilon, delta=delta, dimension=dimension, clip_norm=clip_norm, bits=bits, rate=rate,
            keep=keep,
            cohort=participants, population=None, rounds=1, mechanism=mechanism, bound=bound, scale=scale,
            dropout_tolerance=dropout_tolerance,
            colluding=colluding, sampling="none", alignment=alignment,
            silos=len(silo) if silo else None, records=records, batch=records,
        )  # fmt: skip
        with progress() as bar:
            task = bar.add_task("silos" if silo else "participants", total=participants, note="")
            result = private_sum(
                _ticking(data, lambda: bar.advance(task)),
                chosen,
                secure=secure_of(secure),
                diagnostics=not files,
            )
        seconds = time.perf_counter() - start
        estimate = result.estimate / participants if mean else result.estimate
        payload: dict[str, Any] = chosen.summary() | {
            "mean": mean,
            "participants": participants,
            "seconds": seconds,
            "secure": secure,
        }
        if result.true_mse is not None:
            payload["mse"] = result.true_mse
        if output is not None:
            _write(output, estimate)
            payload["output"] = str(output)
        elif files:
            payload["estimate"] = estimate.tolist()
        emit(payload, _readable(chosen, result, payload, estimate), as_json=as_json)


def _check_shown(dimension: int) -> None:
    """A sum that is too long to print is refused before anything is released."""
    from skelmix.errors import InvalidInput

    if dimension > _MOST_SHOWN:
        raise InvalidInput(
            f"{dimension} coordinates are too many to show: give --output FILE or --json. "
            "Nothing was released"
        )


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


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _check_silos(silo: list[Path] | None, records: int | None, input: Path | None, mean: bool) -> None:
    from skelmix.errors import InvalidInput

    if not silo:
        raise InvalidInput("--records describes silos: give a --silo FILE for each, or leave it out")
    if input is not None:
        raise InvalidInput("--input: has a row per participant, --silo a row per record; give one of them")
    if records is None:
        raise InvalidInput(
            "--silo: give --records too, roughly how many records all silos hold together; it is public, so "
            "it is not counted from the files"
        )
    if mean:
        raise InvalidInput(
            "--mean: the number of records is not public; add a column of ones and divide by its sum"
        )


def _open_silos(paths: list[Path], header: bool) -> list[RowFile]:
    from skelmix.cli.rows import open_rows
    from skelmix.errors import InvalidInput

    opened = [open_rows(path, header=header) for path in paths]
    for rows in opened:
        if rows.width != opened[0].width:
            raise InvalidInput(
                f"{rows.path}: {rows.width} columns, but {opened[0].path} has {opened[0].width}; give the "
                "same columns in every file"
            )
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidInput("--silo: a file is given twice, and its records would count twice; give it once")
    return opened


def _check_output(path: Path, inputs: list[Path]) -> None:
    """Refuse a place that cannot be written to, before anything is released."""
    from skelmix.errors import InvalidInput

    if path.suffix not in (".npy", ".csv"):
        raise InvalidInput(f"--output {path}: the ending must be .npy or .csv")
    if not path.parent.is_dir():
        raise InvalidInput(f"--output {path}: {path.parent} is not a directory; make it first")
    if path.exists() and any(input.exists() and path.samefile(input) for input in inputs):
        raise InvalidInput(f"--output {path}: this would replace the input; choose another name")
    if path.is_dir():
        raise InvalidInput(f"--output {path}: is a directory; name a file")
    try:
        _part(path).touch()
        _part(path).unlink()
    except OSError as error:
        raise InvalidInput(
            f"--output {path}: cannot be written ({error.strerror}), and nothing was released; choose "
            "another place"
        ) from error


def _write(path: Path, estimate: NDArray[np.float64]) -> None:
    """Write the whole file or nothing."""
    import numpy as np

    temporary = _part(path)
    with temporary.open("wb") as file:
        if path.suffix == ".npy":
            np.save(file, estimate)
        else:
            np.savetxt(file, estimate[None, :], delimiter=",", fmt="%.17g")
    temporary.replace(path)


def _readable(
    chosen: Plan, result: PrivateSum, payload: dict[str, Any], estimate: NDArray[np.float64]
) -> str:
    lines = [str(replace(chosen, report=result.report)), ""]
    if "mse" in payload:
        ratio = payload["mse"] / payload["predicted"]["mse"]
        lines.append(
            f"measured    {payload['mse']:.4g} mean squared error of the sum, {ratio:.3f} times predicted"
        )
    if "output" in payload:
        lines.append(f"wrote       {payload['output']}")
    else:
        more = ", …" if len(estimate) > _MOST_SHOWN else ""  # of synthetic vectors only
        shown = ", ".join(f"{value:.6g}" for value in estimate[:_MOST_SHOWN])
        lines.append(f"{'mean' if payload['mean'] else 'sum':<11} {shown}{more}")
    if "mse" not in payload:
        lines.append(
            f"clip norm   rows longer than {payload['clip_norm']:g} were shortened to it; the error above "
            "does not count what that cost"
        )
    lines.append(f"seconds     {payload['seconds']:.2f}")
    return "\n".join(lines)
