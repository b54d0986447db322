"""`skelmix stats` as a user meets it."""

import json
import re
from html import unescape

import pytest

from helpers.command import skelmix
from skelmix.datasets.hospital_files import hospitals

ASK = "count; mean(age, 0..110); crosstab(diagnosis: A|B|C, sex: F|M)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("parties")
    hospitals(directory, count=2, records=400)
    return directory


def stats(folder, *words):
    parties = ["--party", "hospital-1.csv", "--party", "hospital-2.csv", "--records", 800]
    return skelmix("stats", *parties, *words, cwd=folder)


def test_json_has_the_promised_shape(folder):
    done = stats(folder, "--ask", ASK, "--json", "--output", "report.html")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"epsilon", "delta", "unit", "answers"}
    assert found["epsilon"] <= 1
    assert found["unit"] == "record"
    count, mean, table = found["answers"]
    for answer in (count, mean, table):
        assert set(answer) == {"query", "value", "standard_error", "low", "high"}
    assert count["low"] <= count["value"] <= count["high"]
    assert set(table["value"]) == {"A", "B", "C", "other"}
    assert set(table["low"]["A"]) == {"F", "M", "other"}
    assert mean["query"] == "mean(age, 0..110)"
    assert "standard error at most" in done.stderr
    page = (folder / "report.html").read_text()
    assert 'id="figure2"' in page
    assert "is protected with ε = " in page
    assert "<script src" not in page
    assert "<link" not in page
    tile = re.search(r"<dt>squared error</dt><dd><strong>(.*?)</strong><span>(.*?)</span>", page)
    card = re.search(r'<th scope="row">squared error</th><td>(.*?) <small>', page)
    assert f"{tile[1]} {tile[2]}" == card[1]
    assert f"squared error {unescape(card[1])})" in done.stderr


def test_terminal_and_page_state_the_same_facts(folder):
    done = stats(folder, "--ask", "count", "--output", "facts.html")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    page = unescape((folder / "facts.html").read_text())
    card = page[page.index('id="card"') : page.index("<details>")]
    facts = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', card)
    assert {"error", "upload", "sampling", "other people"} <= {name for name, _ in facts}
    for name, value in facts:
        value = re.sub(r" <small>(.*)</small>", r" (\1)", value)
        assert f"{name} {value}" in said


def test_a_plan_reads_no_data(tmp_path):
    """The files are there, but nobody looks into them: broken ones make no difference."""
    for name in ("hospital-1.csv", "hospital-2.csv"):
        (tmp_path / name).write_bytes(b"\x00")
    (tmp_path / "question.toml").write_text('[[query]]\nkind = "count"\n')
    done = stats(tmp_path, "--queries", "question.toml", "--plan-only")
    assert done.returncode == 0, done.stderr
    assert "count: standard error about" in done.stdout
    assert "column" not in done.stderr


def test_one_party_is_refused_in_words_of_the_option(folder):
    done = skelmix("stats", "--party", "hospital-1.csv", "--records", 800, "--ask", "count", cwd=folder)
    assert done.returncode == 2
    assert "--party hospital-1.csv: the only one" in done.stderr


def test_every_file_behind_the_option_is_a_party(folder):
    """As the shell writes `--party *.csv`."""
    done = skelmix(
        "stats", "--party", "hospital-1.csv", "hospital-2.csv", "--ask", "count", "--json", cwd=folder
    )
    (count,) = json.loads(done.stdout)["answers"]
    assert abs(count["value"] - 800) < 6 * count["standard_error"]


def test_a_mistake_in_the_question_is_shown_in_its_line(folder):
    done = stats(folder, "--ask", "count; meen(age, 0..110)")
    assert done.returncode == 2
    assert "character 8: expected one of count, " in done.stderr
    assert done.stderr.endswith("; it says 'meen(age, 0..110)' there\n")


def test_expected_errors_name_the_number_of_records_that_they_are_for(folder):
    shown = stats(folder, "--ask", "count", "--plan-only").stdout
    assert "expected errors with 800 records, ε = " in shown


def test_without_a_number_of_records_a_large_one_is_assumed_and_said(folder):
    parties = ["--party", "hospital-1.csv", "--party", "hospital-2.csv"]
    done = skelmix("stats", *parties, "--ask", "count", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "expected errors with 500,000 records" in done.stdout
    assert "--records was not given: 500,000 at most are assumed" in done.stdout
    done = skelmix("stats", *parties, "--ask", "count", "--relative-error", 0.1, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "state it, --records" in done.stderr


def test_more_records_than_stated_are_noticed_in_the_released_count(folder):
    parties = ["--party", "hospital-1.csv", "--party", "hospital-2.csv"]
    for records, noticed in ((400, True), (800, False)):
        done = skelmix("stats", *parties, "--records", records, "--ask", "count", cwd=folder)
        assert ("the count is above --records 400" in done.stderr) == noticed


def test_files_none_of_which_can_be_used_end_with_exit_code_2(tmp_path):
    for name in ("hospital-1.csv", "hospital-2.csv"):
        (tmp_path / name).write_text("this is,no table\n")
    done = stats(tmp_path, "--ask", ASK, "--json", "--output", "report.html")
    assert (done.returncode, done.stdout) == (2, "")
    assert "none of 2 files can be used" in done.stderr
    assert not (tmp_path / "report.html").exists()


def test_the_least_epsilon_for_an_error(folder):
    done = stats(folder, "--ask", ASK, "--relative-error", 0.05, "--plan-only", "--json")
    found = json.loads(done.stdout)
    assert max(item["relative_error"] for item in found["expected"]) <= 0.05
    assert 0 < found["epsilon"] < 1


def test_a_bad_line_is_named_on_stderr_only(folder, tmp_path):
    (tmp_path / "hospital-1.csv").write_bytes((folder / "hospital-1.csv").read_bytes())
    (tmp_path / "hospital-2.csv").write_text("age\n40\nold\n")
    done = stats(tmp_path, "--ask", "count; mean(age, 0..110)")
    assert done.returncode == 0, done.stderr
    assert "hospital-2.csv, line 3" in done.stderr
    assert "line 3" not in done.stdout
    assert "count" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ask", "count", "--queries", "q.toml"], "give the question once"),
        ([], "give the question once"),
        (["--ask", "count", "--epsilon", 1, "--relative-error", 0.1], "leave out --epsilon"),
        (["--ask", "count", "--owner", "patient"], "--owner and --rows go together"),
        (["--ask", "count", "--output", "report.pdf"], "must be .html"),
        (["--ask", "count", "--party", "hospital-3.csv"], "no such file"),
        (["--ask", "count", "--party", "hospital-1.csv"], "given twice"),
        (["--ask", "histogram(sex)"], "never read from the data"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(folder, words, message):
    done = stats(folder, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
