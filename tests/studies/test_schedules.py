"""Schedules with equal expected contributions: what the planner's table promises."""

import numpy as np

import skelmix as sk
from skelmix.cli.console import out
from skelmix.errors import BitsTooFew, PrivacyUnattainable
from skelmix.secagg.sizes import protocol_bytes
from skelmix.studies.schedules import plot_schedules, schedule_rows, schedule_table

SETTINGS = {"rounds": 160, "cohort": 24, "population": 600, "contribute": 1.0}


def build(*, rounds, cohort, population, contribute):
    if rounds == 40 and contribute == 0.25:
        raise BitsTooFew("too few")
    return sk.plan(
        sk.PrivacyTarget(3.0, 1e-5),
        dimension=16,
        bits=16,
        bound="gdp",
        rounds=rounds,
        cohort=sk.Cohort(cohort, population, contribute=contribute),
    )


def test_contributions_are_equal_and_every_epsilon_is_the_plans(tmp_path):
    rows = schedule_rows(build, **SETTINGS)
    contributions = [row["participations"] * row["contribute"] for row in rows]
    assert np.allclose(contributions, 160 * 24 / 600, rtol=0.02)  # cohorts are whole numbers
    assert all(row["cohort"] <= 600 for row in rows)
    planned = [row for row in rows if "error" not in row]
    assert len(planned) == len(rows) - 1
    for row in planned:
        assert row["epsilon"] <= 3.0 <= row["epsilon_aggregator"] * 1.001
        keys_and_shares = protocol_bytes(row["cohort"], row["cohort"])
        assert row["upload_bytes"] == row["participations"] * (16 * 2 + keys_and_shares)
    by_place = {(row["rounds"], row["contribute"]): row["epsilon_aggregator"] for row in planned}
    assert by_place[160, 0.25] < by_place[160, 1.0], "a coin helps"
    assert by_place[40, 1.0] < by_place[160, 1.0], "so do fewer, larger rounds"
    table = schedule_table(rows).markdown()
    assert table.count("\n") == len(rows) + 3
    assert "–" in table
    plot_schedules(tmp_path / "picture.svg", rows)
    assert "coin of 0.25" in (tmp_path / "picture.svg").read_text()


def test_no_schedule_is_listed_twice():
    """One round of everybody is both the settings themselves and the schedule without sampling."""

    def refused(**settings):
        raise PrivacyUnattainable("not planned here")

    rows = schedule_rows(refused, rounds=1, cohort=40, population=40, contribute=1.0)
    assert [(row["rounds"], row["cohort"]) for row in rows] == [(1, 40)]


def test_the_table_fits_a_narrow_terminal_with_every_heading_in_full(capsys):
    row = {"rounds": 1_000, "cohort": 60_000, "contribute": 0.25, "participations": 1_000.0}
    row |= {"epsilon": 2.999, "epsilon_aggregator": 1_454.0, "upload_bytes": 2.6e8}
    rows = [row | {"error_per_contribution": 0.000268}]
    out.print(schedule_table(rows).rich(), width=80)
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert "1,000   60,000  0.25" in printed
