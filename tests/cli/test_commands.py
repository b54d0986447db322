"""The command line as a user meets it: results, JSON, errors."""

import json

import numpy as np
import pytest

import skelmix as sk
from helpers.command import skelmix

CLEAR = ("--secure", "simulated")


def one_object(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


PLAN_KEYS = {
    "epsilon", "delta", "order", "epsilon_aggregator", "mechanism", "bound", "scale", "bits", "clip_norm",
    "noise", "total_noise", "min_survivors", "predicted", "central_gaussian_mse",
}  # fmt: skip


def test_plan_prints_one_json_object_with_the_promised_keys():
    found = one_object(skelmix("plan", "--dimension", 1000, "--bits", 12, "--cohort", 100, "--json"))
    assert set(found) >= PLAN_KEYS
    assert set(found["predicted"]) >= {"mse", "noise", "rounding", "wrap"}
    assert found["epsilon"] <= 3.0


def test_account_gives_the_check_value():
    words = "account --mechanism smm --bound paper --noise 5.95 --scale 64 --clip-norm 1 --cohort 240"
    found = one_object(
        skelmix(*words.split(), "--population", 60000, "--rounds", 1000, "--delta", 1e-5, "--json")
    )
    assert found["epsilon"] == pytest.approx(2.9988, abs=1e-3)
    assert found["order"] == 5


def test_a_rate_is_planned_for_and_accounted_again():
    words = ("--dimension", 4096, "--cohort", 100, "--bound", "rdp", "--json")
    planned = one_object(skelmix("plan", "--rate", 0.5, "--alignment", 0.01, *words))
    assert planned["rate"] <= 0.5
    assert planned["keep"] < 1
    assert planned["upload_bytes"] == -(-planned["coordinates"] * planned["bits"] // 8)
    again = one_object(
        skelmix(
            "account", "--noise", planned["noise"], "--scale", planned["scale"], "--bits", planned["bits"],
            "--keep", planned["keep"], "--clip-slack", planned["clip_slack"], *words,
        )
    )  # fmt: skip
    assert again["epsilon"] == pytest.approx(planned["epsilon"], rel=1e-4)
    assert again["coordinates"] == planned["coordinates"]


def test_a_sum_at_a_rate_is_as_accurate_as_predicted():
    found = one_object(
        skelmix("sum", "--participants", 50, "--dimension", 2000, "--rate", 2, "--bound", "rdp", "--json")
    )
    assert found["keep"] < 1
    assert found["mse"] == pytest.approx(found["predicted"]["mse"], rel=0.3)


def test_compare_has_a_row_for_every_mechanism_and_rate():
    found = one_object(
        skelmix(
            "plan", "--compare", "--dimension", 4096, "--bits", 14, "--cohort", 100, "--bound", "rdp",
            "--json",
        )
    )  # fmt: skip
    rates = [row["asked_rate"] for row in found["rates"]]
    assert rates[0] == 8
    assert rates[-1] == 0.0625
    assert all(row["rate"] <= row["asked_rate"] for row in found["rates"])
    assert {row["mechanism"] for row in found["compare"]} == {
        "smm",
        "dgm",
        "skellam",
        "ddg",
        "cpsgd",
        "gaussian",
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan", "--bits", 40), "bits = 40"),
        (("plan", "--epsilon", 0), "epsilon = 0"),
        (("plan", "--delta", 1), "delta = 1"),
        (("plan", "--cohort", 10, "--population", 5), "population"),
        (("plan", "--mechanism", "laplace"), "one of smm"),
        (("account", "--noise", -1), "noise = -1"),
        (("sum", "--input", "nowhere.csv"), "no such file"),
        (("sum", "--output", "total.txt"), "--output"),
        (("sum", "--output", "nowhere/total.csv"), "nowhere is not a directory"),
        (("plan", "--bits", "abc"), "abc"),
        (("plan", "--frobnicate"), "frobnicate"),
        (("sum", "--mechanism", "gaussian", "--dimension", 8), "pass 'none'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, says):
    done = skelmix(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback():
    assert "Traceback" in skelmix("plan", "--bits", 40, "--debug").stderr


def test_the_sum_of_a_csv(tmp_path):
    rows = np.random.default_rng(3).random((40, 5))
    np.savetxt(tmp_path / "in.csv", rows, delimiter=",", header="a,b,c,d,e", comments="")
    words = (
        "sum",
        "--input",
        "in.csv",
        "--header",
        "--output",
        "out.csv",
        "--clip-norm",
        3,
        "--epsilon",
        50,
        "--bits",
        20,
        "--json",
    )
    found = one_object(skelmix(*words, cwd=tmp_path))
    assert found["participants"] == 40
    assert "mse" not in found
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "a,b,c,d,e"
    total = np.loadtxt(tmp_path / "out.csv", delimiter=",", skiprows=1)
    assert np.abs(total - rows.sum(axis=0)).max() < 7 * found["deviation"]


def test_a_sum_that_cannot_be_shown_whole_is_refused_before_it_is_released(tmp_path):
    np.save(tmp_path / "in.npy", np.full((20, 101), 0.1))
    done = skelmix("sum", "--input", "in.npy", "--clip-norm", 1, *CLEAR, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--output FILE or --json" in done.stderr


def test_the_output_is_not_the_input(tmp_path):
    (tmp_path / "in.csv").write_text("1,2\n3,4\n")
    done = skelmix("sum", "--input", "in.csv", "--output", "in.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert (tmp_path / "in.csv").read_text() == "1,2\n3,4\n"
    (tmp_path / "out.csv").mkdir()
    done = skelmix("sum", "--input", "in.csv", "--output", "out.csv", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is a directory" in done.stderr


def test_what_is_shown_says_that_rows_were_shortened_and_how_they_were_added(tmp_path):
    np.save(tmp_path / "in.npy", np.full((20, 12), 0.1))
    words = (
        "sum",
        "--input",
        "in.npy",
        "--epsilon",
        100,
        "--bits",
        20,
        "--secure",
        "simulated",
        "--delta",
        1e-3,
        "--clip-norm",
        1,
    )
    shown = skelmix(*words, cwd=tmp_path).stdout
    assert "rows longer than 1 were shortened" in shown
    assert "SIMULATED: one process" in shown
    lines = shown.splitlines()
    first = next(place for place, line in enumerate(lines) if line.split() == ["coordinate", "sum", "±"])
    assert [line.split()[0] for line in lines[first + 1 : first + 13]] == [str(n) for n in range(1, 13)]


def test_the_mean_of_an_npy_divides_by_the_number_of_rows(tmp_path):
    np.save(tmp_path / "in.npy", np.full((50, 4), 0.5))
    words = (
        "sum",
        "--input",
        "in.npy",
        "--clip-norm",
        1,
        "--mean",
        "--epsilon",
        100,
        "--bits",
        20,
        "--secure",
        "simulated",
        "--json",
    )
    found = one_object(skelmix(*words, cwd=tmp_path))
    assert found["deviation"] == pytest.approx(found["predicted"]["mse"] ** 0.5 / 50)
    assert np.allclose(found["estimate"], 0.5, atol=7 * found["deviation"])


@pytest.mark.parametrize("bad", ["nan", "abc", "1,2", "inf", ""])
def test_a_bad_row_is_named_and_nothing_is_released(tmp_path, bad):
    (tmp_path / "in.csv").write_text(f"1,2,3\n4,5,6\n7,{bad},9\n")
    done = skelmix("sum", "--input", "in.csv", "--output", "out.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "line 3" in done.stderr
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "N/A,N/A\n1,2\n", "1\n\n3\n", "\ufeff1,2\nx,4\n"])
def test_no_row_is_dropped_in_silence(tmp_path, text):
    (tmp_path / "in.csv").write_text(text, encoding="utf-8")
    done = skelmix("sum", "--input", "in.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "1 bad cell" in done.stderr or "1 bad line" in done.stderr


def test_parquet_rows(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(pa.table({"a": [0.1, 0.2], "b": [0.3, 0.4]}), tmp_path / "in.parquet")
    words = (
        "sum",
        "--input",
        "in.parquet",
        "--clip-norm",
        1,
        "--epsilon",
        100,
        "--bits",
        20,
        "--secure",
        "simulated",
        "--json",
    )
    found = one_object(skelmix(*words, cwd=tmp_path))
    assert found["dimension"] == 2
    assert np.allclose(found["estimate"], [0.3, 0.7], atol=7 * found["predicted"]["mse"] ** 0.5)


def test_synthetic_vectors_report_the_measured_error():
    words = (
        "sum",
        "--participants",
        60,
        "--dimension",
        4096,
        "--alignment",
        0,
        "--secure",
        "simulated",
        "--json",
    )
    found = one_object(skelmix(*words))
    # 4,096 squared errors: the mean has a relative deviation of 2.2 %
    assert found["mse"] == pytest.approx(found["predicted"]["mse"], rel=0.15)
    assert found["seconds"] > 0


def test_plan_and_account_take_a_coin_a_cap_and_a_second_target():
    words = [
        "--dimension",
        "64",
        "--bits",
        "14",
        "--bound",
        "gdp",
        "--cohort",
        "100",
        "--population",
        "1000",
        "--rounds",
        "50",
        "--json",
    ]
    both = ["--contribute", 0.5, "--max-participations", "auto"]
    plan = one_object(skelmix("plan", *words, *both, "--epsilon-aggregator", 4))
    assert plan["epsilon_aggregator"] <= 4
    assert (plan["contribute"], plan["max_participations"], plan["binding_target"]) == (0.5, 17, "aggregator")
    given = ["--noise", plan["noise"], "--scale", plan["scale"]]
    found = one_object(skelmix("account", *words, *both, *given))
    own = sk.account(  # it divides δ between noise and slack by itself, so plan's ε is not quite the same
        noise=plan["noise"],
        delta=1e-5,
        dimension=64,
        bits=14,
        bound="gdp",
        scale=plan["scale"],
        rounds=50,
        cohort=sk.Cohort(100, 1_000, contribute=0.5, max_participations=17),
    )
    assert found["epsilon_aggregator"] == pytest.approx(own.report.epsilon_aggregator, rel=1e-9)
