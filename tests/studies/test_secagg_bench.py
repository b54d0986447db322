"""The benchmark runs, names its bars and prints; what it measures is not a matter for the suite."""

import json
import sys
from pathlib import Path

from rich.console import Console

from skelmix.studies.benchmarks import secagg


def test_a_small_run_has_all_columns_and_bars():
    result = secagg.run(participants=(4, 12), dimension=64, bits=(5, 16), flower=False, in_memory=12)
    assert [(row["participants"], row["bits"]) for row in result["rows"]] == [
        (4, 5),
        (12, 5),
        (4, 16),
        (12, 16),
    ]
    for row in result["rows"]:
        assert row["degree"] == row["participants"] - 1
        assert row["masked_input_bytes"] <= 64 * row["bits"] // 8 + 140
        assert set(row["client_seconds"]) == {"share", "masked", "unmask"}
    assert result["flower"] is None
    assert len(result["bars"]) == 3
    console = Console(width=160, record=True, quiet=True)
    console.print(secagg.table(result))
    shown = secagg.markdown(result)
    for row in result["rows"]:
        assert f"| {row['participants']} | {row['bits']} | {row['degree']} |" in shown
        assert f" {1000 * row['client_seconds']['share']:.2f} " in shown
    assert all(bar["bar"] in shown for bar in result["bars"])


def test_the_stored_result_met_the_bars_and_is_what_the_page_shows():
    stored = json.loads((Path(__file__).parents[2] / "results/secagg.json").read_text())
    assert len(stored["bars"]) == 5
    assert all(bar["met"] for bar in stored["bars"])
    assert stored["bars"] == secagg._bars(stored)  # computed from the rows, not written in
    lines = secagg.markdown(stored).split("\n")
    assert sum(line.startswith("| 50 | 8 |") for line in lines) == 1


def test_bars_are_met_on_the_right_side_of_their_limit():
    assert secagg._met(0.5, ">=", 0.5)
    assert not secagg._met(0.49, ">=", 0.5)
    assert secagg._met(1.01, "<", 1.02)
    assert not secagg._met(1.02, "<", 1.02)


def test_without_flower_the_peer_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    assert secagg.run(participants=(4,), dimension=8, bits=(8,), in_memory=4)["flower"] is None
