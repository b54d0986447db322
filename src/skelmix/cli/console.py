"""What a command prints: one JSON object or something readable on stdout, everything else on stderr."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from skelmix.display.json_text import plain_data

err = Console(stderr=True)
out = Console()


def emit(payload: dict[str, Any], readable: RenderableType, *, as_json: bool) -> None:
    """Print the result: `payload` as exactly one JSON object, or `readable` for a person."""
    if as_json:
        print(json.dumps(plain_data(payload), ensure_ascii=False), flush=True)
    else:
        plain = isinstance(readable, str)  # lines as they are: for pipes
        out.print(coloured(readable) if isinstance(readable, str) else readable, soft_wrap=plain)


def coloured(text: str) -> Text:
    """A card with its claim and titles in bold, and in red what must not be missed."""
    shown = Text(text)
    shown.highlight_regex(r"(?m)^\S.*differential privacy over.*$|^(It holds if|What it takes)$", "bold")
    shown.highlight_regex(r"(?m)^Not covered$|^  warning(?= )", "bold yellow")
    shown.highlight_regex(r"NOT PRIVATE|SIMULATED|A MODEL, NOT PROVED|NOT DISTRIBUTED", "bold red")
    return shown


class _Note(ProgressColumn):
    """As much of a note as the line has room for, whole parts only; two spaces part them."""

    max_refresh = None

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def render(self, task: Task) -> Text:
        parts = str(task.fields["note"]).split("  ")
        while len(parts) > 1 and len("  ".join(parts)) > self.room:
            parts.pop()
        return Text("  ".join(parts), no_wrap=True)


def progress() -> Progress:
    """A progress bar on stderr, on one line of the terminal; silent when stderr is not a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=8),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        _Note(err.width - 44),
        console=err,
        disable=not err.is_terminal,
    )


@cache
def say_when_compiling() -> None:
    """Tell a person at a terminal, once, why the first use takes long; elsewhere nothing."""
    if not err.is_terminal:
        return
    event: Any = import_module("numba.core.event")

    class Compilations(event.Listener):  # type: ignore[misc]
        said = False

        def on_start(self, compilation: Any) -> None:
            if not self.said:
                self.said = True
                err.print("compiling the kernels for this machine: about half a minute, once")

        def on_end(self, compilation: Any) -> None:
            pass

    event.register("numba:compile", Compilations())
