"""`skelmix bench`: the product beside its peers, in one run on this machine."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer

from skelmix.cli.console import emit, err

BENCHMARKS = {
    "noise": "Exact sampling beside NumPy, the bare keystream and the slow exact samplers.",
    "encode": "The participant's side (rotate, clip, round, noise, wrap) beside the same steps in NumPy.",
    "secagg": "Secure aggregation by phase, beside the bare keystream and Flower's primitives.",
    "stats": "Twenty statistics of ten million records beside pyarrow and NumPy without privacy.",
    "train": "One round of training, split by step.",
}

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
Clients = Annotated[
    list[int], typer.Option(min=3, help="Clients on Flower's deployment engine; may be given several times.")
]


def _run(name: str, as_json: bool, **options: Any) -> None:
    bench = import_module(f"skelmix.studies.benchmarks.{name}")
    with err.status(f"{name}: measuring"):
        result = bench.run(**options)
    emit(result, bench.table(result), as_json=as_json)


def _command(name: str) -> Callable[[bool], None]:
    def command(as_json: Json = False) -> None:
        _run(name, as_json)

    return command


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Compare the speed with other libraries, in one run.", no_args_is_help=True)
    for name, text in BENCHMARKS.items():
        group.command(name, help=text)(_command(name))

    @group.command()
    def flower(clients: Clients = [3], as_json: Json = False) -> None:  # noqa: B006 (typer copies it)
        """A secure round over Flower's messages, beside Flower's own SecAgg+."""
        _run("flower", as_json, nodes=tuple(clients))

    app.add_typer(group, name="bench")
