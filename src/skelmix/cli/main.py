"""`skelmix`: one file per command, and one way to fail.

Bad input ends with exit code 2 and one line on stderr; `--debug`, anywhere on the line, shows the traceback
instead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click
import typer

from skelmix import __version__
from skelmix.errors import SkelmixError

EXTRAS = {"torch": "torch", "flwr": "flower"}  # module: the extra that brings it
COMMANDS = ("plan", "account", "sum", "stats", "train", "data", "reproduce", "bench", "audit")

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
        _say(" ".join(error.format_message().split()))
        raise SystemExit(2) from None
    except ModuleNotFoundError as error:
        if debug or error.name not in EXTRAS:
            raise
        _say(f"{error.name} is not installed: pip install 'skelmix[{EXTRAS[error.name]}]'")
        raise SystemExit(2) from None
    except (SkelmixError, OSError) as error:
        if debug:
            raise
        _say(" ".join(str(error).split()))
        raise SystemExit(2) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _say(text: str) -> None:
    print(f"skelmix: {text}", file=sys.stderr)
