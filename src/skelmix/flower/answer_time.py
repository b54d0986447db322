"""A fixed time per answer, so observers cannot see how long training took."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("flwr.skelmix")


@contextmanager
def fixed_time(seconds: float | None) -> Iterator[None]:
    """Make the block take `seconds`: sleep until then, also after an exception. None: no padding.

    Work that takes longer is not cut short, and its time shows; the node's own log then says so.
    """
    start = time.monotonic()
    try:
        yield
    finally:
        if seconds is not None:
            left = seconds - (time.monotonic() - start)
            if left > 0:
                time.sleep(left)
            else:
                log.error(
                    "an answer took %.1f s, more than answer_seconds = %g: its time may show how many "
                    "records were drawn; raise answer_seconds",
                    seconds - left,
                    seconds,
                )
