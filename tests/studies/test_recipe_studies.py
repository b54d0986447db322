"""Verdicts on recipes, and on accuracy against the aggregator's ε, follow the numbers."""

from pathlib import Path

import pytest

import skelmix as sk
from skelmix.studies import aggregator, recipes
from skelmix.studies.headline_numbers import Selection, headlines

RESULTS = Path(__file__).parents[2] / "results"


def recipe_rows(gap=0.1, **accuracies):
    """Rows that fit every claim; participants and silos are `gap` points below central noise."""
    central = {"mnist": 98.6, "fashion-mnist": 89.5, "cifar-10": 64.0} | accuracies
    rows = []
    for cell in recipes.cells(False, None):
        row = dict.fromkeys(recipes.MEASURES) | cell
        if cell["dataset"] == recipes.TEXT:
            row["perplexity"] = 12.0
        else:
            below = 0 if cell["line"] == "central" else gap
            row["accuracy"] = (central[cell["dataset"]] - below) / 100
        rows.append(row)
    return rows


def test_the_most_valuable_cells_come_first_and_none_comes_twice():
    cells = recipes.cells(False, None)
    first = cells[:27]
    assert {cell["dataset"] for cell in first} == set(recipes.IMAGES)
    assert {cell["line"] for cell in first} == {"central", "participants", "silos"}
    assert {cell["epsilon"] for cell in first} == {3.0}
    assert len({tuple(cell.values()) for cell in cells}) == len(cells) == 3 * 3 * 3 * 5 + 3 * 4
    assert len(recipes.cells(True, None)) == 3


def test_all_claims_hold_on_numbers_made_to_fit():
    assert [claim.holds for claim in recipes.claims(recipe_rows())] == [True] * 12


@pytest.mark.parametrize(
    ("changes", "broken"),
    [({"gap": 0.31, "mnist": 98.8}, [1, 3, 5, 7, 9, 11]), ({"mnist": 98.3}, [0, 2])],
)
def test_a_claim_breaks_by_its_own_number(changes, broken):
    claims = recipes.claims(recipe_rows(**changes))
    assert [place for place, claim in enumerate(claims) if not claim.holds] == broken


def test_recipes_are_compared_with_central_noise_seed_by_seed():
    rows = [row for row in recipe_rows() if row["line"] != "central" or row["seed"] > 0]
    rows = [row for row in rows if row["line"] == "central" or row["seed"] == 0]
    claims = recipes.claims(rows)
    assert [claim.holds for claim in claims] == [True, None] * 6


def test_pictures_and_tables_are_made_of_some_rows(tmp_path):
    pytest.importorskip("matplotlib")
    rows = recipe_rows()[:8]
    assert all(path.exists() for path in recipes.draw(rows, tmp_path / "recipes"))
    grids = recipes.tables(rows)
    assert "98.50" in grids[0].rows[1][2]
    assert [claim.holds for claim in recipes.claims([])] == [None] * 12
    assert recipes.tables([]) == []


def aggregator_rows(accuracy=0.985, upload=1e5):
    return [
        dict.fromkeys(aggregator.MEASURES) | cell | {"accuracy": accuracy, "upload_bytes": upload}
        for cell in aggregator.cells(False, None)
    ]


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({}, [True, True, True]),
        ({"accuracy": 0.975}, [True, False, True]),
        ({"accuracy": 0.965}, [False, False, True]),
        ({"upload": 3e5}, [True, True, False]),
        ({"upload": 2.5e5}, [True, True, False]),  # below the paper's 262,144, but for keys and shares
    ],
)
def test_verdicts_on_the_aggregators_epsilon_follow_the_numbers(changes, verdicts):
    assert [claim.holds for claim in aggregator.claims(aggregator_rows(**changes))] == verdicts


def test_the_papers_job_is_stated_as_it_is_planned_and_measured():
    epsilon, accuracy = aggregator.PAPERS_JOB
    target = sk.PrivacyTarget(3.0, aggregator.DELTA)
    job = {"dimension": 63_610, "bits": 8, "scale": 64.0, "rounds": 1_000, "bound": "paper"}
    plan = sk.plan(target, cohort=sk.Cohort(240, 60_000), alignment=0.02, **job)
    assert plan.report.epsilon_aggregator == pytest.approx(epsilon, abs=0.05)
    (measured,) = headlines(
        RESULTS, [Selection("", "", "rate", "smm-paper", {"dataset": "mnist", "bits": 8})]
    )
    assert measured.mean == pytest.approx(accuracy, abs=0.05)


def test_the_aggregators_study_claims_nothing_without_rows(tmp_path):
    assert [claim.holds for claim in aggregator.claims([])] == [None, None, None]
    pytest.importorskip("matplotlib")
    assert all(path.exists() for path in aggregator.draw(aggregator_rows()[:2], tmp_path / "aggregator"))
    assert "kB" in aggregator.tables(aggregator_rows())[0].rows[0][-1]
