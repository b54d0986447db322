"""`skelmix sum` for an analyst with a file: named columns, errors in their own units, nothing by mistake."""

import json
import re

import numpy as np
import pytest

from helpers.command import in_process
from helpers.prose import unwrapped
from skelmix.wording import beside_error, figure

VISITS = "id,age,stay,ward\np1,31,2.5,north\np2,64,9,south\np3,52,4,north\np4,47,1,east\n"
CLIPPED = ("--clip-norm", 80, "--secure", "simulated")


@pytest.fixture
def visits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text(VISITS)
    return tmp_path


def refused(words, says):
    """The one line of a command that must not have released anything."""
    done = in_process(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_named_columns_are_added_and_keep_their_names(visits):
    words = ("sum", "--input", "visits.csv", "--columns", "stay,age", *CLIPPED, "--epsilon", 40)
    found = json.loads(in_process(*words, "--json").stdout)
    assert found["columns"] == ["stay", "age"]
    assert np.abs(np.subtract(found["estimate"], [16.5, 194.0])).max() < 7 * found["deviation"]
    shown = in_process(*words, "--output", "total.csv").stdout.splitlines()
    assert (visits / "total.csv").read_text().splitlines()[0] == "stay,age"
    rows = [line.split() for line in shown]
    head = rows.index(["column", "sum", "±"])
    assert [row[0] for row in rows[head + 1 : head + 3]] == ["stay", "age"]


def test_the_error_is_a_standard_deviation_in_the_users_units(visits):
    words = ("sum", "--input", "visits.csv", "--columns", "age,stay", *CLIPPED, "--epsilon", 20, "--json")
    found = [json.loads(in_process(*words, *more).stdout) for more in ([], ["--mean"])]
    assert found[0]["deviation"] == pytest.approx(found[0]["predicted"]["mse"] ** 0.5)
    assert found[1]["deviation"] == pytest.approx(found[1]["predicted"]["mse"] ** 0.5 / 4)


def test_with_mean_card_tile_and_table_state_the_error_of_the_mean(visits):
    words = (
        "sum",
        "--input",
        "visits.csv",
        "--columns",
        "age,stay",
        *CLIPPED,
        "--mean",
        "--report",
        "m.html",
    )
    done = in_process(*words, "--output", "mean.csv")
    deviation = json.loads(in_process(*words, "--json").stdout)["deviation"]  # the same plan
    said = f"± {figure(deviation)}"
    assert f"{said} per coordinate of the mean" in unwrapped(done.stdout)
    assert "per coordinate of the sum" not in unwrapped(done.stdout)
    page = (visits / "m.html").read_text()
    tile = re.search(r"<dt>error</dt><dd><strong.*?>(.*?)</strong><span>(.*?)</span>", page)
    assert tile.groups() == (said, "one standard deviation of each mean")
    assert f"{said} per coordinate of the mean" in page


def test_the_page_lists_the_released_values_with_their_errors(visits):
    words = ("--columns", "age,stay", *CLIPPED, "--report", "sum.html", "--json")
    payload = json.loads(in_process("sum", "--input", "visits.csv", *words).stdout)
    error = beside_error(payload["deviation"], payload["deviation"])
    listed = re.findall(
        r'<th scope="row">(.*?)</th><td>(.*?)</td><td>(.*?)</td>', (visits / "sum.html").read_text()
    )
    values = [beside_error(value, payload["deviation"]) for value in payload["estimate"]]
    assert listed == [("age", values[0], error), ("stay", values[1], error)]


def test_the_page_lists_the_first_hundred_of_a_long_sum_and_counts_the_rest(tmp_path):
    page = tmp_path / "sum.html"
    made_up = ("--dimension", 1_234, "--participants", 5, "--secure", "simulated")
    in_process("sum", *made_up, "--report", page, "--json")
    listed = re.findall(r'<th scope="row">(\d+)</th><td>.*?</td><td>', page.read_text())
    assert listed == [str(place) for place in range(1, 101)]
    assert "the first 100 of 1,234; 1,134 more are not listed" in page.read_text()


def test_the_clip_norm_of_real_rows_is_never_guessed(visits):
    line = refused(("sum", "--input", "visits.csv", "--columns", "age,stay"), "--clip-norm")
    assert "--inspect" in line


def test_inspect_says_what_each_norm_would_shorten_and_releases_nothing(visits):
    done = in_process("sum", "--input", "visits.csv", "--columns", "age,stay", "--inspect")
    assert "NOT PRIVATE" in done.stdout
    assert "differential privacy" not in done.stdout
    found = json.loads(
        in_process("sum", "--input", "visits.csv", "--columns", "age,stay", "--inspect", "--json").stdout
    )
    assert found["private"] is False
    assert "estimate" not in found
    shares = {row["clip_norm"]: row["share"] for row in found["inspect"]}
    assert shares[50.0] == 0.5  # norms: 31.1, 64.6, 52.2, 47.0
    assert shares[100.0] == 0
    refused(
        ("sum", "--input", "visits.csv", "--columns", "age", "--inspect", "--epsilon", 1), "--epsilon: has no"
    )


def test_bits_are_enough_for_the_sum_unless_they_are_given(visits):
    np.save("many.npy", np.full((20_000, 2), 0.5))
    words = ("sum", "--input", "many.npy", "--clip-norm", 1, "--secure", "simulated", "--json")
    found = json.loads(in_process(*words).stdout)
    assert found["bits"] > 16
    assert found["warnings"] == []
    assert found["predicted"]["effective_mse"] < 1.1 * found["central_gaussian_mse"]


def test_a_plan_that_warns_releases_nothing_unless_told(visits):
    words = ("sum", "--input", "visits.csv", "--columns", "age", *CLIPPED, "--delta", 0.3, "--epsilon", 20)
    line = refused((*words, "--output", "total.csv"), "add --yes")
    assert "δ = 0.3" in line
    assert not (visits / "total.csv").exists()
    done = in_process(*words, "--yes", "--output", "total.csv")
    assert done.returncode == 0
    assert "δ = 0.3" in done.stdout
    assert (visits / "total.csv").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,x\n2,3\n", "line 2, column 2 (b) is 'x', not a number"),
        ("a,b\n1,\n2,3\n", "line 2, column 2 (b) is empty"),
        ("a,b\n1,nan\n2,3\n", "line 2, column 2 (b) is 'nan', not a finite number. Nothing was released"),
        ('a,b\n1,"2,5"\n2,3\n', "write 1000.5, not 1,000.5 or 1000,5"),
        ("a,b\n1,2,3\n2,3\n", "line 2 has 3 cells, but line 1 has 2"),
        ("a,b\n1,2\n\n2,3\n", "line 3 is empty"),
        ("a;b\n1;2\n", "separated by semicolons"),
        ("a\tb\n1\t2\n", "separated by tabs"),
        ("a,b\n" + "x,y\n" * 50, "100 bad cells: line 2, column 1 (a) is 'x'"),
        ("a,b\n" + "x,y\n" * 50, "; and 95 more"),
    ],
)
def test_a_bad_cell_is_named_with_line_column_and_value(tmp_path, monkeypatch, text, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text(text)
    refused(("sum", "--input", "in.csv", "--header", *CLIPPED), says)


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "latin-1"])
def test_a_file_that_is_not_in_utf_8_is_named_as_such(tmp_path, monkeypatch, coding):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_bytes("größe,stay\n31,2.5\n".encode(coding))
    says = "not plain text (UTF-16" if "16" in coding else "Its names are not in UTF-8: save the file"
    line = refused(("sum", "--input", "in.csv", "--columns", "größe", *CLIPPED), says)
    assert "Did you mean" not in line


