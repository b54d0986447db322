"""Run independent pieces of work on the cores of this machine: kernels release the interpreter's lock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from skelmix.validation import whole

T = TypeVar("T")
_END: Any = object()
_limit: ContextVar[int | None] = ContextVar("skelmix_threads", default=None)


def worker_count() -> int:
    """The number of threads that encoding uses: the cores of this process, or the limit of `at_most`."""
    limit = _limit.get()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if limit is None else min(limit, cores)


@contextmanager
def at_most(threads: int) -> Iterator[None]:
    """Within the block, encoding uses at most this many threads (>= 1)."""
    whole(1, threads=threads)
    token = _limit.set(int(threads))
    try:
        yield
    finally:
        _limit.reset(token)


def for_each(items: Iterable[T], job: Callable[[T], None]) -> None:
    """Run job(item) for every item, in no promised order.

    Items are pulled in the caller's thread, at most one for each other thread ahead of the work (never with
    one worker), so a generator of any length needs constant memory; the caller's thread works as well. A job
    that itself calls `for_each` gets no further threads, since the cores are busy. The first failure stops
    the pulling and is raised when the jobs under way have ended. The threads live for this call only, which
    keeps a later fork safe.
    """
    source = iter(items)
    others = worker_count() - 1
    head = [item for _, item in zip(range(2 if others else 0), source, strict=False)]
    if len(head) < 2:
        for item in chain(head, source):
            job(item)
        return
    waiting: SimpleQueue[T] = SimpleQueue()
    helpers: list[threading.Thread] = []
    failures: list[BaseException] = []

    def guarded(item: T) -> None:
        try:
            if not failures:
                with at_most(1):
                    job(item)
        except BaseException as failure:  # handed to the caller below
            failures.append(failure)

    def help() -> None:
        while (item := waiting.get()) is not _END:
            guarded(item)
        waiting.put(_END)  # for the next one

    try:
        for item in chain(head, source):
            if waiting.qsize() >= others:
                guarded(item)
            else:
                waiting.put(item)
                if len(helpers) < others:
                    helpers.append(threading.Thread(target=help))
                    helpers[-1].start()
            if failures:
                break
        with suppress(Empty):
            while True:
                guarded(waiting.get_nowait())
    except BaseException as failure:  # raised by the source, or an interrupt
        failures.append(failure)
    finally:
        waiting.put(_END)
        for helper in filter(threading.Thread.is_alive, helpers):
            helper.join()
    if failures:
        raise failures[0]
