"""The server of the page: who is answered, what is refused, and that nothing is worked out for nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from helpers.explored import TOKEN, Serving, inline_explorer, request, serving
from skelmix.cli.explore import _listen
from skelmix.explore.answers import RATES
from skelmix.explore.server import Explorer
from skelmix.explore.settings import Settings
from skelmix.mechanisms.names import DISTRIBUTED
from skelmix.planning import Plan

#: plans that take a twentieth of a second
QUICK = {
    "mechanism": "ddg", "dimension": 200, "rounds": 1, "rate": 8, "population": 500, "cohort": 50,
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as running:
        yield running


def status(server: Serving, path: str | None = None, **more: Any) -> int:
    return request(server.address, path, **more)[0]


def test_pages_and_answers_forbid_foreign_content_frames_and_caches(server: Serving) -> None:
    for path in (f"/{TOKEN}/", f"/{TOKEN}/files/explore.js", f"/{TOKEN}/nothing", "/"):
        _, headers, _ = request(server.address, path)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe-eval" not in policy
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_a_rebound_name_is_refused(server: Serving) -> None:
    port = urlsplit(server.address).port
    for host in (
        f"rebound.example:{port}",
        "127.0.0.1",
        f"127.0.0.1.nip.example:{port}",
        f"0.0.0.0:{port}",
        "",
    ):
        assert status(server, headers={"Host": host}) == 403, host
        assert status(server, f"/{TOKEN}/plan", body=QUICK, headers={"Host": host}) == 403, host
    assert status(server, headers={"Host": f"localhost:{port}"}) == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"])
def test_another_site_is_refused_even_with_the_token(server: Serving, origin: str) -> None:
    # as a page of another site posts without asking beforehand: text/plain
    headers = {"Origin": origin, "Content-Type": "text/plain"}
    assert status(server, f"/{TOKEN}/plan", body=QUICK, headers=headers) == 403
    assert status(server, f"/{TOKEN}/chart", body=QUICK, headers=headers) == 403
    assert status(server, headers=headers) == 403


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "//",
        f"//{TOKEN}/",
        "/" + "0" * 32 + "/",
        f"/{TOKEN[:-1]}/",
        f"/{TOKEN}0/",
        f"/x/../{TOKEN}/",
        "/%C3%A9/",
    ],
)
def test_a_guessed_token_is_refused(server: Serving, path: str) -> None:
    assert status(server, path) == 403
    assert status(server, path + "plan", body=QUICK) == 403


def test_nothing_else_is_served(server: Serving) -> None:
    assert status(server, f"/{TOKEN}/nothing") == 404
    assert status(server, f"/{TOKEN}/plan") == 405
    for name in ("server.py", "..%2Fserver.py", "..%2F..%2Ferrors.py", "%2Fetc%2Fpasswd"):
        assert status(server, f"/{TOKEN}/files/{name}") == 404, name


def test_its_socket_is_of_this_machine_only() -> None:
    with _listen(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "JSON object"),
        ("[]", "JSON object"),
        ("[" * 5_000, "JSON object"),
        ("x" * 20_000, "too long"),
        (b"\xff\xfe", "JSON object"),
    ],
)
def test_a_question_that_is_none_is_explained(server: Serving, body: str, says: str) -> None:
    code, _, text = request(server.address, f"/{TOKEN}/plan", body=body)
    assert code == 422
    assert says in json.loads(text)["errors"][""]


def test_an_answer_has_the_plan_the_command_and_the_program(server: Serving) -> None:
    code, _, text = request(server.address, f"/{TOKEN}/plan", body=QUICK)
    answer = json.loads(text)
    assert code == 200
    assert Plan.from_json(answer["plan_json"]).summary()["epsilon"] == answer["summary"]["epsilon"]
    assert answer["command"].startswith("skelmix plan ")
    assert "sk.plan(" in answer["python"]


def test_the_chart_has_every_mechanism_at_every_rate(server: Serving) -> None:
    code, _, text = request(server.address, f"/{TOKEN}/chart", body=QUICK)
    points = [json.loads(line) for line in text.splitlines()]
    assert code == 200
    assert [(p["mechanism"], p["rate"]) for p in points] == [(m, r) for m in DISTRIBUTED for r in RATES]
    assert {p["error"] for p in points} == {None}
    assert {p["why"] for p in points} == {"not drawn here"}


class Patient:
    """A planner that answers never, and says who was sent away."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.sent_away: list[Settings] = []

    async def ask(self, settings: Settings) -> dict[str, Any]:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.sent_away.append(settings)
            raise
        raise AssertionError


async def stays() -> None:
    await asyncio.Event().wait()


def waiting_explorer() -> tuple[Explorer, Patient]:
    explorer, planner = inline_explorer(), Patient()
    explorer.plans = planner  # type: ignore[assignment]
    return explorer, planner


def test_a_question_is_taken_back_when_the_browser_goes_away() -> None:
    async def leave() -> Any:
        explorer, planner = waiting_explorer()
        assert await explorer.plan("tab", Settings.read(QUICK), planner.waiting.wait()) is None  # type: ignore[arg-type]
        return explorer, planner

    explorer, planner = asyncio.run(leave())
    assert planner.sent_away == [Settings.read(QUICK)]
    assert explorer._asking == {}


def test_a_newer_question_of_the_same_tab_takes_the_older_back_and_no_other() -> None:
    async def two_tabs() -> tuple[list[Any], list[Settings]]:
        explorer, planner = waiting_explorer()
        ask = lambda tab, rounds: asyncio.ensure_future(  # noqa: E731
            explorer.plan(tab, Settings.read(QUICK | {"rounds": rounds}), stays())
        )
        tasks = [ask("first", 1), ask("second", 2)]
        await asyncio.sleep(0)
        tasks.append(ask("first", 3))
        done, _ = await asyncio.wait(tasks, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [None]
        state = [task.done() for task in tasks]
        for task in tasks:
            task.cancel()
        return state, planner.sent_away[:1]

    assert asyncio.run(two_tabs()) == ([True, False, False], [Settings.read(QUICK | {"rounds": 1})])
