"""Turns whatever the app's own function did into a reply that reveals nothing of it but noisy numbers.

The server chooses the model, so it can make training fail exactly when a private feature is present. A node
that answers a failure with its reason, or not at all, would hand over that feature without noise. Here every
outcome, an exception, a NaN, a wrong shape, an endless vector, becomes a vector of the plan's length, and
metrics of fixed names and sizes. What happened is written to the node's own log and nowhere else.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from skelmix.flower.arrays import difference, only_arrays
from skelmix.flower.policy import ClientPolicy
from skelmix.flower.records import RECORD

log = logging.getLogger("flwr.skelmix")

Words = NDArray[Any]

METRICS = "metrics"
"""Name of the one metric record of every reply."""


def call_app(
    call_next: Callable[[Message, Context], Message], message: Message, context: Context
) -> RecordDict:
    """What the app replied; empty when it raised, exited or replied with an error.

    Only an interrupt from the keyboard and Flower's own shutdown pass through: both come from the node's
    operator, not from its data.
    """
    own = context.state.get(RECORD)
    try:
        reply = call_next(message, context)
        if isinstance(reply.content, RecordDict):  # an error of Flower's has none, and raises here
            return reply.content
        raise TypeError(f"its reply holds {type(reply.content).__name__}: it must be a RecordDict")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() at a NaN loss is common in training code
        if isinstance(error, SystemExit) and _raised_by_flower(error.__traceback__):
            raise
        log.error("the app's %s function failed", message.metadata.message_type, exc_info=error)
    finally:  # an app that clears its state must not lose the open round
        if not isinstance(context.state, RecordDict):
            context.state = RecordDict()
        if own is not None:
            context.state[RECORD] = own
    return RecordDict()


def _raised_by_flower(trace: TracebackType | None) -> bool:
    """Whether the innermost frame is Flower's: its signal handlers end a process by `sys.exit`."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith("flwr.")


def update_vector(
    content: RecordDict, before: ArrayRecord, dimension: int, clip_norm: float
) -> NDArray[np.float32]:
    """The app's update as a finite vector of length `dimension` with an L2 norm of about `clip_norm` at most.

    A reply without exactly one model, with other names, shapes or kinds of number, or with a NaN or an
    infinity anywhere gives the zero vector. Longer vectors are scaled down to `clip_norm`, as the encoder
    would; it clips exactly. Never raises, whatever `content` holds.
    """
    try:
        with np.errstate(all="ignore"):
            _, after = only_arrays(content, "the app's reply")
            return _clipped(difference(after, before), dimension, clip_norm)
    except Exception as error:
        log.error("the app's update is replaced by zero: %s", error)
    return np.zeros(dimension, np.float32)


def _clipped(vector: NDArray[np.float64], dimension: int, clip_norm: float) -> NDArray[np.float32]:
    largest = float(np.abs(vector).max(initial=0.0))
    if vector.shape != (dimension,) or not math.isfinite(largest):
        log.error("the app's update has shape %s, largest entry %s: replaced by zero", vector.shape, largest)
        return np.zeros(dimension, np.float32)
    norm = largest * float(np.linalg.norm(vector / largest)) if largest > 0 else 0.0
    if norm > clip_norm:  # entries may be as large as 1e308: divide before multiplying
        vector = vector / largest * (clip_norm / float(np.linalg.norm(vector / largest)))
    narrow = vector.astype(np.float32)
    if not np.isfinite(narrow).all():  # shorter than the clip norm, but too large for float32
        log.error("the app's update has entries beyond float32, up to %s: replaced by zero", largest)
        return np.zeros(dimension, np.float32)
    return narrow


def encoded_or(zero: Callable[[], Words], encode: Callable[[], Words]) -> Words:
    """The result of `encode`; if that raises, the result of `zero`, which encodes the zero vector.

    The app has run by now, so whether its vector can be encoded may depend on the node's data.
    """
    try:
        return encode()
    except Exception as error:
        log.error("the app's update could not be encoded and is replaced by zero", exc_info=error)
    return zero()


def public_metrics(content: RecordDict, policy: ClientPolicy, **always: float) -> MetricRecord:
    """Every metric that the policy calls public, as one number each; `always` gives others their values.

    The names and the size of the record do not depend on what the app did: a metric that is missing, is a
    list or is not finite is sent as its value in `always`, or else as 0.
    """
    values = {**dict.fromkeys(policy.public_metrics, 0.0), **always}
    for record in content.metric_records.values():
        for name, value in record.items():
            if name in policy.public_metrics and (number := _finite(value)) is not None:
                values[name] = number
    return MetricRecord(dict(values))


def _finite(value: object) -> float | None:
    """The value as a finite number; None where it is none."""
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if math.isfinite(number) else None
