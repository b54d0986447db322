"""The benchmark runs, names its bars and prints; what it measures is not a matter for the suite."""

import json
import sys
from pathlib import Path

from rich.console import Console

from skelmix.planning import Cohort
from skelmix.studies.benchmarks import secagg, secagg_noise


def test_a_small_run_has_all_columns_and_bars():
    result = secagg.run(
        participants=(4, 12), dimension=64, bits=(5, 16), flower=False, in_memory=12, noisy=(12,),
        few=((12, 40),),
    )  # fmt: skip
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
    assert f"measured on {result['date']}" in secagg.markdown(result)
    assert len(result["bars"]) == 7
    (low,) = result["few_coordinates"]
    assert (low["payload_bytes"], low["participants"], low["degree"]) == (40, 12, 11)
    assert low["payload_bytes"] + 11 * 32 < low["bytes_sent"] <= low["bytes_stated"]
    rows = [
        tuple(row[key] for key in ("tolerance", "dropouts", "colluding")) for row in result["excess_noise"]
    ]
    assert rows[:3] == [(0.1, 0, 0), (0.1, 0, 1), (0.1, 1, 1)]
    assert rows[3:7] == [(0.2, 0, 0), (0.2, 0, 1), (0.2, 1, 1), (0.2, 2, 1)]
    assert rows[7:] == [(0.3, 0, 0), (0.3, 0, 1), (0.3, 1, 1), (0.3, 3, 1)]
    assert all(noisy > plain for plain, noisy in (row["bytes_sent"] for row in result["excess_noise"]))
    console = Console(width=160, record=True, quiet=True)
    console.print(secagg.table(result))
    shown = secagg.markdown(result)
    for row in result["rows"]:
        assert f"| {row['participants']} | {row['bits']} | {row['degree']} |" in shown
        assert f" {1000 * row['client_seconds']['share']:.2f} " in shown
    assert all(bar["bar"] in shown for bar in result["bars"])
    assert f"| 40 | {low['bytes_sent']:,} | {low['bytes_stated']:,} |" in shown


def test_the_stored_result_met_the_bars_and_is_what_the_page_shows():
    stored = json.loads((Path(__file__).parents[2] / "results/secagg.json").read_text())
    noisy = "excess_noise" in stored  # not in results that were measured before there was any
    sampled = [bar for bar in stored["bars"] if "sampled" in bar["bar"]]
    assert len(stored["bars"]) - len(sampled) == (8 if noisy else 5) + ("few_coordinates" in stored)
    missed = [bar["bar"] for bar in stored["bars"] if not bar["met"]]
    # sampled cohorts open with fewer survivors, so they have more neighbours: the page says it
    assert set(missed) <= {bar["bar"] for bar in sampled if "server" not in bar["bar"]}
    assert stored["bars"] == secagg._bars(stored)  # computed from the rows, not written in
    lines = secagg.markdown(stored).split("\n")
    assert sum(line.startswith("| 50 | 8 |") for line in lines) == 1
    rows = sum(line.startswith("| 240 | 0.2 | 48 | 12 |") for line in lines)
    assert rows == noisy * (2 if sampled else 1)


def test_sampled_cohorts_are_measured_under_the_rules_of_their_plan_beside_the_round_they_replace():
    asked = []

    def measured(n, dimension, bits, absent, **rules):
        law = rules.get("dropout_rate")
        asked.append((absent, rules["threshold"], rules.get("colluding", 0), "noise" in rules, law))
        sizes = dict.fromkeys(
            ("bytes_sent", "bytes_received", "server_bytes_sent", "server_bytes_received"), 1
        )
        seconds = 1.0 + 0.25 * (law is not None) + 0.5 * ("noise" in rules)
        return {"degree": 0, "client_seconds": {"share": seconds}, "server_unmask_seconds": 1.0, **sizes}

    rows = secagg_noise.rows((240,), 64, measured)
    plans = [(row["tolerance"], row["dropouts"], row["colluding"], row["sampled"]) for row in rows]
    for tolerance, allowed in ((0.1, 24), (0.2, 48), (0.3, 72)):
        for absent in (0, allowed // 2, allowed):
            for sampled in (False, True):
                assert (tolerance, absent, 12, sampled) in plans
        assert (0, 240 - allowed, 0, False, None) in asked
    need = Cohort(240, 60_000, dropout_tolerance=0.1).with_least_survivors(1e-5, 1_000).min_survivors(240)
    assert (0, need, 0, True, 0.1) in asked
    assert need < 190
    bars = {
        name.split(": ", 1)[1]: value for name, value, _, _ in secagg_noise.bars(rows) if "sampled" in name
    }
    assert len(secagg_noise.bars(rows)) == 8
    assert bars["client time over the round without"] == 1.75
    assert bars["client time over the same threshold and graph"] == 1.75 / 1.25
    assert bars["bytes sent over the same threshold and graph"] == 1


def test_bars_are_met_on_the_right_side_of_their_limit():
    assert secagg._met(0.5, ">=", 0.5)
    assert not secagg._met(0.49, ">=", 0.5)
    assert secagg._met(1.01, "<", 1.02)
    assert not secagg._met(1.02, "<", 1.02)


def test_without_flower_the_peer_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    assert (
        secagg.run(participants=(4,), dimension=8, bits=(8,), in_memory=4, noisy=(), few=())["flower"] is None
    )
