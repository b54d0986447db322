"""The numbers that README and docs quote are those of the tables in results/."""

from __future__ import annotations

import re
from pathlib import Path
from runpy import run_path

import skelmix as sk
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


def test_only_the_latest_revision_counts(tmp_path: Path) -> None:
    (tmp_path / "toy.csv").write_text(
        "revision,line,epsilon,delta,seed,accuracy\n1,smm,3.0,1e-05,0,0.5\n2,smm,3.0,1e-05,0,0.9\n"
    )
    (headline,) = headlines(tmp_path, [Selection("toy data", "SMM", "toy", "smm")])
    assert headline.accuracies == (90.0,)


def test_every_headline_number_has_two_seeds_and_commits() -> None:
    for each in headlines(ROOT / "results"):
        assert len(each.accuracies) >= 2, each.selection
        assert each.commits, each.selection


def test_the_page_has_every_accuracy_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    quoted = set(re.findall(r"\d\d\.\d\d ± \d\.\d\d", readme))
    assert quoted
    assert quoted <= {row[1] for row in full_table(ROOT / "results").rows}


def test_the_readme_quotes_the_plan_that_it_names() -> None:
    plan = sk.plan(
        sk.PrivacyTarget(3.0, 1e-5),
        dimension=63_610,
        bits=8,
        rounds=1_000,
        cohort=sk.Cohort(expected=240, population=60_000),
    )
    predicted, central = plan.predicted, plan.central_gaussian_mse
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "--epsilon 3 --dimension 63610 --bits 8 --cohort 240 --population 60000 --rounds 1000" in readme
    assert f"the two are 3 and {plan.report.epsilon_aggregator:.2f}\n" in readme
    error, noise = predicted.effective_mse / central, predicted.noise / central
    assert f"{error:.3f} times the squared error, and {noise:.3f} times the noise" in readme
