"""A planner in a process of its own: it answers one question at a time, and any question can be cancelled.

Cancelling kills the process that works on the question: a computation that was interrupted anywhere could
leave half of a cache or kernel behind, and the next answer must be right. The next process is forked from
one that has answered a first question already (`first_answer`), which takes a hundredth of a second.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import sys
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
            settings = questions.recv()
        except (EOFError, OSError):  # the server is gone
            return
        reply = answer(settings)
        try:
            questions.send(reply)
        except OSError:
            return


def _processes() -> Any:
    """How workers are started: forked from a warm process where that is safe, which on macOS it is not."""
    if sys.platform == "darwin" or "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["skelmix.explore.first_answer"])
    return context


class _Worker:
    """A process that answers questions, and the pipe to it."""

    def __init__(self) -> None:
        context = _processes()
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, settings: Settings) -> Answer:
        """The answer. EOFError or OSError: the process ended."""
        self._pipe.send(settings)
        return dict(self._pipe.recv())

    def kill(self) -> None:
        """End the process; whoever waits for its answer learns of it."""
        if self._process.is_alive():  # a process that ended may have left its number to another
            self._process.kill()

    def close(self) -> None:
        """End the process, and give back what it held."""
        self.kill()
        self._process.join()
        self._pipe.close()


class Planner:
    """Asks one worker; questions wait for their turn, answers are kept."""

    def __init__(self, kept: OrderedDict[Settings, Answer] | None = None) -> None:
        self._kept = OrderedDict() if kept is None else kept
        self._turn = asyncio.Lock()
        self._worker: _Worker | None = None

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
            exchange = asyncio.ensure_future(asyncio.to_thread(self._exchange, settings))
            try:
                reply = await asyncio.shield(exchange)
            except asyncio.CancelledError:
                while not exchange.done():  # the worker may only just be starting
                    if (worker := self._worker) is not None:
                        worker.kill()
                    await asyncio.wait([exchange], timeout=0.05)
                self.close()
                raise
            return self._keep(settings, reply)

    def warm(self, settings: Settings) -> None:
        """Start the worker and answer a first question, before anybody asks it."""
        self._keep(settings, self._exchange(settings))

    def close(self) -> None:
        """End the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _exchange(self, settings: Settings) -> Answer:
        """Ask the worker, or a new one."""
        try:
            if self._worker is None:
                self._worker = _Worker()
            return self._worker.ask(settings)
        except (EOFError, OSError):  # it was killed, by the system or above, or could not be started
            self.close()
            return {"lost": "the planner's process ended: change a setting to ask again"}

    def _keep(self, settings: Settings, reply: Answer) -> Answer:
        """Remember an answer, unless it is that there is none."""
        if "lost" not in reply:
            self._kept[settings] = reply
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return reply
