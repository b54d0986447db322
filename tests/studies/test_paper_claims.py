"""The verdicts follow the numbers: synthetic rows in, known verdicts out."""

from typing import Any

import pytest

from skelmix.studies import figure1, figure4, sums, table1
from skelmix.studies.verdicts import judged

#: a made-up mse by line, at every panel and ε, with which every claim of Figure 1 would hold at few bits
FEW = {
    "smm-paper": 1.2,
    "skellam": 50.0,
    "ddg": 49.0,
    "cpsgd": 1e5,
    "smm-tight": 1.05,
    "smm-auto": 1.0,
    "dgm-paper": 1.3,
}
MANY = FEW | {"skellam": 1.01, "ddg": 1.0}


def _rows(bend: Any = lambda row: None) -> list[dict[str, Any]]:
    rows = []
    for cell in figure1.cells(False, None):
        few = cell["bits"] is not None and cell["bits"] <= 14
        mse = 1.0 if cell["bits"] is None else (FEW if few else MANY)[cell["line"]]
        row = dict.fromkeys(sums.MEASURES) | cell
        rows.append(row | {"mse": mse, "ratio": 1.0, "scale": cell["asked_scale"] or 1.0, "kept_length": 1.0})
        bend(rows[-1])
        rows[-1]["predicted_noise"] = rows[-1]["mse"]
    return rows


def _verdicts(rows: list[dict[str, Any]]) -> list[bool | None]:
    return [claim.holds for claim in figure1.claims(rows)]


def test_all_claims_hold_on_numbers_made_to_fit() -> None:
    assert _verdicts(_rows()) == [True] * 11


@pytest.mark.parametrize(
    ("line", "bits", "factor", "broken"),
    [
        ("smm-paper", 14, 60.0, {0}),
        ("smm-paper", 18, 2.0, {2}),
        ("skellam", 12, 1.3, {4}),
        ("cpsgd", 16, 0.01, {5, 6}),
        ("smm-auto", 10, 1.04, {7}),
        ("smm-tight", 10, 1.2, {8, 9}),
    ],
)
def test_one_number_out_of_line_breaks_just_its_claims(
    line: str, bits: int, factor: float, broken: set[int]
) -> None:
    def bend(row: dict[str, Any]) -> None:
        if (row["line"], row["bits"], row["epsilon"]) == (line, bits, 2.0):
            row["mse"] *= factor

    verdicts = _verdicts(_rows(bend))
    assert {place for place, verdict in enumerate(verdicts) if verdict is False} == broken


def test_a_wrong_prediction_of_a_mixture_is_told() -> None:
    def bend(row: dict[str, Any]) -> None:
        if row["line"] == "smm-paper" and row["bits"] == 10:
            row["ratio"] = 1.04

    assert _verdicts(_rows(bend))[-1] is False


def test_without_rows_nothing_is_judged() -> None:
    assert set(_verdicts([])) == {None}
    assert {claim.holds for claim in figure4.claims([])} == {None}
    assert {claim.holds for claim in table1.claims([])} == {None}


def test_an_integer_sigma_that_changes_within_a_group_is_told() -> None:
    def row(epsilon: float, sigma: float) -> dict[str, Any]:
        base = dict.fromkeys((*sums.SETTINGS, *sums.MEASURES))
        return base | {
            "line": "dgm-paper-integer",
            "bits": 10,
            "asked_scale": 4.0,
            "epsilon": epsilon,
            "noise": sigma,
        }

    same = [row(1.0, 2.0), row(2.0, 2.0), row(3.0, 1.0), row(4.0, 1.0), row(5.0, 1.0)]
    assert figure4.claims(same)[2].holds is True
    assert figure4.claims([*same[:1], row(2.0, 1.0), *same[2:]])[2].holds is False


def test_a_judged_claim_tells_range_and_breakers() -> None:
    claim = judged("x", "y", [("a", 1.0, True), ("b", 3.0, False)], "number")
    assert claim.numbers == "number: 1 to 3 over 2 cases; broken in 1: b: 3"
    assert claim.verdict == "does not hold"


def test_the_paper_has_ten_panels_and_every_line_in_each() -> None:
    cells = figure1.cells(False, None)
    panels = {(cell["bits"], cell["asked_scale"]) for cell in cells if cell["asked_scale"]}
    assert len(panels) == 10
    assert len(cells) == 10 + 25 + 10 * 5 * 6
    assert len({tuple(cell.items()) for cell in cells}) == len(cells)
