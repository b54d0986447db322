"""Takes the documentation's pictures of pages: `python docs/pictures/screens.py`, on a machine at rest.

It makes the reports of a training run on MNIST, a sum and statistics, starts `skelmix explore`, looks at all
of them in headless Chromium, and writes docs/assets/. `--all DIRECTORY` writes instead every page at desktop
and phone width, light and dark, and each report as it is printed: to be looked at.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"
sys.path.insert(0, str(ROOT / "tests"))

from helpers import cdp  # noqa: E402  (the browser that the tests use)

DRAWN = "document.documentElement.dataset.drawn === 'true'"
CHARTED = (
    "document.body.dataset.charted == question && document.querySelector('#accuracy .main-svg') !== null"
)
WIDTHS = {"desktop": 1280, "phone": 390}


def skelmix(*words: object) -> None:
    """Run a command, and stop where it fails."""
    command = [sys.executable, "-m", "skelmix", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def make_reports(place: Path) -> dict[str, Path]:
    """The three reports, each of a small but real run; random records have fixed seeds."""
    skelmix(
        "train", "--dataset", "mnist", "--rounds", 60, "--cohort", 240, "--epsilon", 3, "--delta", 1e-5,
        "--rate", 2, "--evaluate-every", 3, "--diagnostics", "--baseline", "dpsgd", "--directory", place / "run",
    )  # fmt: skip
    public = np.random.default_rng(0)
    names = ["age", "height", "weight", "pulse", "steps", "sleep"]
    rows = public.random((400, len(names))) * np.linspace(0.2, 0.5, len(names))
    np.savetxt(place / "rows.csv", rows, delimiter=",", header=",".join(names), comments="")
    skelmix(
        "sum", "--input", place / "rows.csv", "--header", "--clip-norm", 1, "--report", place / "sum.html"
    )
    parties = []
    for party in ("north", "south", "west"):
        path = place / f"{party}.csv"
        people = zip(public.integers(18, 95, 400), public.choice(["F", "M"], 400), strict=True)
        path.write_text("age,sex\n" + "".join(f"{age},{sex}\n" for age, sex in people))
        parties += ["--party", path]
    skelmix(
        "stats", *parties, "--records", 1_200, "--ask",
        "count; mean(age, 0..110); histogram(age: 15..95 by 10); histogram(sex: F|M)",
        "--output", place / "stats.html",
    )  # fmt: skip
    train = next((place / "run").rglob("smm/report.html"))
    return {"train": train, "sum": place / "sum.html", "stats": place / "stats.html"}


def look(tab: Any, path: Path, width: int, *, dark: bool = False, height: int | None = None) -> None:
    """The page's picture: the whole of it, or its first `height` pixels."""
    tab.command("Emulation.setScrollbarsHidden", hidden=True)
    tab.look(width=width, dark=dark)
    whole = tab.run("document.documentElement.scrollHeight")
    tab.look(width=width, height=min(height or whole, whole), dark=dark)
    tab.run("new Promise(done => setTimeout(done, 600))")  # plots follow the new width
    tab.screenshot(path, whole=False)
    with Image.open(path) as shot:  # 256 colours: a third of the size
        small = shot.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def explored(open_tab: Any) -> tuple[subprocess.Popen[str], Any]:
    """The running server, and a tab whose chart is complete."""
    command = [sys.executable, "-m", "skelmix", "explore", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        tab = open_tab(process.stdout.readline().strip())
        tab.wait(CHARTED, seconds=600)
        tab.run("at('said').textContent = ''")  # how long this machine took is of no interest
    except BaseException:
        process.terminate()
        raise
    return process, tab


def take(reports: dict[str, Path], everything: Path | None) -> None:
    with cdp.browser() as open_tab:
        process, tab = explored(open_tab)
        try:
            if everything is None:
                look(tab, ASSETS / "explore.png", 1280, height=1400)
                look(tab, ASSETS / "explore-phone.png", 390, dark=True, height=2300)
            else:
                look_at_all(tab, everything, "explore")
        finally:
            process.terminate()
            process.wait(30)
        for name, path in reports.items():
            tab = open_tab(path.as_uri())
            tab.wait(DRAWN)
            if everything is not None:
                look_at_all(tab, everything, name)
                tab.look(width=1280)
                tab.pdf(everything / f"{name}.pdf")
            elif name == "train":
                look(tab, ASSETS / "report.png", 1280)
                look(tab, ASSETS / "report-phone.png", 390, dark=True, height=2300)


def look_at_all(tab: Any, place: Path, name: str) -> None:
    for size, width in WIDTHS.items():
        for dark in (False, True):
            look(tab, place / f"{name}-{size}-{'dark' if dark else 'light'}.png", width, dark=dark)


if __name__ == "__main__":
    everything = Path(sys.argv[2]) if sys.argv[1:2] == ["--all"] else None
    if everything is not None:
        everything.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        take(make_reports(Path(made)), everything)
