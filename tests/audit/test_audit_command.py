"""`skelmix audit` as a user meets it, and the study behind `--all`."""

import csv
import json
import warnings
from dataclasses import replace

import pytest

from skelmix.audit import study
from skelmix.planning import Plan

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
    code, printed = run(capsys, *SMALL, "--plot", tmp_path / "roc.png", "--json")
    found = json.loads(printed.out)
    assert code == 0
    assert set(found) >= KEYS
    assert found["claimed"] <= 1.0
    assert (tmp_path / "roc.png").stat().st_size > 1000


def test_canaries_audit_all_rounds(capsys):
    words = ("--canaries", 40, "--cohort", 64, "--dimension", 64, "--rounds", 2, "--scale", 8, "--bits", 16)
    code, printed = run(capsys, *words, "--epsilon", 5, "--bound", "rdp", "--json")
    found = json.loads(printed.out)
    assert code == 0
    assert set(found) >= KEYS
    assert found["trials"] == 40


def test_a_refuted_claim_is_exit_code_1(capsys, monkeypatch):
    """A claim of 0.001, where the noise gives about 1."""
    import skelmix.audit.release as release

    genuine = release.audit_release
    monkeypatch.setattr(release, "audit_release", lambda *a, **k: genuine(*a, **(k | {"claimed": 1e-3})))
    code, printed = run(capsys, *SMALL[:-1], 60_000)
    assert code == 1
    assert "REFUTED" in printed.out


