"""One cell of the sum experiments, small: measured as predicted, and repeatable."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skelmix.cli.options import build_plan
from skelmix.studies import compare, figure4, sum_rows, sums, table1
from skelmix.studies.study import run

SMALL: dict[str, Any] = {
    "delta": 1e-5,
    "participants": 20,
    "dimension": 2048,
    "radius": 1.0,
    "repetitions": 2,
}


@pytest.mark.parametrize("line", ["gaussian-rdp", "smm-paper", "skellam", "dgm-paper-integer"])
def test_what_is_measured_was_predicted(line: str) -> None:
    bits, scale = (None, None) if line.startswith("gaussian") else (18, 64.0)
    row = sums.measure(sums.cell(line, bits, scale, 3.0, **SMALL))
    assert set(row) <= set(sums.MEASURES)
    deviation = math.sqrt(2 / (2048 * 2))
    assert row["ratio"] == pytest.approx(1.0, abs=6 * deviation)
    assert row["wrapped_fraction"] == 0


def test_a_cell_repeats_to_the_last_digit() -> None:
    cell = sums.cell("smm-paper", 12, 16.0, 2.0, **SMALL)
    assert sums.measure(cell) == sums.measure(cell)
    assert sums.measure(cell)["mse"] != sums.measure({**cell, "epsilon": 2.0000001})["mse"]


def test_the_papers_clip_shrinks_the_sum_and_the_column_says_so() -> None:
    kept = [
        sums.measure(sums.cell("smm-paper", 18, scale, 3.0, **SMALL))["kept_length"] for scale in (4.0, 512.0)
    ]
    assert kept[0] < 0.15
    assert 0.97 < kept[1] <= 1


def test_an_integer_sigma_is_an_integer_and_more_noise() -> None:
    plain, whole = (
        sums.measure(sums.cell(line, 10, 4.0, 3.0, **SMALL)) for line in ("dgm-paper", "dgm-paper-integer")
    )
    assert whole["noise"] == math.ceil(plain["noise"])
    assert whole["predicted_mse"] > plain["predicted_mse"]


def test_points_lie_on_the_sphere() -> None:
    points = sums.sphere(7, 33, 1)
    assert points.shape == (7, 33)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-12)


def test_a_sum_study_from_end_to_end(tmp_path: Path) -> None:
    from dataclasses import replace

    cells = [
        sums.cell("gaussian-rdp", None, None, 3.0, **SMALL),
        sums.cell("smm-paper", 10, 4.0, 3.0, **SMALL),
    ]
    study = replace(figure4.STUDY, cells=lambda quick, seeds: cells)
    outcome = run(study, tmp_path, command="a test", workers=0)
    assert [path.suffix for path in outcome.figures] == [".png", ".svg"]
    assert "The paper's clip leaves of the true sum's length" in outcome.report.read_text()
    assert sum_rows.tables(outcome.rows)[0].title == "mse per coordinate, m = 2^10, γ = 4"


def test_prediction_is_told_for_mixtures_and_others_apart() -> None:
    lines = [("smm-tight", 1.01), ("dgm-paper", 0.98), ("ddg", 0.9), ("gaussian-rdp", 0.5)]
    rows = [{"line": line, "ratio": ratio, "kept_length": None} for line, ratio in lines]
    sentence = "0.980 to 1.010 over 2 rows of the mixtures; 0.900 to 0.900 over 1 rows of the other"
    assert sentence in sum_rows.words(rows)[0]
    assert sum_rows.words(rows[3:]) == []


def test_error_against_the_rate_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "LINES", {"smm-paper": ("smm", "paper"), "ddg": ("ddg", "paper")})
    path = tmp_path / "rates.png"
    settings: dict[str, Any] = dict(
        epsilon=3.0, delta=1e-5, dimension=1024, clip_norm=1.0, cohort=50, population=None, rounds=1,
        bound="paper", scale=16.0, dropout_tolerance=0.0, colluding=0, sampling="none", alignment=1.0,
    )  # fmt: skip
    compare.plot_error_against_rate(path, build_plan, rates=(0.5, 4.0, 16.0), **settings)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_floating_point_discrete_gaussian_has_its_variance() -> None:
    drawn = table1.float_discrete_gaussian(4.0, 100_000, np.random.default_rng(1))
    assert drawn.shape == (100_000,)
    assert np.var(drawn) == pytest.approx(4.0, rel=0.04)


def test_table1_measures_every_sampler() -> None:
    row = table1.measure({"variance": 4, "samples": 50, "repetitions": 1})
    assert set(row) == set(table1.SAMPLERS)
    assert all(seconds > 0 for seconds in row.values())
