"""Pages as headless Chromium sees them after their scripts ran, without any network."""

from __future__ import annotations

import html
import http.server
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def _command(*words: str) -> Iterator[list[str]]:
    """The command line of a browser with a profile of its own. Skips the test without Chromium."""
    chromium = next((path for name in NAMES if (path := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium runs this test")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        yield [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--window-size=1280,900", f"--user-data-dir={profile}", *words,
        ]  # fmt: skip


def dom(address: str) -> str:
    """The page's HTML when its scripts have settled, with entities decoded."""
    with _command("--virtual-time-budget=10000", "--dump-dom", address) as command:
        found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr[-2000:]
    return html.unescape(found.stdout)


def answer(directory: Path, page: str) -> bytes:
    """What a script of the page, served from the directory, posts back."""
    posted: list[bytes] = []
    done = threading.Event()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()
            done.set()

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/{page}"
    try:
        with (
            _command("--remote-debugging-port=0", address) as command,
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser,
        ):
            done.wait(120)
            browser.terminate()
    finally:
        server.shutdown()
        server.server_close()
    assert posted, "the page did not answer in two minutes"
    return posted[0]
