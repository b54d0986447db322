"""CONTRIBUTING is true: its worked example runs, and the files that it names answer what they should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.prose import unwrapped

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_worked_example_plans_with_the_new_mechanism_and_bound():
    """In a process of its own: it adds to the registries."""
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    code += 'print(sk.plan(target, dimension=100, bound="unsampled", cohort=cohort, mechanism="cautious"))'
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert unwrapped(done.stdout).count("proved by unsampled: ") == 2, (
        "as the best bound, and asked for by name"
    )
    assert "mechanism cautious: " in unwrapped(done.stdout)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("src/skelmix/accounting/rdp/closed_form.py", "def theorem_5("),
        ("src/skelmix/encoding/rounding.py", "def round_and_noise("),
        ("src/skelmix/planning/guarantee.py", "def privacy_report("),
        ("docs/explanation/what-a-server-sees.md", "server"),
    ],
)
def test_a_newcomers_question_is_answered_by_the_file_it_names(path, answer):
    assert f"`{path}`" in TEXT
    assert answer in (ROOT / path).read_text(encoding="utf-8")


def test_files_that_it_names_exist():
    names = re.findall(r"`((?:src|docs|tests|mechanisms)/[\w/.-]+\.(?:py|md))`", TEXT)
    assert len(names) >= 7
    for name in names:
        assert (ROOT / name).exists() or (ROOT / "src/skelmix" / name).exists(), name
