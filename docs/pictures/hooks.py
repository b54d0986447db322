"""What is made when the site is built: the changelog, the reference of the command line, and the reports of
the studies with their pictures and rows, as `skelmix reproduce` left them in results/."""

from __future__ import annotations

import json
import re
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

with warnings.catch_warnings():  # typer uses a name that click deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from skelmix.studies.headline_numbers import full_table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
FEW = 4
BENCH = re.compile(r"^<!-- bench: (\w+) -->$", re.MULTILINE)
HEADLINES = "<!-- headlines -->"
MARK = re.compile(r"^<!-- results: (\w+) -->$", re.MULTILINE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add changelog.md, a copy of CHANGELOG.md, reference/cli.md, read from the commands themselves, and
    pictures and rows of the studies beside the page of evidence."""
    pages = {
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        "reference/cli.md": command_line(),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    for path in sorted(RESULTS.glob("*.png")) + sorted(RESULTS.glob("*.csv")):
        if "-quick" not in path.name:
            files.append(File.generated(config, f"evidence/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the report of a study where a page says `<!-- results: name -->`, and the tables of a benchmark
    where it says `<!-- bench: name -->`; the headline numbers where it says `<!-- headlines -->`."""
    if HEADLINES in markdown:
        markdown = markdown.replace(HEADLINES, full_table(RESULTS).markdown())
    markdown = BENCH.sub(lambda found: bench(found[1]), markdown)
    return MARK.sub(lambda found: report(found[1]), markdown)


def bench(name: str) -> str:
    """The tables of results/<name>.json, which `skelmix bench <name> --json` printed."""
    module = import_module(f"skelmix.studies.benchmarks.{name}")
    return str(module.markdown(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))))


def report(name: str) -> str:
    """results/<name>.md as a section of a page: pictures lead to themselves at full size, more than a few
    tables of numbers are folded. A sentence when there is none yet."""
    path = RESULTS / f"{name}.md"
    if not path.exists():
        return f"Not measured yet: `skelmix reproduce {name}` does it."
    text = re.sub(r"^#", "###", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = re.sub(r"^(!\[[^]]*\]\(([^)]+)\))$", r"[\1](\2)", text, flags=re.MULTILINE)
    visible, heading, numbers = text.partition("#### The numbers\n")
    if numbers.count("\n|---") <= FEW:
        return visible + heading + numbers
    return f"{visible}<details markdown>\n<summary>The numbers</summary>\n\n{numbers.strip()}\n\n</details>\n"


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
