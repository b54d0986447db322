"""The site builds without a warning, its links lead somewhere, and nothing in it needs the network."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from helpers import browser

pytestmark = pytest.mark.xdist_group("site")  # what is dear to set up is set up once

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. `--strict` makes a warning a failure: a missing page, image, anchor or name."""
    if shutil.which("mkdocs", path=Path(sys.executable).parent) is None:
        pytest.skip("mkdocs is not installed: pip install 'skelmix[docs]'")
    place = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"},
    )
    assert built.returncode == 0, built.stderr[-3000:]
    return place


class _Page(HTMLParser):
    """Anchors of a page, and what it links to or loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("img", "script", "iframe", "source") and "src" in found:
            self.loads.append(found["src"])
        if tag == "link" and "href" in found and found.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(found["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    return {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_the_site_has_its_parts(site: Path) -> None:
    for path in ("index", "start", "reference/api", "reference/cli", "evidence/index", "changelog"):
        assert (site / f"{path}.html").stat().st_size > 5_000, path
    assert not (site / "pictures").exists()


def test_evidence_shows_every_study_that_was_run(site: Path) -> None:
    shown = (site / "evidence" / "index.html").read_text(encoding="utf-8")
    text = html.unescape(re.sub(r"<[^>]+>", "", shown))
    for name in ("figure1", "figure2", "figure3", "figure4", "figure5", "table1"):
        report = ROOT / "results" / f"{name}.md"
        if not report.exists():
            assert f"Not measured yet: skelmix reproduce {name}" in text
            continue
        lines = report.read_text(encoding="utf-8").splitlines()
        assert lines[0].removeprefix("# ") in text
        assert f'src="{name}.png"' in shown
        titles = [line.strip("*") for line in lines if line.startswith("**") and line.endswith("**")]
        claims = [line.split(" | ")[0].removeprefix("| ") for line in lines if " | **" in line]
        assert len(claims) >= 3  # what Figure 5 has
        for words in titles + [one for one in claims if "|" not in one]:
            assert words in text, words
    assert "<!-- results:" not in shown


def test_links_and_images_lead_somewhere(site: Path, pages: dict[Path, _Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("javascript:"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if path.name == "404.html" and parts.path.startswith("/"):
                target = site / parts.path.lstrip("/")
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                broken.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                broken.append(f"{path.relative_to(site)}: {link} (no such anchor)")
    assert broken == []


def test_nothing_is_loaded_from_the_network(site: Path, pages: dict[Path, _Page]) -> None:
    for path, page in pages.items():
        assert [load for load in page.loads if urlsplit(load).netloc] == [], path
    for path in site.rglob("*.css"):
        assert re.findall(r"url\(['\"]?https?:", path.read_text(encoding="utf-8")) == [], path


MEASURE = """<!doctype html><meta charset="utf-8"><body><script>
const pages = %s, widths = [1280, 390], found = [];
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = page; document.body.append(frame); await loaded;
  const inner = frame.contentDocument, root = inner.documentElement;
  const over = root.scrollWidth - root.clientWidth;
  const missing = [...inner.images].filter(one => one.complete && !one.naturalWidth).map(one => one.src);
  const raw = [...inner.querySelectorAll(".katex-error")].map(one => one.textContent);
  found.push({page, width, over, missing, raw, formulas: inner.querySelectorAll(".katex").length});
  frame.remove();
}
(async () => {
  for (const page of pages) for (const width of widths) await look(page, width);
  await fetch("/found", {method: "POST", body: JSON.stringify(found)});
})();
</script></body>"""


def test_no_page_is_wider_than_a_screen(site: Path, pages: dict[Path, _Page]) -> None:
    """At the width of a desk and of a phone: no sideways scrolling, no missing picture, no broken formula."""
    names = [str(path.relative_to(site)) for path in pages if path.name != "404.html"]
    (site / "measure.html").write_text(MEASURE % json.dumps(names), encoding="utf-8")
    found = json.loads(browser.answer(site, "measure.html"))
    assert len(found) == 2 * len(names)
    assert [row for row in found if row["over"] > 0 or row["missing"] or row["raw"]] == []
    proofs = [row["formulas"] for row in found if row["page"] == "explanation/tight-bound.html"]
    assert min(proofs) > 50
