"""What `skelmix sum` refuses before anything is released: options that do not go together, bad places."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from skelmix.cli.options import spelled
from skelmix.cli.places import check_writable
from skelmix.errors import InvalidInput
from skelmix.wording import counted

if TYPE_CHECKING:
    from skelmix.planning import Plan

_MADE_UP = {"participants", "dimension", "radius"}
_OF_FILES = {"header", "columns", "inspect", "yes"}
_WITH_INSPECT = {"input", "silo", "header", "columns", "inspect", "as_json"}
_OF_INTEGERS = {"bits", "rate", "keep", "scale", "alignment"}
_MOST_SHOWN = 100  # coordinates printed; seeing the others would take a second release


def check_options(given: set[str], files: list[Path], mechanism: str) -> None:
    """Refuse options that would have no effect beside the others."""
    from skelmix.mechanisms.registry import MECHANISMS

    def refuse(names: set[str], why: str) -> None:
        if useless := given & names:
            raise InvalidInput(f"{spelled(useless)}: {why}")

    if not files:
        refuse(_OF_FILES, "is about a file of rows; give one with --input, or leave it out")
    else:
        refuse(_MADE_UP, "is for made-up vectors, and the file has its own; leave it out")
        if not any(path.suffix.lower() == ".csv" for path in files):
            refuse({"header"}, "is for .csv files, and there is none; leave it out")
    if "inspect" in given:
        refuse(given - _WITH_INSPECT, "has no effect with --inspect, which releases nothing; leave it out")
    kind = MECHANISMS.get(mechanism)
    if kind is not None and not kind.distributed:
        refuse(_OF_INTEGERS, f"has no effect with {mechanism}, which sends real numbers; leave it out")


def check_silos(silo: list[Path] | None, given: set[str]) -> None:
    """Refuse what does not go together with silos, and silos that lack something."""
    if not silo and "records" not in given:
        return
    if not silo:
        raise InvalidInput("--records describes silos: give a --silo FILE for each, or leave it out")
    if "input" in given:
        raise InvalidInput("--input: has a row per participant, --silo a row per record; give one of them")
    if not given & {"records", "inspect"}:
        raise InvalidInput(
            "--silo: give --records too, roughly how many records all silos hold together; it is public, so "
            "it is not counted from the files"
        )
    if "mean" in given:
        raise InvalidInput(
            "--mean: the number of records is not public; add a column of ones and divide by its sum"
        )
    if len({path.resolve() for path in silo}) < len(silo):
        raise InvalidInput("--silo: a file is given twice, and its records would count twice; give it once")


def required_clip_norm(clip_norm: float | None) -> float:
    """The clip norm, which nobody but the user can know for real data."""
    if clip_norm is None:
        raise InvalidInput(
            "--clip-norm: is needed for your own rows: the L2 norm that longer rows are shortened to. Choose "
            "it from what is known beforehand (columns up to 110 and 365: √(110² + 365²) = 381). As owner of "
            "the file, see with --inspect what each norm would shorten. Nothing was released"
        )
    return clip_norm


def check_output(path: Path, inputs: list[Path]) -> None:
    """Refuse a place that cannot be written to, before anything is released."""
    if path.suffix not in (".npy", ".csv"):
        raise InvalidInput(f"--output {path}: the ending must be .npy or .csv")
    if path.is_file() and any(input.exists() and path.samefile(input) for input in inputs):
        raise InvalidInput(f"--output {path}: this would replace the input; choose another name")
    check_writable(path, "--output")


def check_shown(dimension: int) -> None:
    """Refuse a sum that is too long to print."""
    if dimension > _MOST_SHOWN:
        raise InvalidInput(
            f"{dimension:,} coordinates are too many to show: give --output FILE or --json. Nothing was "
            "released"
        )


def check_warnings(plan: Plan) -> None:
    """Stop before the release when the plan warns: what is released once cannot be taken back."""
    if plan.warnings:
        raise InvalidInput(
            f"the plan has {counted(len(plan.warnings), 'warning')}: {'; '.join(plan.warnings)}. Nothing was "
            "released: change the options, or add --yes to release all the same"
        )
