"""What is published: a wheel and a source archive with the right contents, and a wheel that works alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path
from runpy import run_path

import pytest

import skelmix

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with both archives, built from this tree by the tools at hand."""
    for tool in ("build", "hatchling"):
        pytest.importorskip(tool, reason="pip install 'skelmix[dev]'")
    place = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    return place


def only(place: Path, pattern: str) -> Path:
    (path,) = place.glob(pattern)
    return path


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    names = zipfile.ZipFile(only(built, "*.whl")).namelist()
    roots = {name.split("/")[0] for name in names}
    assert roots == {"skelmix", f"skelmix-{skelmix.__version__}.dist-info"}
    assert {"skelmix/py.typed", "skelmix/studies/benchmarks/flower_app/pyproject.toml"} <= set(names)


def test_the_metadata_names_version_authors_and_pythons(built: Path) -> None:
    with zipfile.ZipFile(only(built, "*.whl")) as wheel:
        text = wheel.read(f"skelmix-{skelmix.__version__}.dist-info/METADATA").decode()
    found = Parser().parsestr(text)
    assert found["Version"] == skelmix.__version__
    assert found["Author"] or found["Author-email"]
    addresses = re.findall(r"\]\(([^)]*)\)", found.get_payload())
    assert [where for where in addresses if not where.startswith("https://")] == [], (
        "an index shows this text"
    )
    assert "distributed" in found["Summary"].lower()
    assert "# skelmix" in found.get_payload()
    pythons = {line.rpartition(" ")[2] for line in found.get_all("Classifier", []) if "Python :: 3." in line}
    assert pythons == {"3.11", "3.12", "3.13"}


def test_a_readme_for_an_index_leads_to_the_repository_or_nowhere() -> None:
    for_an_index = run_path(str(ROOT / "hatch_build.py"))["for_an_index"]
    rest = "[paper](https://example.org/p) [up](#top)\n"
    text = f"a\n\n![bits](results/rate.png)\n\n[docs](docs/index.md), {rest}"
    assert for_an_index(text, None) == f"a\n\ndocs, {rest}"
    assert for_an_index(text, "https://example.org/skelmix/") == (
        "a\n\n![bits](https://example.org/skelmix/raw/HEAD/results/rate.png)\n\n"
        f"[docs](https://example.org/skelmix/blob/HEAD/docs/index.md), {rest}"
    )


def test_every_address_in_the_readme_leads_to_a_file() -> None:
    addresses = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(addresses) >= 2
    assert [where for where in addresses if not (ROOT / where).exists()] == []


def test_the_source_archive_has_neither_results_nor_corpora(built: Path) -> None:
    with tarfile.open(only(built, "*.tar.gz")) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"pyproject.toml", "LICENSE", "CITATION.cff", "src/skelmix/__init__.py"} <= set(names)
    assert [name for name in names if name.startswith(("results", "runs", "tests/fuzz/corpus"))] == []


@pytest.mark.slow  # installs torch
def test_the_wheel_trains_and_its_doctests_hold_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    outside = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    outside["PIP_CONSTRAINT"] = str(ROOT / "constraints.txt")

    def run(*words: str) -> str:
        done = subprocess.run(
            [str(python), *words], cwd=tmp_path, env=outside, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
        return done.stdout

    run("-m", "pip", "install", "--quiet", f"{only(built, '*.whl')}[torch,plot]")
    assert str(tmp_path) in run("-c", "import skelmix; print(skelmix.__file__)")
    run("-m", "skelmix", "train", "--rounds", "5", "--json")
    modules = ("planning.planner", "planning.plans", "rounds.summation", "rounds.ledger", "federated.trainer")
    for module in modules:
        code = f"import doctest, skelmix.{module} as m; r = doctest.testmod(m); print(r.attempted, r.failed)"
        attempted, failed = map(int, run("-c", code).split()[-2:])
        assert (attempted > 0, failed) == (True, 0), module
