"""Pages that are made when the site is built: the changelog, and the reference of the command line."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

with warnings.catch_warnings():  # typer uses a name that click deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add changelog.md, a copy of CHANGELOG.md, and reference/cli.md, read from the commands themselves."""
    pages = {
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        "reference/cli.md": command_line(),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def command_line() -> str:
    """Every command with its options, as Markdown."""
    from skelmix.cli.main import app

    root = typer.main.get_command(app)
    lines = [
        "# Command line",
        "",
        "`--json` prints exactly one JSON object to stdout; logs and progress go to stderr. Exit codes: "
        "0, or 2 after "
        "one line that says what to change, or 1 where a command's own verdict is negative (`audit`). "
        "`--debug`, "
        "anywhere on the line, shows the traceback.",
        "",
    ]
    for name, command in sorted(root.commands.items()):  # type: ignore[attr-defined]
        lines += _command(f"skelmix {name}", command, 2)
    return "\n".join(lines)


def _command(name: str, command: Any, level: int) -> list[str]:
    text = (command.help or "").strip()
    lines = [f"{'#' * level} {name}", "", text, ""]
    if hasattr(command, "commands"):
        for sub, inner in command.commands.items():
            lines += _command(f"{name} {sub}", inner, level + 1)
        return lines
    rows = [row for row in map(_option, command.params) if row]
    return [*lines, "| option | default | |", "|---|---|---|", *rows, ""] if rows else lines


def _option(option: Any) -> str:
    if getattr(option, "hidden", False) or "--help" in option.opts:
        return ""
    names = " ".join(f"`{one}`" for one in [*option.opts, *getattr(option, "secondary_opts", [])])
    if option.param_type_name == "argument":
        names = f"`{option.name.upper()}`"
    default = "" if option.default in (None, False, "") or callable(option.default) else f"`{option.default}`"
    if option.required:
        default = "required"
    help_text = " ".join((getattr(option, "help", None) or "").split()).replace("|", "\\|")
    return f"| {names} | {default} | {help_text} |"
