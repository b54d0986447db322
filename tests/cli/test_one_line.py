"""Whatever goes wrong is said once, in one line, with the remedy; numbers have sensible digits."""

import io
import re
import subprocess
import sys

import pytest
from rich.console import Console

import skelmix as sk
from helpers.command import in_process
from skelmix.cli import console
from skelmix.rounds import Ledger
from skelmix.wording import figure


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan", "--output", "nowhere/plan.json"), "nowhere is not a directory; make it first"),
        (("plan", "--output", "."), "is a directory; name a file"),
        (("plan", "--plot", "nowhere/a.png"), "nowhere is not a directory; make it first"),
        (("sum", "--input", "."), "is a directory; name a file in it"),
        (("audit", "--plan", "."), "directory"),
        (("audit", "--plan", "nowhere.json"), "nowhere.json"),
        (("pln",), "Did you mean 'plan'?"),
        (("reproduce", "figre1"), "Did you mean 'figure1'"),
    ],
)
def test_a_bad_place_or_word_is_one_line_with_a_remedy(tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    done = in_process(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.count("Did you mean") <= 1
    assert "Errno" not in done.stderr


def test_a_warning_is_printed_once():
    words = ("plan", "--cohort", 10, "--dimension", 8, "--delta", 0.2, "--bits", 16, "--bound", "rdp")
    done = in_process(*words)
    assert " ".join((done.stdout + done.stderr).split()).count("δ = 0.2 allows") == 1
    done = in_process(*words, "--json")
    assert done.stderr.count("δ = 0.2 allows") == 1


@pytest.mark.parametrize(
    ("package", "name", "missing"), [("federated", "Trainer", "torch"), ("flower", "SecureGrid", "flwr")]
)
def test_a_missing_extra_is_named_with_its_command(package, name, missing):
    text = f"import sys; sys.modules[{missing!r}] = None; import skelmix.{package} as p; p.{name}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    last = done.stderr.strip().splitlines()[-1]
    extra = {"flwr": "flower"}.get(missing, missing)
    assert last.endswith(f"{missing} is not installed: pip install 'skelmix[{extra}]'")
    assert done.stderr.count("Traceback") == 1


def test_a_person_at_a_terminal_is_told_once_why_the_first_use_takes_long(monkeypatch):
    from numba import njit

    said = io.StringIO()
    for terminal in (False, True):
        monkeypatch.setattr(console, "err", Console(file=said, force_terminal=terminal))
        console.say_when_compiling.__wrapped__()
        for number in (1, 2.0):
            njit(lambda value: value)(number)
        assert said.getvalue().count("compiling the kernels") == terminal


def test_figures_have_sensible_digits_and_nouns_their_number():
    assert figure(290208.2947) == "290,208"
    assert [figure(value) for value in (1904.6, 999.96, 999.4, 1.00537)] == [
        "1,905",
        "1,000",
        "999.4",
        "1.005",
    ]
    ledger = Ledger(None, plan_digest="", budget=1)
    ledger.charge(0)
    with pytest.raises(sk.errors.BudgetExhausted, match="nothing is left of the plan's 1 round:"):
        ledger.charge(1)


def test_large_numbers_on_a_card_have_commas():
    cohort = sk.Cohort(240, 60_000)
    target = sk.PrivacyTarget(3.0, 1e-5)
    plan = sk.plan(target, dimension=8, bits=16, bound="rdp", rounds=1_000, cohort=cohort, clip_norm=2_000)
    shown = " ".join(str(plan).split())
    assert plan.report.epsilon_every_round > 1_000
    assert re.search(r"; \d,\d{3} if it picks the same participant every round", shown)
    assert "clip norm 2,000" in shown


def test_the_card_says_of_sampled_rounds_that_smaller_ones_open_with_fewer():
    options = {"dimension": 8, "bits": 16, "bound": "rdp", "rounds": 2}
    target = sk.PrivacyTarget(5.0, 1e-5)
    sampled = str(sk.plan(target, cohort=sk.Cohort(240, 60_000), **options))
    assert (
        "opens a sum only with enough survivors for the promised noise: at least 240 in a cohort of the "
        "expected size, proportionally fewer or more in other cohorts"
    ) in " ".join(sampled.split())
    assert "240 of 60,000 (poisson); if 240 are drawn, all must survive" in " ".join(sampled.split())
    everyone = str(sk.plan(target, cohort=sk.Cohort.everyone(240, dropout_tolerance=0.1), **options))
    assert "expected size" not in " ".join(everyone.split())
    alone = str(sk.plan(target, cohort=sk.Cohort.everyone(240), **options | {"dimension": 1}))
    assert "(its only coordinate;" in " ".join(alone.split())
    assert "± " in everyone