def test_an_ending_may_be_in_capitals(visits):
    (visits / "visits.csv").rename(visits / "VISITS.CSV")
    words = ("sum", "--input", "VISITS.CSV", "--columns", "age", *CLIPPED, "--epsilon", 40, "--json")
    assert json.loads(in_process(*words).stdout)["columns"] == ["age"]


def test_names_in_line_1_are_recognised(visits):
    refused(("sum", "--input", "visits.csv", *CLIPPED), "line 1 holds text (id, age, stay, ward)")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--columns", "age,stya"), "no column 'stya'. Did you mean 'stay'? It has id, age, stay, ward"),
        (("--columns", "age,age"), "name each column once"),
        (("--columns", "ward"), "is 'north', not a number"),
        (("--columns", "age", "--participants", 5), "--participants: is for made-up vectors"),
        (("--columns", "age", "--radius", 5), "--radius: is for made-up vectors"),
        (
            ("--columns", "age", "--mechanism", "gaussian", "--secure", "none", "--bits", 8),
            "--bits: has no effect with gaussian",
        ),
        (("--columns", "age", "--output", "."), "must be .npy or .csv"),
        (("--columns", "age", "--output", "nowhere/total.csv"), "nowhere is not a directory"),
    ],
)
def test_what_has_no_effect_or_no_sense_is_refused(visits, words, says):
    refused(("sum", "--input", "visits.csv", *CLIPPED, *words), says)


@pytest.mark.parametrize("option", ["--header", "--inspect", "--yes", "--columns=age"])
def test_options_of_files_need_a_file(option):
    refused(("sum", option), "give one with --input")


def test_many_participants_are_told_that_the_protocol_takes_a_while_and_few_are_not(monkeypatch):
    monkeypatch.setattr("skelmix.cli.sum._MANY", 10)
    words = ("sum", "--dimension", 2, "--json")
    slow = "participants run secure aggregation in this process, which takes a while; --secure simulated"
    assert f"10 {slow}" in in_process(*words, "--participants", 10).stderr
    assert slow not in in_process(*words, "--participants", 9).stderr
    assert slow not in in_process(*words, "--participants", 10, "--secure", "simulated").stderr


def test_without_a_file_it_says_that_it_is_a_demonstration():
    done = in_process("sum", "--dimension", 8, "--participants", 10, "--secure", "simulated", "--json")
    assert "demonstration: 10 made-up vectors" in done.stderr
    assert json.loads(done.stdout)["demonstration"] is True


def test_columns_of_parquet_are_chosen_by_name(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    monkeypatch.chdir(tmp_path)
    table = {"name": ["a", "b"], "age": [31, 64], "stay": [2.5, None]}
    parquet.write_table(pa.table(table), tmp_path / "in.parquet")
    words = ("sum", "--input", "in.parquet", *CLIPPED, "--epsilon", 50)
    refused(words, "name holds no numbers; choose columns that do, with --columns")
    refused((*words, "--columns", "age,stay"), "line 2, column 3 (stay) is empty")
    found = json.loads(in_process(*words, "--columns", "age", "--json").stdout)
    assert found["columns"] == ["age"]
