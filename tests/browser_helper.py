"""A page as headless Chromium sees it after its scripts ran, without any network."""

from __future__ import annotations

import html
import shutil
import subprocess
import tempfile

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def dom(address: str, *, seconds: int = 20) -> str:
    """The page's HTML when its scripts have settled, with entities decoded. Skips the test without Chromium.

    seconds: of virtual time, which runs ahead of the clock while the page waits for nothing.
    """
    chromium = next((path for name in NAMES if (path := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium runs this test")
    with tempfile.TemporaryDirectory() as profile:
        found = subprocess.run(
            [
                chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                f"--user-data-dir={profile}", f"--virtual-time-budget={1000 * seconds}",
                "--window-size=1280,900", "--dump-dom", address,
            ],
            capture_output=True,
            text=True,
            timeout=300,
        )  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
    return html.unescape(found.stdout)
