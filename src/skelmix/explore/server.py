"""The server of the page: loopback only, behind a random token, to nobody but the page itself."""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from skelmix.display.document import asset, plotly_script
from skelmix.errors import MissingExtra
from skelmix.explore.answers import RATES
from skelmix.explore.page import page_html
from skelmix.explore.settings import BadFields, Settings, errors_of
from skelmix.explore.worker import Answer, Planner
from skelmix.mechanisms.names import DISTRIBUTED
from skelmix.noise.entropy import system_entropy

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
FILES = ("explore.css", "explore.js", "measured.json", "plotly.js")  # files that the page loads
_MOST_BYTES = 10_000  # longest question


class OnlyThisPage:
    """Refuses other host names (a rebound name, say), other origins, and paths without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.datastructures import Headers, MutableHeaders
        from starlette.responses import PlainTextResponse

        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        port, headers = scope["server"][1], Headers(scope=scope)
        ours = [f"127.0.0.1:{port}", f"localhost:{port}"]

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        given = scope["path"].split("/")[1]
        origin = headers.get("origin")
        refusal = ""
        if headers.get("host") not in ours:
            refusal = "this page is for 127.0.0.1 only"
        elif origin is not None and origin not in [f"http://{host}" for host in ours]:
            refusal = "questions come from the page itself only"
        elif not hmac.compare_digest(given.encode(), self.token.encode()):
            refusal = "open the address that `skelmix explore` printed: it has a token"
        if refusal:
            await PlainTextResponse(refusal, 403)(scope, receive, guarded)
            return
        await self.app(scope, receive, guarded)


class Explorer:
    """The questions of all tabs: a plan at once, the points of a chart behind it."""

    def __init__(self) -> None:
        kept: OrderedDict[Settings, Answer] = OrderedDict()
        self.plans, self.points = Planner(kept), Planner(kept)
        self._asking: dict[str, asyncio.Task[Any]] = {}

    async def plan(self, tab: str, settings: Settings, gone: Coroutine[Any, Any, None]) -> Answer | None:
        """The answer, or None where the same tab has asked something else meanwhile, or is `gone`."""
        if before := self._asking.get(tab):
            before.cancel()
        task = asyncio.ensure_future(self.plans.ask(settings))
        self._asking[tab] = task
        leaving = asyncio.ensure_future(gone)
        leaving.add_done_callback(lambda _: task.cancel())  # does nothing to one that is done
        try:
            return await task
        except asyncio.CancelledError:
            return None
        finally:
            leaving.cancel()
            if self._asking.get(tab) is task:
                del self._asking[tab]

    async def chart(self, settings: Settings) -> AsyncIterator[dict[str, Any]]:
        """The error at every rate for every mechanism, point by point; None where there is no plan."""
        for mechanism in DISTRIBUTED:
            for rate in RATES:
                answer = await self.points.ask(settings.with_upload(mechanism, rate))
                error = answer["plan"]["relative_error"] if "plan" in answer else None
                yield {"mechanism": mechanism, "rate": rate, "error": error, "why": answer.get("refused", "")}

    def close(self) -> None:
        try:
            self.plans.close()
        finally:
            self.points.close()


@cache
def _file(name: str) -> tuple[str, str]:
    """(content, media type) of what the page loads."""
    own = files("skelmix.explore")
    if name == "plotly.js":
        return plotly_script(), "text/javascript"
    if name == "explore.js":
        return asset("plots.js") + own.joinpath(name).read_text(encoding="utf-8"), "text/javascript"
    if name == "explore.css":
        return asset("theme.css") + own.joinpath(name).read_text(encoding="utf-8"), "text/css"
    return own.joinpath("measured.json").read_text(encoding="utf-8"), "application/json"


async def _send_file(request: Request) -> Response:
    from starlette.responses import PlainTextResponse

    name = request.path_params["name"]
    if name not in FILES:
        return PlainTextResponse("the page has no such file", 404)
    content, kind = _file(name)
    return PlainTextResponse(content, media_type=kind)


def application(token: str, explorer: Explorer) -> Starlette:
    """The web application; every path begins with the token."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
    from starlette.routing import Route

    async def page(_: Request) -> Response:
        return HTMLResponse(page_html())

    async def alive(_: Request) -> Response:
        return PlainTextResponse("alive")

    async def plan(request: Request) -> Response:
        try:
            given, settings = await _asked(request)
        except BadFields as error:
            return JSONResponse({"errors": error.errors}, 422)
        answer = await explorer.plan(str(given.get("tab", "")), settings, _disconnected(request))
        if answer is None:
            return JSONResponse({"taken_back": True}, 409)
        if "plan" not in answer:
            message = str(answer.get("refused") or answer.get("lost") or "the question was taken back")
            return JSONResponse({"errors": errors_of(message), "seconds": answer.get("seconds")}, 422)
        texts = {"command": settings.command(), "python": settings.python()}
        return JSONResponse(answer["plan"] | texts | {"seconds": answer["seconds"]})

    async def chart(request: Request) -> Response:
        try:
            _, settings = await _asked(request)
        except BadFields as error:
            return JSONResponse({"errors": error.errors}, 422)

        async def lines() -> AsyncIterator[str]:
            async for point in explorer.chart(settings):
                yield json.dumps(point) + "\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        explorer.close()

    names = "{name:str}"
    return Starlette(
        routes=[
            Route(f"/{token}/", page),
            Route(f"/{token}/alive", alive),
            Route(f"/{token}/plan", plan, methods=["POST"]),
            Route(f"/{token}/chart", chart, methods=["POST"]),
            Route(f"/{token}/files/{names}", _send_file),
        ],
        middleware=[Middleware(OnlyThisPage, token=token)],
        lifespan=lifespan,
    )


async def _asked(request: Request) -> tuple[dict[str, Any], Settings]:
    """The question in a request; raises `BadFields`."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            raise BadFields({"": "the question is too long"})
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise BadFields({"": "the question must be a JSON object"})
    return given, Settings.read(given)


async def _disconnected(request: Request) -> None:
    """Returns when the browser has closed the connection: a reload, a closed tab, a newer question."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def serve(listening: socket.socket) -> tuple[str, Callable[[], None]]:
    """The page's address on a bound socket of 127.0.0.1, and what serves it until it is interrupted.

    The planner is warm by then: the page's first question has been answered.
    """
    try:
        import uvicorn
        from starlette.applications import Starlette  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            "skelmix explore needs starlette and uvicorn: pip install 'skelmix[explore]'"
        ) from error
    plotly_script()  # what is missing is missed now
    token = system_entropy().bytes(16).hex()
    explorer = Explorer()
    explorer.plans.warm(Settings.read({}))
    config = uvicorn.Config(
        application(token, explorer), log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=1, timeout_keep_alive=30, ws="none",
    )  # fmt: skip
    server = uvicorn.Server(config)
    port = listening.getsockname()[1]
    return f"http://127.0.0.1:{port}/{token}/", lambda: server.run(sockets=[listening])
