"""A planner in a process of its own: one question at a time, and any of them can be taken back.

A question is taken back by a signal, at which the process drops what it computes; it keeps what it has learnt
for the next one. One that does not listen within two seconds is replaced.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections import OrderedDict
from multiprocessing.connection import Connection
from typing import Any

from skelmix.explore.settings import Settings

_PATIENCE = 2.0
_KEPT = 4096  # answers

Answer = dict[str, Any]


class TakenBack(BaseException):
    """Raised inside a computation that nobody waits for any more."""


def _work(questions: Connection) -> None:
    """Answer questions until the pipe closes; a signal interrupts the one at hand."""
    from skelmix.explore.answers import answer

    busy = False

    def interrupt(*_: object) -> None:
        if busy:
            raise TakenBack

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's: the server ends this process
    signal.signal(signal.SIGUSR1, interrupt)
    while True:
        try:
            settings = questions.recv()
        except EOFError:
            return
        reply: Answer = {"taken_back": True}
        try:
            busy = True
            try:
                reply = answer(settings)
            finally:
                busy = False
        except TakenBack:
            reply = {"taken_back": True}
        try:
            questions.send(reply)
        except OSError:  # the server is gone
            return


class Planner:
    """Asks one worker; questions wait for their turn, answers are kept."""

    def __init__(self, kept: OrderedDict[Settings, Answer] | None = None) -> None:
        self._kept = OrderedDict() if kept is None else kept
        self._turn = asyncio.Lock()
        self._process: Any = None
        self._pipe: Connection | None = None

    async def ask(self, settings: Settings) -> Answer:
        """The answer to one question. Cancelling the task that waits here interrupts the worker."""
        if settings in self._kept:
            self._kept.move_to_end(settings)
            return self._kept[settings]
        # a task of its own: a cancel scope cancels again at every await, but the pipe must not be used for
        # another question before the worker is free
        turn = asyncio.ensure_future(self._take_turn(settings))
        try:
            return await asyncio.shield(turn)
        except asyncio.CancelledError:
            turn.cancel()
            raise

    async def _take_turn(self, settings: Settings) -> Answer:
        """Wait for the worker, ask it, keep the answer; when cancelled, end with the worker free again."""
        async with self._turn:
            if settings in self._kept:
                return self._kept[settings]
            exchange = asyncio.ensure_future(asyncio.to_thread(self._exchange, settings))
            try:
                reply = await asyncio.shield(exchange)
            except asyncio.CancelledError:
                await self._interrupt(exchange)
                raise
            if "taken_back" not in reply and "lost" not in reply:
                self._kept[settings] = reply
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            return reply

    def warm(self, settings: Settings) -> None:
        """Start the worker and answer a first question, before anybody asks it."""
        self._kept[settings] = self._exchange(settings)

    def close(self) -> None:
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours
        return ours

    def _exchange(self, settings: Settings) -> Answer:
        pipe = self._pipe or self._start()
        try:
            pipe.send(settings)
            return dict(pipe.recv())
        except (EOFError, OSError):  # it was killed, by the system or below
            self._process.join()
            pipe.close()
            self._pipe = None
            return {"lost": "the planner's process ended: change a setting to ask again"}

    async def _interrupt(self, exchange: asyncio.Future[Answer]) -> None:
        """Take the question back, and wait until the worker is free again."""
        try:
            os.kill(self._process.pid, signal.SIGUSR1)
            await asyncio.wait_for(asyncio.shield(exchange), _PATIENCE)
        except (TimeoutError, ProcessLookupError):
            self._process.kill()
            await exchange
