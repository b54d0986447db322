"""What a command prints: one JSON object or something readable on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

err = Console(stderr=True)
out = Console()


def _plain(value: Any) -> Any:
    """Plain data for JSON, which has no infinity and no NaN: both become null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def emit(payload: dict[str, Any], readable: RenderableType, *, as_json: bool) -> None:
    """Print the result: `payload` as exactly one JSON object, or `readable` for a person."""
    if as_json:
        print(json.dumps(_plain(payload), ensure_ascii=False), flush=True)
    else:
        out.print(readable, soft_wrap=isinstance(readable, str))  # lines as they are: for pipes


def progress() -> Progress:
    """A progress bar on stderr; silent when stderr is not a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=err,
        disable=not err.is_terminal,
    )
