"""The progress line of training: ε spent, accuracy, speed and time left, on one line of 80 columns."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from skelmix.cli import console
from skelmix.cli.train_progress import Live

SPENT = SimpleNamespace(at=lambda round: SimpleNamespace(epsilon=2.1034, epsilon_aggregator=1832.6))
NOTED = SimpleNamespace(wrapped_fraction=0.0002, clipped_fraction=0.991)


def line(width, monkeypatch):
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(console, "err", terminal)
    live = Live(SPENT)
    live(SimpleNamespace(round=299, accuracy=0.91234, diagnostics=None))
    live.start -= 20
    with console.progress() as bar:
        task = bar.add_task("skellam", total=10_000, completed=9_000, note="")
        bar.update(task, note=live(SimpleNamespace(round=300, accuracy=None, diagnostics=NOTED)))
        bar.refresh()
    lines = re.split(r"[\r\n]|\x1b\[[?\d]*[A-Za-z]", shown.getvalue())
    return [found for found in lines if "ε≤" in found][-1].rstrip()


def test_what_matters_fits_eighty_columns(monkeypatch):
    shown = line(80, monkeypatch)
    assert len(shown) <= 80
    for words in ("9000/10000", "-:--:-- left", "ε≤2.104", "acc 0.9123", "0.1 rounds/s"):
        assert words in shown, shown
    assert "…" not in shown


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_no_part_of_it_is_cut(width, monkeypatch):
    shown = line(width, monkeypatch)
    assert "…" not in shown
    assert len(shown) <= width


def test_a_wide_terminal_shows_the_rest(monkeypatch):
    shown = line(160, monkeypatch)
    for words in ("aggregator ε≤1,833", "wrapped 0.02%", "clipped 99.10%"):
        assert words in shown, shown