def test_a_plan_that_is_none_is_exit_code_2(capsys, tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    code, printed = run(capsys, "--plan", tmp_path / "plan.json")
    assert code == 2
    assert "plan" in printed.err


@pytest.mark.parametrize("games", [(), ("--canaries", 2)])
@pytest.mark.parametrize("option", ["--delta", "--confidence"])
@pytest.mark.parametrize("value", [0, 1, 2, "nan"])
def test_a_probability_that_is_none_is_exit_code_2(capsys, option, value, games):
    """0 is not "not given", and the message quotes what was given."""
    words = ("--bits", 8, "--scale", 8, "--dimension", 2, "--cohort", 2, *games)
    code, printed = run(capsys, *words, option, value)
    assert code == 2
    assert not printed.out
    assert f"{option[2:]} = {float(value)}" in printed.err


@pytest.mark.parametrize(
    ("words", "ignored"),
    [
        (("--plan", "p.json", "--delta", 0.5), "--delta"),
        (("--plan", "p.json", "--epsilon", 1), "--epsilon"),  # though it is the default
        (("--plan", "p.json", "--bits", 8, "--cohort", 3), "--bits, --cohort"),
        (("--plan", "p.json", "--canaries", 8, "--rounds", 2), "--rounds"),
        (("--plan", "p.json", "--canaries", 8, "--trials", 100), "--trials"),
        (("--canaries", 8, "--plot", "roc.png"), "--plot"),
        (("--output", "audit.csv"), "--output"),
        (("--all", "--trials", 100), "--trials"),
        (("--all", "--plan", "p.json"), "--plan"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(capsys, monkeypatch, tmp_path, words, ignored):
    monkeypatch.chdir(tmp_path)
    code, printed = run(capsys, *words)
    assert code == 2
    assert f"{ignored} would be ignored" in printed.err
    assert not list(tmp_path.iterdir())


def test_every_option_that_describes_a_plan_is_refused_beside_one():
    """A new option of the command has to be put on one side or the other."""
    import typer.main

    from skelmix.cli import audit
    from skelmix.cli.main import app

    command = typer.main.get_command(app).commands["audit"]
    others = {"plan", "trials", "confidence", "canaries", "everything", "output", "plot", "as_json", "help"}
    assert {one.name for one in command.params} - others == audit._PLANNED


def test_the_study_has_more_than_fifty_settings_over_every_distributed_mechanism():
    grid = study.settings()
    assert len(set(grid)) == len(grid) >= 50
    assert {one.mechanism for one in grid} == {"smm", "dgm", "skellam", "ddg", "cpsgd"}
    assert len({one.bits for one in grid}) >= 3
    assert len({one.dimension for one in grid}) >= 3


@pytest.fixture
def small_study(monkeypatch):
    few = tuple(one for one in study.settings() if one.bits == 8 and one.mechanism in ("skellam", "ddg"))[:3]
    monkeypatch.setattr(study, "settings", lambda: few)
    monkeypatch.setattr(study, "_MOST_TRIALS", 2000)


def run_study(capsys, table):
    code, printed = run(capsys, "--all", "--output", table, "--json")
    return code, json.loads(printed.out)


def rows_of(table):
    with table.open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def edit(table, **cells):
    """Change cells of the first row, as a hand with an editor would."""
    lines = table.read_text().splitlines()
    names = next(line for line in lines if not line.startswith("#")).split(",")
    place = next(i for i, line in enumerate(lines) if line.startswith("skellam"))
    row = dict(zip(names, lines[place].split(","), strict=True))
    assert set(cells) <= set(names)
    lines[place] = ",".join((row | cells)[name] for name in names)
    table.write_text("\n".join(lines) + "\n")


def test_the_study_writes_its_rows_once_and_says_what_it_played(capsys, small_study, tmp_path):
    table = tmp_path / "audit.csv"
    for read, played in ((0, 3), (3, 0)):
        code, found = run_study(capsys, table)
        assert (code, found["read"], found["played"], found["refuted"]) == (0, read, played, 0)
    assert len(rows_of(table)) == 3
    assert all(row["holds"] == "True" for row in rows_of(table))
    code, printed = run(capsys, "--all", "--output", table)
    assert "3 configurations (3 read, 0 played), 0 claims refuted" in " ".join(printed.out.split())


def test_a_stored_row_is_judged_by_its_lower_bound_not_by_its_own_verdict(capsys, small_study, tmp_path):
    table = tmp_path / "audit.csv"
    run_study(capsys, table)
    edit(table, lower_bound="99.0", holds="True")
    code, printed = run(capsys, "--all", "--output", table)
    assert code == 1
    assert "1 claims refuted" in printed.out
    assert "attacked 99.0000" in " ".join(printed.out.split())
    edit(table, lower_bound="0.1", holds="False")
    assert run_study(capsys, table)[0] == 0


def test_the_claim_that_counts_is_todays(capsys, small_study, tmp_path):
    """A row's own claim is a little too high, within what may drift, and its lower bound between the two."""
    table = tmp_path / "audit.csv"
    run_study(capsys, table)
    today = float(rows_of(table)[0]["claimed"])
    edit(table, claimed=repr(today * 1.0009), lower_bound=repr(today * 1.0005))
    code, found = run_study(capsys, table)
    assert (code, found["read"], found["refuted"]) == (1, 3, 1)


@pytest.mark.parametrize(
    "cells",
    [
        {"claimed": "9.0"},
        {"claimed": "0.5"},
        {"claimed": ""},
        {"claimed": "nan"},
        {"delta": "0.001"},
        {"confidence": "0.9"},
        {"trials": "100"},
        {"lower_bound": "nan"},
        {"lower_bound": "-1.0"},
        {"lower_bound": "rubbish"},
    ],
)
def test_a_row_of_another_game_is_played_again(capsys, small_study, tmp_path, cells):
    table = tmp_path / "audit.csv"
    run_study(capsys, table)
    before = rows_of(table)[0]
    edit(table, **cells)
    code, found = run_study(capsys, table)
    assert (code, found["read"], found["played"]) == (0, 2, 1)
    again = rows_of(table)[-1]
    assert {name: again[name] for name in ("claimed", "delta", "confidence", "trials")} == {
        name: before[name] for name in ("claimed", "delta", "confidence", "trials")
    }
    assert run_study(capsys, table)[1]["read"] == 3  # of equal settings the last row counts


def test_a_claim_that_was_lowered_since_is_attacked_again_and_refuted(
    capsys, small_study, tmp_path, monkeypatch
):
    """The accountant forgets most of the loss: the stored rows, played against the honest claim, must not
    speak for it."""
    from dataclasses import replace

    table = tmp_path / "audit.csv"
    monkeypatch.setattr(study, "_MOST_TRIALS", 20_000)
    run_study(capsys, table)
    genuine = study.privacy_report
    monkeypatch.setattr(study, "privacy_report", lambda *a, **k: replace(genuine(*a, **k), epsilon=1e-3))
    code, found = run_study(capsys, table)
    assert (code, found["played"], found["refuted"]) == (1, 3, 3)


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
    code, printed = run(capsys, "--plan", tmp_path / "plan.json", "--trials", 2000, "--json")
    assert code == 0
    assert json.loads(printed.out)["claimed"] == pytest.approx(plan.report.epsilon, rel=1e-6)


def test_a_plan_for_silos_is_attacked_through_their_sums(capsys, tmp_path, monkeypatch):
    """Every record is drawn, so the plan's sampling does not weaken the attack."""
    import skelmix as sk
    from skelmix.mechanisms.silo import SiloMechanism

    plan = sk.plan(
        sk.PrivacyTarget(1.0, 1e-2),
        dimension=2,
        bits=16,
        scale=64.0,
        bound="gdp",
        cohort=sk.Silos(2, records=100, batch=50),
    )
    (tmp_path / "plan.json").write_text(plan.to_json())
    words = ("--plan", tmp_path / "plan.json", "--trials", 4000, "--json")
    code, printed = run(capsys, *words)
    found = json.loads(printed.out)
    assert code == 0
    assert found["claimed"] > plan.report.epsilon
    assert 0 < found["lower_bound"] <= found["claimed"]
    sound = SiloMechanism.fixed_point
    wide = property(lambda mechanism: replace(sound.fget(mechanism), l2=8 * mechanism.radius))
    monkeypatch.setattr(SiloMechanism, "fixed_point", wide)
    assert run(capsys, *words)[0] == 1, "a record that is four times too long gets through"
