"""`skelmix`: one file per command, and one way to fail.

Bad input ends with exit code 2 and one line on stderr; `--debug`, anywhere on the line, shows the traceback
instead.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib import import_module

import click
import typer

from skelmix import __version__
from skelmix.errors import SkelmixError

#: module: the extra that brings it
EXTRAS = {"torch": "torch", "flwr": "flower", "starlette": "explore", "uvicorn": "explore"}
COMMANDS = (
    "plan", "account", "sum", "stats", "ask", "party", "train", "data", "reproduce", "bench", "audit",
    "explore",
)  # fmt: skip

app = typer.Typer(
    name="skelmix",
    help="Distributed differential privacy: plan it, sum with it, train with it, attack it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"skelmix {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback when something fails."),
) -> None:
    pass


for _name in COMMANDS:
    import_module(f"skelmix.cli.{_name}").register(app)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; exits with 0, or 2 after one line about what to change."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        code = app(
            args=[word for word in words if word != "--debug"], prog_name="skelmix", standalone_mode=False
        )
    except click.exceptions.Abort:
        _say("interrupted")
        raise SystemExit(130) from None
    except click.ClickException as error:
        if debug:
            raise
        _say(_once(" ".join(error.format_message().split())))
        raise SystemExit(2) from None
    except ModuleNotFoundError as error:
        if debug or error.name not in EXTRAS:
            raise
        _say(f"{error.name} is not installed: pip install 'skelmix[{EXTRAS[error.name]}]'")
        raise SystemExit(2) from None
    except (SkelmixError, OSError) as error:
        if debug:
            raise
        _say(_paragraph(_of_file(error)))
        raise SystemExit(2) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _once(text: str) -> str:
    """The text without a suggestion that click and typer both made."""
    return re.sub(r"(Did you mean [^?]*\?)(?: \1| \(Did you mean one of: [^?]*\?\))+", r"\1", text)


def _of_file(error: Exception) -> str:
    """What went wrong; for a file that the operating system refuses, with what to do."""
    remedies = {
        FileNotFoundError: "no such file or directory; check the path",
        IsADirectoryError: "is a directory; name a file",
        NotADirectoryError: "is within a file; name a directory",
        PermissionError: "may not be opened; correct the rights, or choose another place",
    }
    remedy = next((text for kind, text in remedies.items() if isinstance(error, kind)), None)
    name = getattr(error, "filename", None)
    return str(error) if isinstance(error, SkelmixError) or not remedy or not name else f"{name}: {remedy}"


def _paragraph(text: str) -> str:
    """The text in one line; where it marks a character in a line of its own, with what stands there."""
    *said, shown, mark = ["", "", *text.splitlines()]
    if said and mark.strip() == "^":
        text = f"{' '.join(said)}; it says {shown[mark.index('^') :]!r} there"
    return " ".join(text.split())


def _say(text: str) -> None:
    print(f"skelmix: {text}", file=sys.stderr)
