"""The reports of a training run, a sum and statistics, opened in a browser.

They are drawn, true to the files, printable, and make no request.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import axe
from helpers.idx_files import idx_bytes
from skelmix.cli.main import main

pytestmark = pytest.mark.xdist_group("browser")  # one worker, one browser

PANELS = {"train": 7, "sum": 2, "stats": 5}

PLOTS = "[...document.querySelectorAll('.plot')]"
#: titles of axes that reach beyond the picture that they belong to
CUT_OFF = """[...document.querySelectorAll('.plot')].flatMap(plot => {
  const room = plot.getBoundingClientRect();
  return [...plot.querySelectorAll('.xtitle, .ytitle')].filter(title => {
    const box = title.getBoundingClientRect();
    return box.top < room.top - 1 || box.bottom > room.bottom + 1 || box.left < room.left - 1
      || box.right > room.right + 1;
  }).map(title => title.textContent);
})"""
#: values of tiles that do not fit one line
IN_MORE_LINES = """[...document.querySelectorAll('.tile strong')].filter(value => {
  const text = document.createRange();
  text.selectNodeContents(value);
  return new Set([...text.getClientRects()].map(line => line.top)).size > 1;
}).map(value => value.textContent)"""
#: tables that must be moved sideways to be read
HIDDEN = """[...document.querySelectorAll('.scroll')].filter(table => table.scrollWidth > table.clientWidth)
  .map(table => table.textContent.slice(0, 80))"""
#: per plot with several traces: their names in the order of the legend, and as they are drawn
LEGENDS = f"""{PLOTS}.filter(plot => plot.data.length > 1).map(plot =>
  [...plot.querySelectorAll('.legendtext')].map(name => name.textContent))"""
TRACES = f"{PLOTS}.filter(plot => plot.data.length > 1).map(plot => plot.data.map(trace => trace.name))"


def done(*words: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `skelmix train`, with its baseline, on a handful of random images."""
    data, place = tmp_path_factory.mktemp("images"), tmp_path_factory.mktemp("run") / "first"
    public = np.random.default_rng(0)
    for split, count in (("train", 60), ("t10k", 20)):
        images = public.integers(0, 256, (count, 4, 4)).astype("u1")
        (data / f"{split}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (data / f"{split}-labels-idx1-ubyte").write_bytes(idx_bytes((np.arange(count) % 3).astype("u1")))
    done(
        "train", "--dataset", data, "--rounds", 4, "--cohort", 30, "--epsilon", 8, "--delta", 1e-3,
        "--bits", 10, "--bound", "gdp", "--evaluate-every", 1, "--directory", place, "--diagnostics",
        "--baseline", "dpsgd", "--clip", "adaptive", "--json",
    )  # fmt: skip
    return place / "smm"


@pytest.fixture(scope="module")
def reports(run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("others")
    public = np.random.default_rng(1)
    np.savetxt(place / "rows.csv", public.random((40, 5)), delimiter=",")
    for party in "ab":
        rows = "".join(f"{public.integers(15, 95)},{public.choice(['F', 'M'])}\n" for _ in range(50))
        (place / f"{party}.csv").write_text("age,sex\n" + rows)
    done("sum", "--input", place / "rows.csv", "--clip-norm", 3, "--report", place / "sum.html", "--json")
    done(
        "stats", "--party", place / "a.csv", "--party", place / "b.csv", "--records", 100, "--ask",
        "count; sum(age, 0..110); mean(age, 0..110); histogram(age: 15..95 by 10); histogram(sex: F|M)",
        "--output", place / "stats.html", "--json",
    )  # fmt: skip
    return {"train": run / "report.html", "sum": place / "sum.html", "stats": place / "stats.html"}


def figures(page: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert found
    return list(json.loads(found[1]))


@pytest.mark.parametrize("kind", PANELS)
def test_a_report_is_drawn_without_a_request_and_prints_on_two_pages(
    kind: str, reports: dict[str, Path], tab: Any, tmp_path: Path
) -> None:
    path = reports[kind]
    assert path.stat().st_size < 5_000_000
    page = tab(path.as_uri())
    page.wait("document.documentElement.dataset.drawn === 'true'")
    drawn = "[...document.querySelectorAll('.plot')].filter(p => p.querySelector('svg.main-svg path')).length"
    assert page.run(drawn) == PANELS[kind]
    named = "[...document.querySelectorAll('.plot')].every(p => p.querySelector('.xtitle, .ytitle'))"
    assert page.run(named), "a plot has no axis title"
    assert page.run("document.querySelector('.left-out h2').textContent") == "Not covered"
    assert page.run("document.querySelector('details').open") is False
    for width in (1280, 390):
        page.look(width=width)
        assert page.run("document.documentElement.scrollWidth <= innerWidth"), f"sticks out at {width}"
        page.run("Promise.all(PLOTS.map(p => Plotly.Plots.resize(p))).then(() => 0)".replace("PLOTS", PLOTS))
        assert page.run(CUT_OFF) == [], f"titles of axes are cut off at {width}"
        assert page.run(IN_MORE_LINES) == [], f"values of tiles are broken at {width}"
        assert page.run(LEGENDS) == page.run(TRACES), "a legend is in another order than what it explains"
        assert page.run(HIDDEN) == [], f"columns of tables are out of sight at {width}"
    assert set(page.requests) == {path.as_uri()}
    assert page.errors == []
    if shutil.which("pdfinfo") is None:
        pytest.skip("pdfinfo is not installed: apt-get install poppler-utils counts the printed pages")
    page.look(width=1280)
    page.pdf(tmp_path / "printed.pdf")
    shown = subprocess.run(["pdfinfo", tmp_path / "printed.pdf"], capture_output=True, text=True, check=True)
    assert int(re.search(r"Pages:\s+(\d+)", shown.stdout)[1]) <= 2  # type: ignore[index]


def test_error_bars_are_dark_on_paper_even_from_a_dark_page(reports: dict[str, Path], tab: Any) -> None:
    page = tab(reports["stats"].as_uri())
    page.wait("document.documentElement.dataset.drawn === 'true'")
    bars = "[...document.querySelectorAll('.xerror, .yerror')]"
    strokes = f"[...new Set({bars}.map(bar => getComputedStyle(bar).stroke))]"
    page.look(width=1280, dark=True)
    page.wait(f"{strokes}.join() === 'rgb(233, 236, 240)'")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.command("Emulation.setEmulatedMedia", media="print", features=dark)
    assert page.run(strokes) == ["rgb(17, 17, 17)"]


def test_numbers_are_those_of_the_files(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    privacy = json.loads((run / "privacy.json").read_text())
    config = json.loads((run / "config.json").read_text())
    plan = json.loads((run / "plan.json").read_text())
    table = dict(re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td></tr>', page))
    shown = {unescape(name): unescape(re.sub("<.*?>", "", value)) for name, value in table.items()}
    for name, value in config.items():
        assert shown[name] == str(value), name
    for name in ("bits", "scale", "clip_norm", "total_noise", "dimension"):
        assert float(shown[name]) == plan["mechanism"][name], name
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    drawn = {figure["y"]: figure["data"] for figure in figures(page)}
    accuracy, baseline = drawn["accuracy (fraction correct)"]
    assert accuracy["y"] == [float(row["accuracy"]) for row in rows]
    with (run.parent / "gaussian" / "metrics.csv").open() as file:
        assert baseline["y"] == [float(row["accuracy"]) for row in csv.DictReader(file)]
    (spent,) = drawn["ε for observers (upper bound)"]
    assert spent["y"] == [float(row["epsilon"]) for row in rows]
    assert spent["y"][-1] == privacy["epsilon"]
    tile = re.search(r"<dt>accuracy</dt><dd><strong>(.*?)%</strong>", page)
    assert tile
    assert float(tile[1]) == pytest.approx(100 * float(rows[-1]["accuracy"]), abs=5e-3)


def test_terminal_and_report_state_the_same_facts(run: Path) -> None:
    page = unescape(re.sub("<.*?>", " ", (run / "report.html").read_text(encoding="utf-8")))
    statement = json.loads((run / "privacy.json").read_text())["statement"]
    shown, said = " ".join(page.split()), re.sub(r"[()]", "", " ".join(statement.split()))
    for words in re.findall(
        r"ε for the aggregator \S+|opens a sum only with [^:]+: at least \d+|SIMULATED: [^;]+", said
    ):
        assert words in re.sub(r"[()]", "", shown)


@pytest.mark.parametrize("kind", PANELS)
def test_axe_finds_no_serious_violation(kind: str, reports: dict[str, Path], tab: Any) -> None:
    page = tab(reports[kind].as_uri())
    page.wait("document.documentElement.dataset.drawn === 'true'")
    page.run("document.querySelector('details').open = true")
    for dark in (False, True):
        page.look(width=1280, dark=dark)
        assert axe.violations(page) == []


@pytest.mark.parametrize("kind", PANELS)
def test_a_report_forbids_every_request(kind: str, reports: dict[str, Path]) -> None:
    page = reports[kind].read_text(encoding="utf-8")
    assert "Content-Security-Policy\" content=\"default-src 'none'" in page
    assert re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="', page) == []
