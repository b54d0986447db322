"""Pages as headless Chromium sees them after their scripts ran, without any network."""

from __future__ import annotations

import http.server
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def command_line(*words: str) -> Iterator[list[str]]:
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


@contextmanager
def files_served(directory: Path, posted: Callable[[bytes], None] = lambda _: None) -> Iterator[str]:
    """The address of a server on 127.0.0.1 of the files in a directory; `posted` is given what is posted."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_POST(self) -> None:
            posted(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def answer(directory: Path, page: str) -> bytes:
    """What a script of the page, served from the directory, posts back."""
    answers: list[bytes] = []
    done = threading.Event()

    def keep(content: bytes) -> None:
        answers.append(content)
        done.set()

    with (
        files_served(directory, keep) as address,
        command_line("--remote-debugging-port=0", address + page) as command,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser,
    ):
        done.wait(120)
        browser.terminate()
    assert answers, "the page did not answer in two minutes"
    return answers[0]
