"""The ledger of a data owner: what was spent is never understated."""

import subprocess
import sys

import pytest

from skelmix.errors import BudgetExhausted, CorruptState, InvalidInput, StorageFailed
from skelmix.rounds.spending import Budget, Charge, SpendingLedger

ONE = Charge(1.0, 1e-6, "count")
BUDGET = Budget(2.5, 1e-5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "spent.jsonl"


def test_charges_add_up_over_openings(path):
    for _ in range(2):
        SpendingLedger(path).charge(ONE, BUDGET)
    assert SpendingLedger(path).charges() == (ONE, ONE)
    with pytest.raises(BudgetExhausted, match="more than is left of the budget"):
        SpendingLedger(path).charge(ONE, BUDGET)
    assert len(SpendingLedger(path).charges()) == 2


def test_a_check_writes_nothing(path):
    SpendingLedger(path).check(ONE, BUDGET)
    assert not path.exists()


def test_delta_is_a_budget_of_its_own(path):
    with pytest.raises(BudgetExhausted):
        SpendingLedger(path).charge(Charge(0.1, 1e-4, ""), BUDGET)


def test_a_budget_may_be_spent_to_the_last_bit_and_no_further(path):
    ledger = SpendingLedger(path)
    for _ in range(4):
        ledger.charge(Charge(0.25, 0.0, ""), Budget(1.0, 1e-6))
    with pytest.raises(BudgetExhausted):
        ledger.charge(Charge(1e-300, 0.0, ""), Budget(1.0, 1e-6))


@pytest.mark.parametrize("damage", ["flip", "cut", "drop", "empty", "foreign"])
def test_a_damaged_ledger_is_refused(path, damage):
    ledger = SpendingLedger(path)
    for _ in range(2):
        ledger.charge(ONE, Budget(9.0, 1e-3))
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    path.write_bytes(
        {
            "flip": data.replace(b"1.0", b"0.1", 1),
            "cut": data[:-5],
            "drop": lines[0] + lines[2],
            "empty": b"",
            "foreign": lines[1],
        }[damage]
    )
    for act in (ledger.charges, lambda: ledger.charge(ONE, BUDGET)):
        with pytest.raises(CorruptState, match="from a backup, and lower the budget by what was spent since"):
            act()


@pytest.mark.parametrize("cost", [(0.0, 0.0), (-1.0, 0.0), (float("nan"), 0.0), (1.0, -1e-9)])
def test_a_charge_is_a_cost(cost):
    with pytest.raises(InvalidInput):
        Charge(*cost, "")


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed):
        SpendingLedger(tmp_path / "file" / "spent.jsonl").charge(ONE, BUDGET)


RACE = """
import sys
from pathlib import Path
from skelmix.errors import BudgetExhausted
from skelmix.rounds.spending import Budget, Charge, SpendingLedger
done = 0
for _ in range(30):
    try:
        SpendingLedger(Path(sys.argv[1])).charge(Charge(1.0, 0.0, "race"), Budget(20.0, 1e-6))
        done += 1
    except BudgetExhausted:
        pass
print(done)
"""


def test_two_processes_do_not_spend_one_budget_twice(path):
    both = [
        subprocess.Popen([sys.executable, "-c", RACE, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    done = [int(process.communicate(timeout=120)[0]) for process in both]
    assert sum(done) == 20
    assert len(SpendingLedger(path).charges()) == 20
