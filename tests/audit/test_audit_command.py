"""`skelmix audit` as a user meets it, and the study behind `--all`."""

import csv
import json
import warnings

import pytest

from skelmix.audit import study
from skelmix.plan import Plan

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer itself imports what click deprecates
    from skelmix.cli.main import main

KEYS = {"claimed", "lower_bound", "confidence", "trials", "holds"}
SMALL = ("--bits", "8", "--scale", "8", "--dimension", "2", "--trials", "4000")


def run(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(["audit", *map(str, words)])
    return ended.value.code, capsys.readouterr()


def test_one_release_prints_one_json_object_and_a_picture(capsys, tmp_path):
    code, told = run(capsys, *SMALL, "--plot", tmp_path / "roc.png", "--json")
    found = json.loads(told.out)
    assert code == 0
    assert set(found) >= KEYS
    assert found["claimed"] <= 1.0
    assert (tmp_path / "roc.png").stat().st_size > 1000


def test_canaries_audit_all_rounds(capsys):
    words = ("--canaries", 40, "--cohort", 64, "--dimension", 64, "--rounds", 2, "--scale", 8, "--bits", 16)
    code, told = run(capsys, *words, "--epsilon", 5, "--bound", "rdp", "--json")
    found = json.loads(told.out)
    assert code == 0
    assert set(found) >= KEYS
    assert found["trials"] == 40


def test_a_refuted_claim_is_exit_code_1(capsys, monkeypatch):
    """A claim of 0.001, where the noise gives about 1."""
    import skelmix.audit.release as release

    genuine = release.audit_release
    monkeypatch.setattr(release, "audit_release", lambda *a, **k: genuine(*a, **(k | {"claimed": 1e-3})))
    code, told = run(capsys, *SMALL[:-1], 60_000)
    assert code == 1
    assert "REFUTED" in told.out


def test_a_plan_that_is_none_is_exit_code_2(capsys, tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    code, told = run(capsys, "--plan", tmp_path / "plan.json")
    assert code == 2
    assert "plan" in told.err


def test_the_study_has_more_than_fifty_settings_over_every_distributed_mechanism():
    grid = study.settings()
    assert len(set(grid)) == len(grid) >= 50
    assert {one.mechanism for one in grid} == {"smm", "dgm", "skellam", "ddg", "cpsgd"}
    assert len({one.bits for one in grid}) >= 3
    assert len({one.dimension for one in grid}) >= 3


def test_the_study_writes_its_rows_once(capsys, monkeypatch, tmp_path):
    few = tuple(one for one in study.settings() if one.bits == 8 and one.mechanism in ("skellam", "ddg"))[:3]
    monkeypatch.setattr(study, "settings", lambda: few)
    monkeypatch.setattr(study, "_MOST_TRIALS", 2000)
    words = ("--all", "--output", tmp_path / "audit.csv", "--json")
    assert [run(capsys, *words)[0] for _ in range(2)] == [0, 0]
    with (tmp_path / "audit.csv").open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    assert len(rows) == 3
    assert all(row["holds"] == "True" for row in rows)


def test_the_plan_in_a_file_is_what_is_attacked(capsys, tmp_path):
    import skelmix as sk

    plan = sk.plan(
        sk.PrivacyTarget(2.0, 1e-2),
        dimension=2,
        bits=12,
        mechanism="skellam",
        scale=16.0,
        bound="paper",
        cohort=sk.Cohort(2, 2, sampling="none"),
    )
    (tmp_path / "plan.json").write_text(plan.to_json())
    assert Plan.from_json(plan.to_json()).mechanism == plan.mechanism
    code, told = run(capsys, "--plan", tmp_path / "plan.json", "--trials", 2000, "--json")
    assert code == 0
    assert json.loads(told.out)["claimed"] == pytest.approx(plan.report.epsilon, rel=1e-6)
