"""The report of a training run, opened in a browser: its plots are drawn, its numbers are those of the
files."""

from __future__ import annotations

import csv
import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from helpers import browser
from helpers.idx_files import idx_bytes

PANELS = 6


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `skelmix train` on a handful of random images."""
    from skelmix.cli.main import main

    data, place = tmp_path_factory.mktemp("images"), tmp_path_factory.mktemp("run") / "first"
    public = np.random.default_rng(0)
    for split, count in (("train", 60), ("t10k", 20)):
        images = public.integers(0, 256, (count, 4, 4)).astype("u1")
        (data / f"{split}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (data / f"{split}-labels-idx1-ubyte").write_bytes(idx_bytes((np.arange(count) % 3).astype("u1")))
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "train", "--dataset", str(data), "--rounds", "4", "--cohort", "30", "--epsilon", "8",
                "--delta", "1e-3", "--bits", "10", "--bound", "gdp", "--evaluate-every", "1",
                "--directory", str(place), "--diagnostics", "--json",
            ]
        )  # fmt: skip
    assert ended.value.code == 0
    return place


def test_plots_are_drawn(run: Path) -> None:
    dom = browser.dom((run / "report.html").as_uri())
    panels = re.split(r'<div id="figure\d+"', dom)[1:]
    assert len(panels) == PANELS
    for place, panel in enumerate(panels):
        assert 'class="main-svg"' in panel, f"figure{place} is not drawn"
        drawn = re.findall(r'<path class="js-line"[^>]*\bd="(M[^"]+)"', panel)
        lines = [path for path in drawn if "L" in path]  # the samples in a legend are h30
        assert len(lines) == (2 if place == PANELS - 1 else 1), f"figure{place} lacks a line"


def test_numbers_are_those_of_the_files(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    privacy = json.loads((run / "privacy.json").read_text())
    config = json.loads((run / "config.json").read_text())
    plan = json.loads((run / "plan.json").read_text())
    assert unescape(re.search(r"<pre>(.*?)</pre>", page, re.DOTALL)[1]) == privacy["statement"]  # type: ignore[index]
    table = dict(re.findall(r"<tr><th>(.*?)</th><td>(.*?)</td></tr>", page))
    shown = {unescape(name): unescape(value) for name, value in table.items()}
    for name, value in config.items():
        assert shown[name] == str(value), name
    for name in ("bits", "scale", "clip_norm", "total_noise", "dimension"):
        assert float(shown[name]) == plan["mechanism"][name], name
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    figures = [json.loads(text) for text in re.findall(r"Plotly\.newPlot\([^)]*\)\)\((.*?)\)</script>", page)]
    drawn = {layout["title"]["text"]: data[0] for data, layout in figures}
    assert len(drawn) == PANELS
    assert drawn["Test accuracy"]["y"] == [float(row["accuracy"]) for row in rows]
    spent = drawn["ε spent (upper bound)"]["y"]
    assert spent == [float(row["epsilon"]) for row in rows]
    assert spent[-1] == privacy["epsilon"]
    assert float(shown["accuracy"]) == pytest.approx(float(rows[-1]["accuracy"]), abs=5e-5)


def test_the_report_needs_no_network(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="', page) == []
