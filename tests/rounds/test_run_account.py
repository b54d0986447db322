"""What a run has spent so far, read from its ledger without touching it."""

import json

import pytest

import skelmix as sk
from helpers.command import skelmix
from skelmix.errors import CorruptState, InvalidInput
from skelmix.rounds.ledger import Ledger, read_ledger
from skelmix.rounds.run_account import spent_so_far

PLAN = sk.plan(
    sk.PrivacyTarget(3.0, 1e-5), dimension=16, bits=16, rounds=10, bound="rdp", cohort=sk.Cohort(50, 500)
)


@pytest.fixture
def run(tmp_path):
    """A directory in which 4 of 10 rounds are charged, by a ledger that is still open."""
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    ledger = Ledger(tmp_path / "ledger.jsonl", plan_digest=PLAN.digest(), budget=PLAN.rounds)
    for number in range(4):
        ledger.charge(number)
    yield tmp_path
    ledger.close()


def test_the_rounds_charged_so_far_are_accounted_for(run):
    before = (run / "ledger.jsonl").read_bytes()
    found = spent_so_far(run)
    four = sk.planning.privacy_report(
        PLAN.mechanism, bound="rdp", cohort=PLAN.cohort, rounds=4, delta=1e-5, slack=PLAN.slack or None
    )
    assert found.charged == 4
    assert found.report.epsilon == four.epsilon < PLAN.report.epsilon
    assert found.report.epsilon_aggregator == four.epsilon_aggregator
    assert "4 of 10 rounds charged (6 left)" in str(found)
    assert (run / "ledger.jsonl").read_bytes() == before


def test_a_torn_last_line_counts_and_other_damage_is_refused(run):
    path = run / "ledger.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"round":4,"prev')
    assert read_ledger(path).charged == 5
    path.write_bytes(whole.replace(b'"round":1', b'"round":7'))
    with pytest.raises(CorruptState, match="line 3"):
        read_ledger(path)
    path.write_bytes(b"")
    with pytest.raises(CorruptState, match="does not begin"):
        read_ledger(path)


def test_a_ledger_alone_needs_its_own_plan(run, tmp_path_factory):
    other = tmp_path_factory.mktemp("elsewhere")
    (other / "flower.jsonl").write_bytes((run / "ledger.jsonl").read_bytes())
    with pytest.raises(InvalidInput, match="--plan FILE"):
        spent_so_far(other / "flower.jsonl")
    assert spent_so_far(other / "flower.jsonl", run / "plan.json").charged == 4
    another = sk.plan(PLAN.target, dimension=16, bits=16, rounds=10, bound="rdp", cohort=sk.Cohort(50, 600))
    (other / "plan.json").write_text(another.to_json())
    with pytest.raises(InvalidInput, match="not the plan of"):
        spent_so_far(other / "flower.jsonl")
    with pytest.raises(InvalidInput, match=r"no ledger\.jsonl"):
        spent_so_far(tmp_path_factory.mktemp("empty"))


def test_nothing_is_spent_before_the_first_round(tmp_path):
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    Ledger(tmp_path / "ledger.jsonl", plan_digest=PLAN.digest(), budget=PLAN.rounds).close()
    found = spent_so_far(tmp_path)
    assert (found.report, found.to_dict()["epsilon"]) == (None, 0.0)
    assert str(found).startswith("Nothing is spent yet")


def test_the_command_prints_it(run):
    done = skelmix("account", run, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rounds_charged"], found["rounds_planned"]) == (4, 10)
    assert found["epsilon"] < found["epsilon_planned"] == PLAN.report.epsilon
    refused = skelmix("account", run, "--noise", 5)
    assert (refused.returncode, "--noise" in refused.stderr) == (2, True)
    assert skelmix("account").returncode == 2
