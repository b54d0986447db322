"""Verdicts on low rates follow the numbers; the picture is drawn from whatever rows there are."""

from pathlib import Path
from typing import Any

from skelmix.studies import rate, training
from skelmix.studies.rows import ResultFile, key
from skelmix.studies.study import run


def _rows(lost: float = 0.0) -> list[dict[str, Any]]:
    """A row for every cell; `lost` points more than is allowed at each rate."""
    rows = []
    for cell in rate.cells(False, None):
        accuracy = {"gaussian-pld": 92.0, "smm-auto": 90.0, "smm-paper": 88.8}.get(cell["line"])
        if accuracy is None:
            accuracy = 92.0 - rate.MOST_LOST.get(cell["rate"], 0.1) - lost
        measured = {"accuracy": accuracy / 100 + cell["seed"] / 1e5, "sent_bits": 8, "upload_bytes": 8}
        rows.append(dict.fromkeys(rate.MEASURES) | cell | measured | {"coordinates": 8})
    return rows


def test_claims_hold_at_the_bars_and_fail_beyond():
    assert all(claim.holds for claim in rate.claims(_rows(-1e-6)))
    verdicts = [claim.holds for claim in rate.claims(_rows(0.01))]
    assert verdicts[: len(rate.MOST_LOST)] == [False] * len(rate.MOST_LOST)
    below_dense = [claim.holds for claim in rate.claims(_rows(2.0))]
    assert not any(below_dense[:-1])
    assert all(claim.holds is None for claim in rate.claims([]))


def test_a_gap_within_two_standard_errors_is_not_called_worse():
    def verdict(*gaps: float) -> bool | None:
        rows = [row for row in _rows() if row["line"] in ("smm-rate", "smm-auto")]
        for row in rows:
            dense = row["line"] == "smm-auto"
            row["accuracy"] = 0.9 if dense else 0.9 + gaps[row["seed"]] / 100
        return next(c.holds for c in rate.claims(rows) if "dense SMM" in c.text)

    assert verdict(0.3, -0.3, -0.03)
    assert not verdict(-0.3, -0.31, -0.29)


def test_only_seeds_that_both_lines_have_are_compared():
    rows = [row for row in _rows() if row["line"] == "smm-rate" or row["seed"] == 1]
    rows = [row for row in rows if row["line"] != "smm-rate" or row["seed"] != 1]
    assert all(claim.holds is None for claim in rate.claims(rows))


def test_tables_and_picture(tmp_path: Path):
    titles = [grid.title for grid in rate.tables(_rows())]
    assert len(titles) == 4
    assert all(path.stat().st_size > 1000 for path in rate.draw(_rows()[:5], tmp_path / "rate"))


def test_points_lost_are_given_to_a_hundredth():
    rows = _rows(-1e-13)  # float64 leaves as much of a difference of equal means
    for row in rows:
        if row["line"] == "smm-rate" and row["rate"] == 8.0:
            row["accuracy"] += 0.1 / 100
    lost = {row[0]: row[5] for row in rate.tables(rows)[0].rows}
    assert lost["8"] == "0.00"
    assert lost["0.5"] == "0.40"


def test_rows_of_the_figures_are_borrowed(tmp_path: Path):
    wanted = [cell | {"revision": 1} for cell in rate.cells(True, None)]
    central = [cell for cell in wanted if cell["line"] == "gaussian-pld"]
    settings = ("revision", *training.SETTINGS)
    with ResultFile(tmp_path / "figure2-quick.csv", settings, training.MEASURES) as file:
        file.announce("test")
        file.append(central[0] | {"accuracy": 0.5})
    rated = [cell for cell in wanted if cell["line"] != "gaussian-pld"]
    with ResultFile(tmp_path / "rate-quick.csv", ("revision", *rate.STUDY.settings), rate.MEASURES) as file:
        file.announce("test")
        for cell in rated:
            file.append(cell | {"accuracy": 0.4, "sent_bits": 8, "coordinates": 8, "upload_bytes": 8})
    outcome = run(rate.STUDY, tmp_path, command="test", quick=True, workers=0)
    assert outcome.missing == 0
    found = {key(row, rate.STUDY.settings): row["accuracy"] for row in outcome.rows}
    assert sorted(found.values()) == [0.4, 0.4, 0.5]
