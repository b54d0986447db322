"""Carry single HTTP requests by any messenger: a listener at one end, a caller at the other.

A SuperNode of Flower 1.41 speaks with its SuperLink by HTTP requests that each stand alone. The listener
takes them at the site, the messenger carries them, and `call` makes them again at the server.
"""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# of one connection, not of the message: each end of the relay has its own. Where a request ends is for the
# end that makes it to say: a length of the site's own could hide a second request behind a first one
HOP_BY_HOP = {
    "connection", "content-length", "date", "expect", "host", "keep-alive", "server", "te", "trailer",
    "transfer-encoding", "upgrade",
}  # fmt: skip


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes


UNAVAILABLE = Response(503, {}, b"")  # Flower tries again
FORBIDDEN = Response(403, {}, b"")
# what a SuperNode asks for. The same port also takes new runs, with code for all sites (/v1/control), and
# serves what the server's app sees (/v1/runtime): neither is for a site to reach.
FLEET = re.compile(r"/v1/fleet/[a-z-]+")
HEADER = re.compile(r"[A-Za-z0-9-]+")
Carry = Callable[[Request], Response]


def end_to_end(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in HOP_BY_HOP}


def of_a_supernode(request: Request) -> bool:
    """Whether this is what `Listener` makes of a SuperNode's request, whoever made it."""
    texts = [request.path, *request.headers.values()] if isinstance(request.headers, dict) else [None]
    if not all(isinstance(text, str) and text.isascii() and text.isprintable() for text in texts):
        return False
    named = all(isinstance(name, str) and HEADER.fullmatch(name) for name in request.headers)
    whole = isinstance(request.body, bytes) and request.method == "POST"
    return named and whole and FLEET.fullmatch(request.path) is not None


def call(address: str, request: Request, *, timeout: float = 60.0) -> Response:
    """Make the request to `address` (host:port); `UNAVAILABLE` where nobody answers in time.

    Requests come from sites, which need not be honest: all but a SuperNode's own are `FORBIDDEN`.
    """
    if not of_a_supernode(request):
        return FORBIDDEN
    link = http.client.HTTPConnection(address, timeout=timeout)
    try:
        link.request("POST", request.path, request.body, end_to_end(request.headers.items()))
        answer = link.getresponse()
        return Response(answer.status, end_to_end(answer.getheaders()), answer.read())
    except (OSError, http.client.HTTPException):
        return UNAVAILABLE
    finally:
        link.close()


class Listener:
    """Answers every HTTP request to a port of 127.0.0.1 with what `carry` makes of it, until `close`.

    Whoever may open a port of this machine can speak with it, as with a SuperLink on 127.0.0.1.
    """

    def __init__(self, carry: Carry) -> None:
        class Handler(_Handler):
            def carry(self, request: Request) -> Response:
                return carry(request)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def carry(self, request: Request) -> Response:
        raise NotImplementedError

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(self.command, self.path, end_to_end(self.headers.items()), body)
        response = self.carry(request)
        try:
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)
        except ConnectionError:  # the SuperNode no longer waits: it has ended, or asks again
            self.close_connection = True

    do_GET = do_PUT = do_DELETE = do_POST

    def log_message(self, *_: object) -> None:
        pass
