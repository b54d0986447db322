"""Every code block of the README and of the documentation is run, or says why it is not.

The blocks of a page run in their order, in one namespace and one empty directory. A fenced `python` block is
executed; in a `console` or `sh` block every line `$ skelmix …` is, and what the page shows below it must be
what the command prints: the words exactly, the numbers of `plan` and `account` to 2 %. A line `...` in it
stands for anything. A block after `<!-- not run: reason -->` is left out. Lines that train on MNIST have
tests of their own, skipped where the data set is missing: tests fetch nothing.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = ("python", "console", "sh", "bash", "shell")
FENCE = re.compile(r"^( *)```\s*([\w-]*)[^\n]*\n(.*?)^\1```\s*$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!--\s*not run:(.*?)-->\s*$", re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
MNIST = re.compile(r"^skelmix train\b(?!.*--dataset)")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    reason: str | None  # why it is not run

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        if found[2] in LANGUAGES:
            mark = MARK.search(text[: found.start()].rstrip())
            line = text.count("\n", 0, found.start()) + 1
            yield Block(page, line, found[2], found[3], mark[1].strip() if mark else None)


def commands(text: str) -> list[tuple[str, list[str]]]:
    """(command, lines of output that the page shows) of a console block; long commands may continue with
    \\."""
    found: list[tuple[str, list[str]]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append((line[2:].strip(), []))
        elif line.strip():
            assert found, f"a console block begins with a line that is no command: {line!r}"
            found[-1][1].append(line.rstrip())
    return found


def same(shown: list[str], printed: list[str], numbers: bool) -> bool:
    """Whether the shown lines are the printed ones; `...` stands for any lines."""
    if not shown:
        return not printed
    if shown[0].strip() == "...":
        return any(same(shown[1:], printed[place:], numbers) for place in range(len(printed) + 1))
    return bool(printed) and alike(shown[0], printed[0], numbers) and same(shown[1:], printed[1:], numbers)


def alike(shown: str, printed: str, numbers: bool) -> bool:
    words = [" ".join(NUMBER.sub("#", line).split()) for line in (shown, printed)]
    if words[0] != words[1]:
        return False
    values = [[float(one.replace(",", "")) for one in NUMBER.findall(line)] for line in (shown, printed)]
    return not numbers or all(abs(a - b) <= 0.002 * abs(a) for a, b in zip(*values, strict=True))


def run_command(line: str, shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from skelmix.cli import console
    from skelmix.cli.main import main

    words = shlex.split(line)
    assert words[0] == "skelmix", f"{line!r} is not run by the tests: mark its block with the reason"
    console.out.width = console.err.width = 200
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words[1:])
    out, err = capsys.readouterr()
    assert ended.value.code == 0, f"{line}: {err}"
    if shown:
        printed = [text.rstrip() for text in out.splitlines() if text.strip()]
        assert same(shown, printed, words[1] in ("plan", "account")), f"{line} prints now:\n{out}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.reason is not None:
            continue
        if block.language == "python":
            exec(compile(block.text, block.place, "exec"), namespace)
            continue
        assert block.language == "console", f"{block.place}: a shell block that is run is marked `console`"
        for line, shown in commands(block.text):
            if not MNIST.search(line):
                run_command(line, shown, capsys)


def mnist_commands() -> list[tuple[str, str, list[str]]]:
    """(place, command, output shown) of every line that trains on MNIST."""
    consoles = [block for page in PAGES for block in blocks(page) if block.language == "console"]
    found = [(block, *line) for block in consoles if block.reason is None for line in commands(block.text)]
    return [(block.place, line, shown) for block, line, shown in found if MNIST.search(line)]


@pytest.mark.parametrize(("place", "line", "shown"), mnist_commands(), ids=lambda value: str(value)[:60])
def test_a_line_that_trains_on_mnist_runs(
    place: str,
    line: str,
    shown: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from skelmix.datasets.catalogue import locate

    if locate("mnist") is None:
        pytest.skip(
            f"{place} was not run, for MNIST is not on this machine: `skelmix data fetch mnist` first"
        )
    monkeypatch.chdir(tmp_path)
    run_command(line, shown, capsys)


def test_the_line_of_start_that_trains_is_among_those_run() -> None:
    assert [place.split(":")[0] for place, _, _ in mnist_commands()] == ["docs/start.md"]


def test_most_blocks_are_run_and_the_others_say_why() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    left_out = [block for block in found if block.reason is not None]
    assert [block.place for block in left_out if len(block.reason or "") < 10] == []
    assert len(found) - len(left_out) >= 20
    assert len(left_out) <= len(found) / 4


def test_a_mark_stands_before_a_block() -> None:
    for page in PAGES:
        marks = page.read_text(encoding="utf-8").count("<!-- not run:")
        assert marks == sum(block.reason is not None for block in blocks(page)), page


def test_secure_sums_with_noise_name_the_colluders_of_the_plan() -> None:
    """Copied under a plan with colluders, a call without them would leave these more of the noise to know."""
    found = [block for page in PAGES for block in blocks(page) if "secure_sum(" in block.text]
    calls = [
        node for block in found for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.Call)
    ]
    given = [{word.arg for word in call.keywords} for call in calls if ast.unparse(call.func) == "secure_sum"]
    assert any("noise" in names for names in given)
    assert all("colluding" in names for names in given if "noise" in names)


def test_the_comparison_of_outputs_can_fail() -> None:
    printed = ["error 0.5 in all", "noise 10", "end"]
    assert alike("(2.999, 1e-05) of 1,000", "(3, 1e-05) of 1,000", numbers=True)
    assert not alike("(2.999, 1e-05) of 1,000", "(3, 1e-05) of 2,000", numbers=True)
    assert same(["error 0.5003 in all", "...", "end"], printed, numbers=True)
    assert not same(["error 0.52 in all", "...", "end"], printed, numbers=True)
    assert same(["error 0.52 in all", "...", "end"], printed, numbers=False)
    assert not same(["error 0.5 in some", "..."], printed, numbers=False)
    assert not same(["error 0.5 in all"], printed, numbers=False)
