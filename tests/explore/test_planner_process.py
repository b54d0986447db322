"""The planner's own process: answers are kept, questions can be taken back, a killed one is replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from skelmix.explore.settings import Settings
from skelmix.explore.worker import Planner

pytestmark = pytest.mark.xdist_group("planner process")  # what is dear to set up is set up once

QUICK = Settings.read({"dimension": 200, "rounds": 1, "rate": 12, "population": 50, "cohort": 50})
OTHER = Settings.read({"dimension": 200, "rounds": 1, "rate": 12, "population": 60, "cohort": 60})
EASY = {"mechanism": "ddg", "dimension": 200, "rounds": 1, "rate": 14, "cohort": 60}
#: seconds of work: no certificate or distribution of it is known yet
SLOW = Settings.read({"dimension": 5_000_000, "rounds": 9_973, "rate": 0.1, "epsilon": 0.37})


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    """One event loop for all tests, as the server has one."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def planner() -> Iterator[Planner]:
    started = Planner()
    started.warm(QUICK)
    yield started
    started.close()


def process_id(planner: Planner) -> int:
    return int(planner._worker._process.pid)


async def taken_back(planner: Planner, settings: Settings, seconds: float) -> None:
    task = asyncio.ensure_future(planner.ask(settings))
    await asyncio.sleep(seconds)
    assert not task.done(), "the slow question was quick"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_question_taken_back_leaves_the_planner_warm_and_free(
    planner: Planner, loop: asyncio.Runner
) -> None:
    """Again and again: what was interrupted anywhere must not spoil the answers after it."""

    async def both(population: int) -> Any:
        await taken_back(planner, SLOW, 0.02 * (population - 60))
        begun = time.monotonic()
        found = await planner.ask(Settings.read({**EASY, "population": population}))
        return found, time.monotonic() - begun

    waited = []
    for population in range(60, 72):
        found, seconds = loop.run(both(population))
        assert found["plan"]["summary"]["population"] == population
        waited.append(seconds / found["seconds"])
        assert SLOW not in planner._kept
    assert min(waited) < 5, "every process began cold"


def test_a_question_cancelled_again_and_again_does_not_let_the_next_one_in_early(
    planner: Planner, loop: asyncio.Runner
) -> None:
    """As a web server cancels: a scope cancels at every await. Two questions at once in the pipe would get
    each other's answers, and keep them."""
    exchange, running, most = planner._exchange, 0, 0

    def counted(settings: Settings) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return exchange(settings)
        finally:
            running -= 1

    async def both() -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(planner.ask, SLOW)
            await asyncio.sleep(0.2)
            assert running == 1, "the slow question was quick"
            group.cancel_scope.cancel()
        return await planner.ask(OTHER)

    planner._kept.clear()
    planner._exchange = counted  # type: ignore[method-assign]
    try:
        found = loop.run(both())
    finally:
        planner._exchange = exchange  # type: ignore[method-assign]
    assert most == 1, "two questions were in the pipe at once"
    assert found["plan"]["summary"]["cohort"] == 60


def test_an_answer_is_kept(planner: Planner, loop: asyncio.Runner) -> None:
    loop.run(planner.ask(QUICK))
    planner._exchange, exchange = None, planner._exchange  # type: ignore[assignment, method-assign]
    try:
        assert loop.run(planner.ask(QUICK)) is planner._kept[QUICK]
    finally:
        planner._exchange = exchange  # type: ignore[method-assign]


def test_a_killed_planner_says_so_and_the_next_question_gets_another(
    planner: Planner, loop: asyncio.Runner
) -> None:
    async def killed() -> Any:
        task = asyncio.ensure_future(planner.ask(SLOW))
        await asyncio.sleep(0.2)
        os.kill(process_id(planner), signal.SIGKILL)
        return await task

    assert "process ended" in loop.run(killed())["lost"]
    planner._kept.clear()
    assert "plan" in loop.run(planner.ask(QUICK))
