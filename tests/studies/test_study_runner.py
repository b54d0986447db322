"""A study measures what is missing, nothing twice, and ends with figure, claims and report."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
from study_for_tests import STUDY

from skelmix.studies.rows import commits_of, key, read
from skelmix.studies.study import run
from skelmix.studies.verdicts import Claim

HERE = Path(__file__).parent


def _rows(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if not line.startswith("#")][1:]


def test_nothing_is_measured_twice_and_more_seeds_only_add(tmp_path: Path) -> None:
    measured: list[int] = []

    def counting(done: int, total: int, row: object) -> None:
        measured.append(done)

    first = run(STUDY, tmp_path, command="one", workers=0, on_row=counting)
    assert measured == [1, 2, 3, 4]
    before = _rows(first.csv)
    run(STUDY, tmp_path, command="one", workers=0, on_row=counting)
    assert len(measured) == 4
    more = run(STUDY, tmp_path, command="two", seeds=2, workers=0, on_row=counting)
    assert len(measured) == 8
    assert _rows(more.csv)[:4] == before
    assert [line for line in more.csv.read_text().splitlines() if line in ("# one", "# two")] == [
        "# one",
        "# two",
    ]


def test_a_new_revision_measures_everything_again(tmp_path: Path) -> None:
    run(STUDY, tmp_path, command="c", workers=0)
    changed = replace(STUDY, revision=2, measure=lambda cell: {"square": 0})
    assert [row["square"] for row in run(changed, tmp_path, command="c", workers=0).rows] == [0] * 4


def test_what_cannot_be_done_is_a_row_that_says_why(tmp_path: Path) -> None:
    outcome = run(STUDY, tmp_path, command="c", workers=0)
    assert outcome.rows[3]["note"] == "x = 3: cannot be done; choose another"
    assert outcome.rows[3]["square"] is None


def test_figures_report_and_claims_are_written(tmp_path: Path) -> None:
    outcome = run(STUDY, tmp_path, command="skelmix reproduce squares", workers=0)
    assert {path.name for path in outcome.figures} == {"squares.png", "squares.svg"}
    assert outcome.figures[0].read_bytes().startswith(b"\x89PNG")
    report = outcome.report.read_text()
    assert "`skelmix reproduce squares`" in report
    assert "**does not hold**" in report
    assert "broken in 1: x = 2: 4" in report
    assert "| 2 | 4 |" in report


def test_quick_keeps_to_files_of_its_own(tmp_path: Path) -> None:
    outcome = run(STUDY, tmp_path, command="c", quick=True, workers=0)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"squares-quick.{end}" for end in ("csv", "md", "png", "svg")
    }
    assert len(outcome.rows) == 2


def test_drawing_only_measures_nothing_and_counts_what_is_missing(tmp_path: Path) -> None:
    assert run(STUDY, tmp_path, command="c", measure=False).missing == 4
    run(STUDY, tmp_path, command="c", workers=0)
    outcome = run(STUDY, tmp_path, command="c", seeds=2, measure=False)
    assert outcome.missing == 4
    assert "4 of 8 settings are not measured yet" in outcome.report.read_text()
    fine = replace(STUDY, claims=lambda rows: [Claim("x", "y", True, "")])
    assert "**holds so far**" in run(fine, tmp_path, command="c", seeds=2, measure=False).report.read_text()
    assert "**holds**" in run(fine, tmp_path, command="c", measure=False).report.read_text()


def test_a_bar_in_a_claim_does_not_break_the_table(tmp_path: Path) -> None:
    barred = replace(STUDY, claims=lambda rows: [Claim("at |B| = 960", "y", True, "z")])
    report = run(barred, tmp_path, command="c", workers=0).report.read_text()
    assert r"| at \|B\| = 960 | y | **holds** | z |" in report


def test_workers_compute_with_one_thread_each(tmp_path: Path) -> None:
    before = os.environ.get("NUMBA_NUM_THREADS")
    rows = run(STUDY, tmp_path, command="c", quick=True, workers=1).rows
    assert [row["threads"] for row in rows] == ["1", "1"]
    assert os.getpid() not in {row["worker"] for row in rows}
    assert os.environ.get("NUMBA_NUM_THREADS") == before


def test_a_killed_study_goes_on_where_it_was_and_leaves_no_worker(tmp_path: Path) -> None:
    environment = os.environ | {"STUDY_SLEEP": "0.3"}
    process = subprocess.Popen(
        [sys.executable, str(HERE / "study_for_tests.py"), str(tmp_path)], env=environment
    )
    path = tmp_path / "squares.csv"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (path.exists() and len(_rows(path)) >= 2):
        time.sleep(0.05)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, done = read(path, ("revision", "x", "seed"))
    assert 2 <= len(done) < 20
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive

    measured: list[int] = []
    outcome = run(
        STUDY, tmp_path, command="again", seeds=5, workers=0, on_row=lambda *args: measured.append(args[0])
    )
    assert len(measured) == 20 - len(done)
    assert outcome.missing == 0
    assert len(_rows(path)) == 20


def test_rows_of_another_study_with_the_same_settings_are_borrowed(tmp_path: Path) -> None:
    run(STUDY, tmp_path, command="c", workers=0)
    other = replace(STUDY, name="more-squares", borrow=("nothing", "squares"))
    measured: list[int] = []
    outcome = run(
        other, tmp_path, command="c", seeds=2, workers=0, on_row=lambda *args: measured.append(args[0])
    )
    assert len(measured) == 4
    assert len(outcome.rows) == 8


def test_borrowed_rows_keep_the_commit_that_measured_them(tmp_path: Path) -> None:
    run(STUDY, tmp_path, command="c", workers=0)
    source = tmp_path / "squares.csv"
    first, _, *rest = source.read_text().splitlines()
    source.write_text("\n".join([first, "# then; commit 0123abc; numpy", *rest, ""]))
    other = replace(STUDY, name="more-squares", borrow=("squares",))
    outcome = run(other, tmp_path, command="skelmix reproduce more-squares", seeds=2, workers=0)
    commits = commits_of(outcome.csv, ("revision", "x", "seed"))
    assert len(commits) == 8
    assert [commits[key(row, ("revision", "x", "seed"))] for row in outcome.rows if row["seed"] == 0] == [
        "0123abc"
    ] * 4
    assert "0123abc" not in {
        commits[key(row, ("revision", "x", "seed"))] for row in outcome.rows if row["seed"]
    }
    assert "commit 0123abc; copied from squares.csv" in outcome.csv.read_text()
