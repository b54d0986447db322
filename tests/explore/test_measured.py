"""The measured points that the page draws are those of the results."""

from importlib.resources import files
from pathlib import Path

import pytest

from skelmix.studies.measured import text

RESULTS = Path(__file__).parents[2] / "results"


def test_the_file_agrees_with_the_results():
    if not (RESULTS / "rate.csv").exists():
        pytest.skip("results/ is not part of the source distribution")
    kept = files("skelmix.explore").joinpath("measured.json").read_text(encoding="utf-8")
    assert kept == text(RESULTS), (
        "make it anew: python -m skelmix.studies.measured results src/skelmix/explore/measured.json"
    )


def test_without_results_there_is_nothing_to_draw(tmp_path):
    assert text(tmp_path) == "[]\n"
