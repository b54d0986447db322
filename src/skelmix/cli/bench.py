"""`skelmix bench`: the product beside its peers, in one run on this machine."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from skelmix.cli.console import emit, err

BENCHMARKS = {
    "noise": "Exact sampling beside NumPy, the bare keystream and the slow exact samplers.",
    "encode": "The participant's side (rotate, clip, round, noise, wrap) beside the same steps in NumPy.",
    "secagg": "Secure aggregation by phase, beside the bare keystream and Flower's primitives.",
    "train": "One round of training, split by step.",
    "flower": "A secure round over Flower's messages, beside Flower's own SecAgg+.",
}

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]


def _run(name: str, as_json: bool) -> None:
    module = import_module(f"skelmix.benchmarks.{name}")
    with err.status(f"bench {name}: measuring"):
        result = module.run()
    emit(result, module.table(result), as_json=as_json)


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Measure against peers, in one run.", no_args_is_help=True)

    @group.command(help=BENCHMARKS["noise"])
    def noise(as_json: Json = False) -> None:
        _run("noise", as_json)

    @group.command(help=BENCHMARKS["encode"])
    def encode(as_json: Json = False) -> None:
        _run("encode", as_json)

    @group.command(help=BENCHMARKS["secagg"])
    def secagg(as_json: Json = False) -> None:
        _run("secagg", as_json)

    @group.command(help=BENCHMARKS["train"])
    def train(as_json: Json = False) -> None:
        _run("train", as_json)

    @group.command(help=BENCHMARKS["flower"])
    def flower(as_json: Json = False) -> None:
        _run("flower", as_json)

    app.add_typer(group, name="bench")
