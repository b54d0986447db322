"""Verdicts on silos follow the numbers."""

import pytest

from skelmix.studies import silos

FITTING = {"gaussian-pld": 0.92, "silos": 0.919, "silos-skew": 0.9175, "per-site": 0.90}
ERRORS = {"gaussian-pld": None, "silos": 0.4, "silos-skew": 0.4, "per-site": 4.1}


def rows(**changes):
    found = []
    for cell in silos.cells(False, None):
        line = cell["line"]
        row = dict.fromkeys(silos.MEASURES) | cell | {"accuracy": FITTING[line], "mse": ERRORS[line]}
        row |= {
            "predicted_mse": 4.0 if line == "per-site" else 0.4,
            "epsilon_observers": 2.99,
            "epsilon_aggregator": 2.99,
        }
        found.append(row | (changes if line == "silos" else {}))
    return found


def test_all_claims_hold_on_numbers_made_to_fit():
    assert len(rows()) == 12
    assert [claim.holds for claim in silos.claims(rows())] == [True, True, True]


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"accuracy": 0.916}, 0),
        ({"epsilon_aggregator": 3.5}, 1),
        ({"epsilon_aggregator": 3.5, "epsilon_observers": 3.5}, 1),
        ({"mse": 0.42}, 2),
    ],
)
def test_each_claim_breaks_by_its_own_number(changes, broken):
    verdicts = [claim.holds for claim in silos.claims(rows(**changes))]
    assert verdicts == [place != broken for place in range(3)]


def test_nothing_is_claimed_without_rows_and_pictures_are_drawn_from_some(tmp_path):
    assert [claim.holds for claim in silos.claims([])] == [None, None, None]
    pytest.importorskip("matplotlib")
    assert all(path.exists() for path in silos.draw(rows()[:2], tmp_path / "silos"))
    assert len(silos.tables(rows())[0].rows) == 4
