"""axe-core, run inside a page: what keeps people with disabilities from using it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]


@cache
def _script() -> str | None:
    """axe-core from node_modules, or installed by npm into a temporary directory; None without it."""
    beside = _ROOT / "node_modules/axe-core/axe.min.js"
    if beside.exists():
        return beside.read_text(encoding="utf-8")
    npm = shutil.which("npm")
    if npm is None:
        return None
    with tempfile.TemporaryDirectory() as place:
        words = [
            npm,
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            place,
            "axe-core@4",
        ]
        try:
            subprocess.run(words, capture_output=True, timeout=90, check=True)
        except (subprocess.SubprocessError, OSError):
            return None
        return (Path(place) / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


def violations(tab: Any) -> list[str]:
    """Serious and critical violations on the page. Skips the test without axe-core."""
    script = _script()
    if script is None:
        pytest.skip("axe-core is not installed: npm install axe-core runs this test")
    tab.command("Runtime.evaluate", expression=script)
    found = tab.run("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
    return [
        f"{one['id']}: {one['help']} at {one['nodes'][0]['target']}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
