"""A planner in a process of its own: one question at a time, and any of them can be taken back.

A question is taken back by killing the process that works on it: a computation that was interrupted anywhere
could leave half of a cache or kernel behind, and the next answer must be right. The next process is forked
from one that has answered a first question already (`first_answer`), which takes a hundredth of a second.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections import OrderedDict
from multiprocessing.connection import Connection
from typing import Any

from skelmix.explore.settings import Settings

_KEPT = 4096  # answers

Answer = dict[str, Any]


def _work(questions: Connection) -> None:
    """Answer questions until the pipe closes."""
    from skelmix.explore.answers import answer

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's: the server ends this process
    while True:
        try:
            questions.send(answer(questions.recv()))
        except (EOFError, OSError):  # the server is gone
            return


def _processes() -> Any:
    """How workers are started: forked from a warm process, where the system can do that."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["skelmix.explore.first_answer"])
    return context


class Planner:
    """Asks one worker; questions wait for their turn, answers are kept."""

    def __init__(self, kept: OrderedDict[Settings, Answer] | None = None) -> None:
        self._kept = OrderedDict() if kept is None else kept
        self._turn = asyncio.Lock()
        self._process: Any = None
        self._pipe: Connection | None = None

    async def ask(self, settings: Settings) -> Answer:
        """The answer to one question. Cancelling the task that waits here ends the work on it."""
        if settings in self._kept:
            self._kept.move_to_end(settings)
            return self._kept[settings]
        # a task of its own: a cancel scope cancels again at every await, but the pipe must not be used for
        # another question before this one has left it
        turn = asyncio.ensure_future(self._take_turn(settings))
        try:
            return await asyncio.shield(turn)
        except asyncio.CancelledError:
            turn.cancel()
            raise

    async def _take_turn(self, settings: Settings) -> Answer:
        """Wait for the worker, ask it, keep the answer; when cancelled, end with no question in the pipe."""
        async with self._turn:
            if settings in self._kept:
                return self._kept[settings]
            pipe = self._pipe or self._start()
            exchange = asyncio.ensure_future(asyncio.to_thread(self._exchange, pipe, settings))
            try:
                reply = await asyncio.shield(exchange)
            except asyncio.CancelledError:
                self._process.kill()
                await exchange
                self.close()
                raise
            if "lost" in reply:
                self.close()
                return reply
            self._kept[settings] = reply
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return reply

    def warm(self, settings: Settings) -> None:
        """Start the worker and answer a first question, before anybody asks it."""
        self._kept[settings] = self._exchange(self._start(), settings)

    def close(self) -> None:
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _start(self) -> Connection:
        context = _processes()
        ours: Connection
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours
        return ours

    @staticmethod
    def _exchange(pipe: Connection, settings: Settings) -> Answer:
        try:
            pipe.send(settings)
            return dict(pipe.recv())
        except (EOFError, OSError):  # it was killed, by the system or above
            return {"lost": "the planner's process ended: change a setting to ask again"}
