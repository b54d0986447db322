"""The numbers that README and docs quote are those of the tables in results/."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

from skelmix.studies.headline_numbers import Selection, full_table, headlines

ROOT = Path(__file__).parents[2]


def _filled(readme: str, results: Path) -> str:
    return str(run_path(str(ROOT / "docs/pictures/readme.py"))["filled"](readme, results))


def test_the_readme_quotes_the_tables() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "<!-- measured -->" in readme
    assert _filled(readme, ROOT / "results") == readme, "run python docs/pictures/readme.py"


def test_the_guide_for_hospitals_quotes_the_table() -> None:
    guide = (ROOT / "docs/guides/hospitals.md").read_text(encoding="utf-8")
    job = {"dataset": "mnist", "batch": 240, "rounds": 1_000}
    lines = ("gaussian-pld", "per-site", "silos", "silos-skew")
    for each in headlines(ROOT / "results", [Selection("", "", "silos", line, job) for line in lines]):
        assert f"| {each.value} ({len(each.accuracies)} seeds) |" in guide


def test_a_changed_table_changes_the_readme(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "results").glob("*.csv"):
        text = path.read_text(encoding="utf-8").replace("mnist,gaussian-pld,", "mnist,another,")
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    assert "not measured" in _filled(readme, tmp_path)
    assert _filled(readme, tmp_path) != readme


def test_a_number_names_its_seeds_and_commits(tmp_path: Path) -> None:
    (tmp_path / "toy.csv").write_text(
        "# skelmix reproduce toy\n# 2026-11-16 00:29 UTC; python 3.11\nline,epsilon,delta,seed,accuracy\n"
        "smm,3.0,1e-05,0,0.9\n"
        "# skelmix reproduce toy\n# 2026-11-16 00:30 UTC; commit abc1234; python 3.11\n"
        "smm,3.0,1e-05,1,0.92\nsmm,1.0,1e-05,1,0.5\n"
    )
    (headline,) = headlines(tmp_path, [Selection("toy data", "SMM", "toy", "smm")])
    assert headline.value == "91.00 ± 1.41"
    assert headline.commits == ("abc1234", "unknown")


def test_every_headline_has_a_row_in_the_full_table() -> None:
    assert len(full_table(ROOT / "results").rows) == len(headlines(ROOT / "results"))
