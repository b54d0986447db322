"""Silos on the command line: plan, account, train and sum."""

import json

import numpy as np
import pytest

from helpers.command import in_process, skelmix
from helpers.idx_files import two_kinds_of_images

SILOS = ("--silos", 4, "--records", 80, "--batch", 20)
QUICK = ("--delta", 1e-2, "--bound", "rdp", "--rounds", 3, "--json")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return two_kinds_of_images(tmp_path_factory.mktemp("idx"))


def test_plan_and_account_agree_about_silos():
    planned = skelmix("plan", *SILOS, *QUICK, "--epsilon", 20, "--dimension", 64, "--scale", 32)
    assert planned.returncode == 0, planned.stderr
    found = json.loads(planned.stdout)
    assert (found["silos"], found["records"], found["batch"], found["unit"]) == (4, 80, 20, "record")
    assert found["epsilon_aggregator"] == found["epsilon"] <= 20
    noise = ("--noise", found["noise"], "--dimension", 64, "--scale", 32)
    accounted = skelmix("account", *SILOS, *QUICK, *noise)
    assert accounted.returncode == 0, accounted.stderr
    assert json.loads(accounted.stdout)["epsilon"] == pytest.approx(found["epsilon"], rel=1e-9)


@pytest.mark.parametrize("more", [(), ("--skew", 0.5), ("--owners", "owners.txt")], ids=str)
def test_a_run_over_silos_protects_records_or_owners_and_can_be_resumed(images, tmp_path, more):
    (tmp_path / "owners.txt").write_text("".join(f"patient-{i // 2}\n" for i in range(80)))
    words = ("train", "--dataset", images, "--silos", 4, "--batch", 20, "--epsilon", 20, *QUICK, *more)
    done = skelmix(*words, "--directory", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cohort = json.loads((tmp_path / "run" / "plan.json").read_text())["cohort"]
    assert (cohort["kind"], cohort["count"]) == ("silos", 4)
    assert cohort["unit"] == ("owner" if "--owners" in more else "record")
    assert cohort["records"] <= 80
    assert "silo" in (tmp_path / "run" / "report.html").read_text()
    again = skelmix("train", "--resume", "run", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["accuracy"] == json.loads(done.stdout)["accuracy"]


def test_a_run_takes_the_public_number_of_records_and_not_the_silos_own(images, tmp_path):
    words = ("train", "--dataset", images, "--silos", 4, "--batch", 20, "--epsilon", 20, *QUICK)
    done = skelmix(*words, "--records", 100, "--directory", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["cohort"]["records"] == 100
    again = skelmix("train", "--resume", "run", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["accuracy"] == json.loads(done.stdout)["accuracy"], again.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan", "--silos", 4), "--records (in all silos) and --batch"),
        (("plan", "--records", 80), "give --silos too"),
        (("plan", *SILOS, "--cohort", 20), "--cohort: all silos are in every round"),
        (("plan", *SILOS, "--contribute", 0.1), "--contribute: all silos are in every round"),
        (("plan", *SILOS, "--max-participations", "auto"), "--max-participations: all silos"),
        (("plan", *SILOS, "--against-aggregator"), "--against-aggregator compares cohorts"),
        (("account", "--noise", 5, *SILOS, "--population", 20), "--population"),
        (("train", "--owners", "owners.txt"), "give --silos too"),
        (("train", "--records", 80), "give --silos too"),
        (("train", "--silos", 4, "--batch", 20, "--baseline", "dpsgd"), "--baseline"),
        (("train", "--silos", 4, "--batch", 20, "--records-per-participant", 2), "records_per_participant"),
        (("train", "--silos", 4, "--batch", 20, "--cohort", 40), "--cohort"),
        (("sum", "--records", 80), "--silo FILE"),
        (("sum", "--silo", "a.csv"), "give --records too"),
        (("sum", "--silo", "a.csv", "--silo", "a.csv", "--records", 80), "given twice"),
        (("sum", "--silo", "a.csv", "--silo", "b.csv", "--records", 80), "2 columns"),
        (("sum", "--silo", "a.csv", "--records", 80, "--mean"), "a column of ones"),
        (("sum", "--silo", "a.csv", "--input", "b.csv", "--records", 80), "a row per participant"),
        (("sum", "--silo", "a.csv", "--records", 80, "--output", "a.csv"), "would replace the input"),
    ],
)
def test_what_does_not_go_together_is_one_line_and_exit_code_2(images, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("1,2,3\n")
    (tmp_path / "b.csv").write_text("1,2\n")
    more = ("--dataset", images) if words[0] == "train" else ()
    done = in_process(*words, *more)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_the_sum_of_a_file_per_silo(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = np.random.default_rng(0).random((60, 3)) / 2
    np.savetxt(tmp_path / "north.csv", rows[:20], delimiter=",")
    np.save(tmp_path / "south.npy", rows[20:30])
    table = pa.table({name: rows[30:, place] for place, name in enumerate("abc")})
    parquet.write_table(table, tmp_path / "west.parquet")
    files = [word for name in ("north.csv", "south.npy", "west.parquet") for word in ("--silo", name)]
    done = skelmix("sum", *files, "--records", 64, "--clip-norm", 1, "--epsilon", 30, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["silos"], found["records"], found["unit"]) == (3, 64, "record")
    assert np.abs(found["estimate"] - rows.sum(axis=0)).max() < 7 * found["predicted"]["mse"] ** 0.5
