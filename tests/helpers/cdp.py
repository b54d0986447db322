"""A page in headless Chromium that a test can use like a person: click, type, look, print.

It speaks Chromium's own DevTools protocol. Nothing but 127.0.0.1 can be reached, and every request that the
page made is listed.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import pytest

from helpers.browser import command_line

PATIENCE = 240.0


class Tab:
    """One tab; `requests` holds the address of everything that it asked for."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._sent = 0
        self.requests: list[str] = []
        self.errors: list[str] = []
        for domain in ("Page", "Network", "Runtime"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command of the protocol and wait for its result."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": parameters}))
        deadline = time.monotonic() + PATIENCE
        while True:
            message = json.loads(self._socket.recv(timeout=deadline - time.monotonic()))
            if message.get("method") == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]["exceptionDetails"])[:500])
            if message.get("id") == self._sent:
                assert "error" not in message, (method, message["error"])
                return dict(message["result"])

    def open(self, address: str) -> Self:
        """Load an address anew; this document's promises and listeners are gone."""
        self.run("window.left = true")
        self.command("Page.navigate", url=address)
        self.wait("window.left !== true && document.readyState === 'complete'")
        return self

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        result = self.command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition: str, seconds: float = PATIENCE) -> float:
        """Wait until an expression is true; returns how long that took."""
        start = time.monotonic()
        while not self.run(condition):
            assert time.monotonic() - start < seconds, f"not within {seconds} s: {condition}"
            time.sleep(0.02)
        return time.monotonic() - start

    def wait_for(self, condition: Callable[[], bool], otherwise: str, seconds: float = PATIENCE) -> None:
        """Wait until something outside the page is so, with the page's events read meanwhile."""
        start = time.monotonic()
        while not condition():
            assert time.monotonic() - start < seconds, otherwise
            self.run("0")
            time.sleep(0.02)

    def close(self) -> None:
        """Close the tab: what it draws or asks needs no more of the machine."""
        self.command("Page.close")

    def press(self, key: str) -> None:
        """Press and release one key, such as Tab, Enter or ArrowRight."""
        codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, "End": 35, "Home": 36, " ": 32}
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if (key, kind) == ("Enter", "keyDown") else {}
            self.command(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
                **text,
            )

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.command("Input.insertText", text=text)

    def allow(self, *permissions: str, origin: str) -> None:
        """Grant what a person would be asked for, such as clipboardReadWrite."""
        self.command("Browser.grantPermissions", permissions=permissions, origin=origin)

    def downloads(self, directory: Path) -> None:
        """Keep what the page downloads in a directory, without asking."""
        self.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(directory))

    def look(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        """The size of the window, and the colours that the reader prefers."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        shot = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        """The page as it is printed."""
        printed = self.command("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        path.write_bytes(base64.b64decode(printed["data"]))


@contextmanager
def browser() -> Iterator[Any]:
    """A function that opens a tab at an address. Skips the test without Chromium."""
    client = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")
    with command_line("--remote-debugging-port=0", "--remote-allow-origins=*", "about:blank") as command:
        profile = Path(
            next(word for word in command if word.startswith("--user-data-dir=")).partition("=")[2]
        )
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        sockets = ExitStack()
        try:
            port = _port(profile / "DevToolsActivePort", process)

            def tab(address: str) -> Tab:
                new = f"http://127.0.0.1:{port}/json/new?about:blank"
                with urlopen(_put(new), timeout=PATIENCE) as answer:
                    found = json.load(answer)
                target = found["webSocketDebuggerUrl"]
                connected = client.connect(target, max_size=None, open_timeout=PATIENCE, ping_interval=None)
                return Tab(sockets.enter_context(connected)).open(address)

            yield tab
        finally:
            sockets.close()
            process.terminate()
            process.wait(30)


def _put(address: str) -> Any:
    from urllib.request import Request

    return Request(address, method="PUT")


def _port(path: Path, process: subprocess.Popen[bytes]) -> int:
    """Where the browser listens: it writes that into its profile."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, "Chromium ended at once"
        if path.exists() and (lines := path.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.05)
    raise AssertionError("Chromium did not open its debugging port")
