"""The page of `skelmix explore` without its processes: served by a thread, answered in the same one."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from skelmix.explore.answers import answer
from skelmix.explore.server import Explorer, application
from skelmix.explore.settings import Settings

TOKEN = "5e" * 16
#: plans that take a twentieth of a second
QUICK = "#mechanism=ddg&dimension=200&rounds=1&rate=14&population=500&cohort=50&records=500&batch=50"


class InlinePlanner:
    """Answers at once, and lists what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Settings] = []

    async def ask(self, settings: Settings) -> dict[str, Any]:
        self.asked.append(settings)
        return answer(settings)

    def close(self) -> None:
        pass


class NoPoints(InlinePlanner):
    """Has no plan for any point of the chart."""

    async def ask(self, settings: Settings) -> dict[str, Any]:
        self.asked.append(settings)
        return {"refused": "not drawn here", "seconds": 0.0}


def inline_explorer() -> Explorer:
    """An explorer that starts no process."""
    explorer = Explorer()
    explorer.plans, explorer.points = InlinePlanner(), NoPoints()  # type: ignore[assignment]
    return explorer


class Serving:
    """A server of the page; `stop` ends it."""

    def __init__(self, explorer: Explorer) -> None:
        self._listening = listening = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            application(TOKEN, explorer), log_level="warning", access_log=False, ws="none",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listening],), daemon=True)
        self._thread.start()
        self.address = f"http://127.0.0.1:{listening.getsockname()[1]}/{TOKEN}/"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self._listening.close()
        assert not self._thread.is_alive(), "the server did not stop"


@contextmanager
def serving(explorer: Explorer | None = None) -> Iterator[Serving]:
    """A running server of the page."""
    server = Serving(explorer or inline_explorer())
    try:
        yield server
    finally:
        server.stop()


def request(
    address: str, path: str | None = None, *, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], str]:
    """(status, headers, text) of one request; a POST where there is a body."""
    at, headers = urlsplit(address), dict(headers or {})
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=60)
    content = body if isinstance(body, str | bytes) or body is None else json.dumps(body)
    try:
        connection.request("GET" if body is None else "POST", path or at.path, content, headers)
        reply = connection.getresponse()
        return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read().decode()
    finally:
        connection.close()


def wait_for_answer(page: Any) -> None:
    """Wait until nothing is asked any more; without a plan, fail at once with the page's own words."""
    page.wait("!document.body.classList.contains('asking')")
    said = "[...document.querySelectorAll('.error, .note')].map(place => place.textContent).join(' ').trim()"
    assert page.run("shown !== null && document.body.dataset.answered == question"), page.run(said)


def move(page: Any, name: str, steps: int) -> None:
    """Move a slider; its listeners have run when this returns."""
    page.run(f"moved = at('{name}-slider'), moved.value = +moved.value + {steps}")
    page.run("moved.dispatchEvent(new Event('input'))")
