"""A party compiles what an answer needs before it opens its file, whatever the file holds."""

import json
import subprocess
import sys

import pytest

from skelmix.flower.desk import Desk
from skelmix.statistics.rehearsal import rehearse

ANSWER = """
import gc, json, sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from skelmix import PrivacyTarget
from skelmix.statistics import Owners, Parties, parse_question, plan_statistics
from skelmix.statistics.asked import AskedStatistics, AskedSum
from skelmix.statistics.rehearsal import rehearse
from skelmix.statistics.row_sums import plan_row_sum

def compiled():
    kernels = [found for found in gc.get_objects() if issubclass(type(found), Dispatcher)]
    return {f"{one.py_func.__module__}.{one.py_func.__qualname__}": len(one.signatures) for one in kernels}

target, home, kind = PrivacyTarget(1.0, 1e-6), Path.cwd(), sys.argv[1]
if kind == "sum":
    asked = AskedSum(("age", "stay"))
    plan = plan_row_sum(asked, target, Parties(3, 900), clip_norm=120)
else:
    owners = Owners("patient", 2) if kind == "owners" else None
    asked = AskedStatistics(parse_question(kind if kind == "count" else
        "count; sum(stay, 0..60); variance(age, 0..110); histogram(age: 0..110 by 10); "
        "crosstab(diagnosis: A|B, sex: F|M); quantiles(stay, 0..60 by 1; 0.5)"), owners)
    plan = plan_statistics(asked.question, target, Parties(3, 900, owners)).plan
if sys.argv[2] == "rehearsed":
    rehearse(asked, plan, home)
before = compiled()
for file in ("whole.csv", "gaps.csv", "broken.csv"):
    silo, notes = asked.sum_of_file(home / file, plan.mechanism)
    assert bool(notes) == (file == "broken.csv" and kind != "count"), notes
    assert all(note.count(file) == 1 for note in notes), notes
    plan.mechanism.encode_silo(silo, shares=plan.cohort.roster.encoding_shares(plan.mechanism.total_noise, 3))
after = compiled()
print(json.dumps([name for name in after if after[name] > before.get(name, 0)]))
"""


def compiled_while_answering(directory, *arguments):
    (directory / "whole.csv").write_text("patient,age,stay,diagnosis,sex\np,30,4,A,F\nq,31,5,B,M\n")
    (directory / "gaps.csv").write_text("patient,age,stay,diagnosis,sex\np,,4,A,F\nq,31,,,M\n,1,1,A,F\n")
    (directory / "broken.csv").write_text("something else\n")
    command = [sys.executable, "-c", ANSWER, *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["statistics", "owners", "count", "sum"])
def test_after_a_rehearsal_no_file_makes_a_party_compile(tmp_path, kind):
    assert compiled_while_answering(tmp_path, kind, "rehearsed") == []


def test_control_without_a_rehearsal_answers_compile(tmp_path):
    assert "skelmix.statistics.kernels.bin_cells" in compiled_while_answering(
        tmp_path, "statistics", "at once"
    )


def test_parties_rehearse_once_before_they_charge_and_leave_nothing_behind(parties, plan, monkeypatch):
    group, charges = parties(), []
    original = Desk.rehearse

    def watched(desk, question, planned):
        charges.append(sum(group.charges()))
        original(desk, question, planned)

    monkeypatch.setattr(Desk, "rehearse", watched)
    group.total(plan)
    assert charges == [0, 0, 0]
    for home in group.homes.values():
        assert not [path for path in (home / "state").iterdir() if path.is_dir()]


def test_a_refused_question_is_not_rehearsed(parties, plan, monkeypatch):
    seen = []
    monkeypatch.setattr(Desk, "rehearse", lambda *_: seen.append(1))
    assert "3 of 3 parties refuse" in parties(in_all=0.5).ask(plan)["failed"]
    assert seen == []


def test_a_rehearsal_reads_no_file_of_the_party(tmp_path, plan):
    from skelmix.statistics.asked import AskedStatistics

    rehearse(AskedStatistics(plan.question), plan.plan, tmp_path)
    assert list(tmp_path.iterdir()) == []
