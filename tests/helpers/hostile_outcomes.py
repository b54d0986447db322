"""Everything that may come of training on a node: hostile models, and what an app may make of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

Outcome = Callable[[Message], Any]

VALUES = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e308, -1e308, 5e-324, 1e-45, -1e-40, 0.0, 1e30, 7.0)
ERRORS = (
    ValueError, FloatingPointError, MemoryError, RecursionError, StopIteration, AssertionError, OSError,
    SystemExit, GeneratorExit, TimeoutError, UnicodeError, OverflowError,
)  # fmt: skip
DTYPES = ("complex64", "int8", "uint64", "bool", "float16", "float64", "longdouble", "S3", "datetime64[s]")


def honest(message: Message) -> Message:
    """The update zero: the model as it came."""
    arrays = next(iter(message.content.array_records.values()))
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"loss": 0.5})}), reply_to=message)


def _spoilt(arrays: ArrayRecord, rng: np.random.Generator) -> ArrayRecord:
    """The record with some entries replaced by hostile values."""
    new = {}
    for name, array in arrays.items():
        values = array.numpy().copy()
        if values.dtype.kind == "f":
            places = rng.random(values.shape) < rng.random()
            with np.errstate(all="ignore"):
                spoilt = rng.choice(VALUES, values.shape).astype(values.dtype)
            values = np.where(places, spoilt, values)
        new[name] = Array(np.asarray(values))
    return ArrayRecord(new)


def model(arrays: ArrayRecord, rng: np.random.Generator) -> ArrayRecord:
    """A model as a hostile server may send it: of the plan's shape, with values to break training."""
    return _spoilt(arrays, rng) if rng.random() < 0.5 else arrays


def _update(rng: np.random.Generator) -> Outcome:
    def values(message: Message) -> Message:
        before = next(iter(message.content.array_records.values()))
        return Message(RecordDict({"arrays": _spoilt(before, rng)}), reply_to=message)

    return values


def _other_arrays(rng: np.random.Generator) -> Outcome:
    def arrays(message: Message) -> Message:
        before = next(iter(message.content.array_records.values()))
        new = {name: array.numpy() for name, array in before.items()}
        name = str(rng.choice(list(new)))
        match int(rng.integers(6)):
            case 0:
                with np.errstate(all="ignore"):
                    new[name] = np.ones(new[name].shape).astype(str(rng.choice(DTYPES)))
            case 1:
                new[name] = np.ones(int(rng.integers(0, 50)), np.float32)
            case 2:
                del new[name]
            case 3:
                new["one more"] = np.ones(3, np.float32)
            case 4:
                new = {}
            case _:
                new = {name: values * 3e38 for name, values in new.items()}
        record = ArrayRecord({key: Array(np.asarray(values)) for key, values in new.items()})
        if rng.random() < 0.2 and new:
            record[next(iter(new))] = Array("float32", (3,), "numpy.ndarray", rng.bytes(20))
        return Message(RecordDict({"arrays": record}), reply_to=message)

    return arrays


def _other_reply(rng: np.random.Generator) -> Outcome:
    text = "the private feature is present " * int(rng.integers(1, 40))
    kinds: tuple[Outcome, ...] = (
        lambda message: None,
        lambda message: {},
        lambda message: Message(RecordDict(), reply_to=message),
        lambda message: Message(Error(42, text), reply_to=message),
        lambda message: Message(RecordDict({"text": ConfigRecord({"text": text})}), reply_to=message),
        lambda message: Message(
            RecordDict({name: ArrayRecord([np.ones(2)]) for name in ("one", "two")}), reply_to=message
        ),
        lambda message: Message(
            RecordDict({text: MetricRecord({"loss": [1.0] * 9, text: 2, "accuracy": 2**62})}),
            reply_to=message,
        ),
        lambda message: Message(
            RecordDict({"m": MetricRecord({"loss": float("nan"), "accuracy": 10**400})}), reply_to=message
        ),
    )
    return kinds[int(rng.integers(len(kinds)))]


def _failure(rng: np.random.Generator) -> Outcome:
    kind, size = ERRORS[int(rng.integers(len(ERRORS)))], int(rng.integers(0, 2000))

    def fails(message: Message) -> Message:
        if kind is SystemExit:
            sys.exit(size)
        raise kind("x" * size)

    return fails


def outcomes(count: int) -> Iterator[tuple[np.random.Generator, Outcome]]:
    """So many, the same ones each time; all kinds in turn."""
    kinds = (_update, _other_arrays, _other_reply, _failure)
    for case in range(count):
        rng = np.random.default_rng(case)
        yield rng, kinds[case % len(kinds)](rng)
