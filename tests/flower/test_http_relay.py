"""The relay of `examples/nvflare-silos`: what goes in at a site comes out at the server, and back."""

from __future__ import annotations

import http.client
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "nvflare-silos"


@pytest.fixture
def relay(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    sys.modules.pop("http_relay", None)
    import http_relay

    yield http_relay
    sys.modules.pop("http_relay", None)


class Echo(BaseHTTPRequestHandler):
    """A SuperLink that answers with what it was asked, and a status of its own."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []

    def do_POST(self):
        self.asked.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = f"{self.command} {self.path} {self.headers['X-Token']} ".encode() + body[::-1]
        self.send_response(207)
        self.send_header("X-Answer", "kept")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def superlink():
    Echo.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()  # it ends as soon as it may
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def site(relay, superlink):
    carried = []

    def carry(request):
        carried.append(request)
        return relay.call(superlink, request)

    listener = relay.Listener(carry)
    yield listener.address, carried
    listener.close()


def ask(address, body, **headers):
    link = http.client.HTTPConnection(address, timeout=10)
    link.request("POST", "/v1/fleet/pull-messages", body, {"X-Token": "t", **headers})
    answer = link.getresponse()
    found = answer.status, answer.headers["X-Answer"], answer.read()
    link.close()
    return found


@pytest.mark.parametrize("body", [b"", bytes(range(256)), b"\r\n0\r\n" * 200_000])
def test_a_request_and_its_answer_arrive_as_they_were_sent(site, body):
    address, carried = site
    assert ask(address, body) == (207, "kept", b"POST /v1/fleet/pull-messages t " + body[::-1])
    (request,) = carried
    assert (request.method, request.path, request.body) == ("POST", "/v1/fleet/pull-messages", body)


def test_what_belongs_to_one_connection_stays_there(site):
    address, carried = site
    ask(address, b"x", Connection="keep-alive", Host="of-the-site")
    assert {name.lower() for name in carried[0].headers} == {"accept-encoding", "x-token"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/control/start-run"),
        ("POST", "/v1/runtime/pull-messages"),
        ("POST", "/v1/fleet/../control/start-run"),
        ("POST", "/v1/fleet/%2e%2e/control/start-run"),
        ("POST", "//v1/control/start-run"),
        ("GET", "/v1/fleet/get-run"),
    ],
)
def test_a_site_reaches_nothing_but_what_a_supernode_needs(relay, superlink, method, path):
    assert relay.call(superlink, relay.Request(method, path, {}, b"")).status == 403


SMUGGLED = b"POST /v1/control/start-run HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Length": "0"}, SMUGGLED),
        ({"content-length": "0", "Connection": "keep-alive"}, SMUGGLED),
        ({"Transfer-Encoding": "chunked"}, b"0\r\n\r\n" + SMUGGLED),
    ],
)
def test_a_site_hides_no_second_request_in_the_body_of_the_first(relay, superlink, headers, body):
    """A length of the site's own would end the first request where the site wants it to end."""
    answer = relay.call(superlink, relay.Request("POST", "/v1/fleet/get-run", headers, body))
    assert answer.body.endswith(body[::-1]), "all of it is the first one's body"
    assert Echo.asked == ["/v1/fleet/get-run"]


@pytest.mark.parametrize(
    "request_",
    [
        (b"POST", "/v1/fleet/get-run", {}, b""),
        ("POST", b"/v1/fleet/get-run", {}, b""),
        ("POST", "/v1/fleet/get-run", {"X-Token": "t\r\nContent-Length: 0"}, SMUGGLED),
        ("POST", "/v1/fleet/get-run", {"Content-Length ": "0"}, SMUGGLED),
        ("POST", "/v1/fleet/get-run", {"X-Token": "\u2028"}, b""),
        ("POST", "/v1/fleet/get-run", {"X-Token": None}, b""),
        ("POST", "/v1/fleet/get-run", ["X-Token"], b""),
        ("POST", "/v1/fleet/get-run", {}, [SMUGGLED]),
        ("POST", "/v1/fleet/get-run", {}, None),
    ],
    ids=["method", "path", "line break", "space", "no ASCII", "no text", "no headers", "pieces", "no body"],
)
def test_what_no_listener_makes_is_forbidden(relay, superlink, request_):
    assert relay.call(superlink, relay.Request(*request_)).status == 403
    assert Echo.asked == []


def test_a_superlink_that_is_gone_is_unavailable_for_now(relay):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        assert relay.call(address, relay.Request("POST", "/v1/fleet/get-run", {}, b"")).status == 503


def test_a_node_that_does_not_wait_leaves_no_traceback(relay, capsys):
    def carry(request):
        link.close()
        return relay.Response(200, {}, bytes(10_000_000))

    listener = relay.Listener(carry)
    host, _, port = listener.address.rpartition(":")
    link = socket.create_connection((host, int(port)))
    link.sendall(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    again = relay.call(listener.address, relay.Request("POST", "/v1/fleet/get-run", {}, b""))
    listener.close()
    assert again.status == 200, "the listener goes on"
    assert "Traceback" not in capsys.readouterr().err
