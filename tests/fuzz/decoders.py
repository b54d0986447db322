"""Every decoder of bytes that others may have written, with valid examples and the errors it may raise."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import msgpack
import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer, which Flower loads, uses a name of old
    from flwr.app import ConfigRecord, RecordDict

from fuzz.state_files import (
    SCRATCH,
    contributions_text,
    ledger_text,
    open_ledger,
    read_contributions,
    seal_contributions,
    seal_ledger,
)
from skelmix.cli.rows import open_rows
from skelmix.datasets.idx import parse_idx, read_idx
from skelmix.encoding.wrapping import pack, unpack
from skelmix.errors import CorruptState, InvalidInput, ProtocolError, SkelmixError
from skelmix.flower.node_state import NodeState
from skelmix.flower.records import RECORD, Answer, Request
from skelmix.planning import Plan, plans
from skelmix.rounds.contributions import ContributionStore
from skelmix.secagg import messages, stored
from skelmix.secagg.client import Client
from skelmix.secagg.joined_rounds import JoinedRounds
from skelmix.secagg.keys import KeyPair
from skelmix.secagg.settings import Phase
from skelmix.studies.rows import read


@dataclass(frozen=True)
class Decoder:
    """`run` decodes bytes; anything but the `named` errors is a crash. `seal`, where there is one, gives
    bytes a right checksum, so that the fuzzer gets past it."""

    name: str
    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    named: tuple[type[Exception], ...]
    seal: Callable[[bytes], bytes] | None = None

    def accepts(self, data: bytes) -> bool:
        """Whether the decoder takes the bytes; raises what is not a named error."""
        try:
            self.run(data)
        except self.named:
            return False
        return True


def _file(suffix: str, reader: Callable[[Path], object], data: bytes) -> object:
    path = SCRATCH / f"skelmix-fuzz-{os.getpid()}{suffix}"
    path.write_bytes(data)
    try:
        return reader(path)
    finally:
        path.unlink()
        path.with_name(path.name + ".lock").unlink(missing_ok=True)


def _examples() -> dict[type[messages.Message], messages.Message]:
    key, session, signature, sealed = b"k" * 32, b"s" * 16, b"g" * 64, b"x" * messages.sealed_bytes(5)
    share = b"h" * 16
    peers = ((0, 10, key, b"", b""), (1, 11, b"l" * 32, key, signature), (2, 12, b"n" * 32, key, signature))
    return {
        type(message): message
        for message in (
            messages.Advertisement(7, key, key, signature),
            messages.ShareRequest(session, 1, 9, 8, 2, 1, False, 9.5, 1, b"c", 3, 2, 2, key, key, 0, peers),
            messages.Shares(session, 1, 0, key, b"m" * 96, ((1, sealed),), b""),
            messages.MaskRequest(session, 1, b"\x03", ((1, key, sealed),)),
            messages.MaskedInput(session, 1, 0, bytes(range(9)), b""),
            messages.ConsistencyRequest(session, 1, b"\x03"),
            messages.Agreement(session, 1, 0, signature),
            messages.UnmaskRequest(session, 1, b"\x03", ((1, signature),)),
            messages.UnmaskShares(session, 1, 0, ((0, 4 * share),), ((1, share),), b""),
        )
    }


def _any_message(data: bytes) -> None:
    """As the kind that it says it is. What is taken encodes back to the same bytes."""
    kinds = list(EXAMPLES)
    at = 4 if data[:1] == b"\xdc" else 2  # behind msgpack's long or short array header, and the version
    kind = kinds[data[at] % len(kinds) - 1] if len(data) > at else kinds[0]
    assert messages.encode(messages.decode(data, kind, 4096)) == data


EXAMPLES = _examples()


def _restore(data: bytes) -> None:
    Client(5, CHANNEL).restore(data)


CHANNEL = KeyPair(b"c" * 32)


def _joined_state() -> bytes:
    kept = stored.Round(
        EXAMPLES[messages.ShareRequest], bytearray(16), bytearray(16), bytearray(80), b"o" * 112
    )
    kept.held, kept.sharers = {1: b"h" * 112}, b"\x03"
    return stored.to_bytes(5, Phase.UNMASK, kept)


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    out = io.BytesIO()
    parquet.write_table(pa.table({"a": [0.5, 1.5], "b": [1, 2]}), out)
    return out.getvalue()


def _idx(dimensions: int = 2, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, dimensions]) + (2).to_bytes(4, "big") * dimensions + bytes(2**dimensions)


class NotARecord(Exception):
    """Flower itself does not take these bytes for a record."""


def _record(data: bytes) -> ConfigRecord:
    """Any record that Flower could hand over: names and values in turn, in msgpack, up to what is damaged."""
    unpacker, items = msgpack.Unpacker(), []
    unpacker.feed(data)
    with suppress(ValueError, msgpack.UnpackException):
        items.extend(unpacker)  # keeps what came before the damage
    try:
        return ConfigRecord({str(name): value for name, value in zip(items[::2], items[1::2], strict=False)})
    except TypeError as error:
        raise NotARecord from error


def _packed(record: ConfigRecord) -> bytes:
    return b"".join(msgpack.packb(item) for pair in record.items() for item in pair)


def _request(data: bytes) -> None:
    record = _record(data)
    request = Request.from_record(record)
    optional = ("plan", "signature")
    assert dict(request.to_record()) == {k: v for k, v in record.items() if v or k not in optional}


def _answer(data: bytes) -> None:
    """A broken client is a client that did not answer: nothing is refused, whatever the record says."""
    answer = Answer.from_content(RecordDict({RECORD: _record(data)}))
    assert all(type(part) is bytes for part in answer.parts.values())
    assert all(type(reason) is str and len(reason) <= 500 for reason in answer.refused.values())
    assert not answer.parts.keys() & answer.refused.keys()
    assert Answer.from_content(RecordDict({RECORD: answer.to_record()})) == answer


def _memory(data: bytes) -> None:
    memory = NodeState(
        RecordDict({RECORD: _record(data)}), ContributionStore(SCRATCH / "skelmix-fuzz-nowhere", run=7)
    )
    assert type(memory.plan_digest) is str
    assert type(memory.last_round) is int
    assert type(memory.secrets) is bytes
    assert all(type(number) is int for number in memory.open_round)
    memory.channel()
    memory.joined_rounds()
    facts = memory.plan_facts()
    assert min(facts.rounds, facts.bits, facts.dimension) >= 1


def _node_state() -> bytes:
    state, joined = RecordDict(), JoinedRounds()
    joined.join(b"s" * 16, 1)
    with tempfile.TemporaryDirectory() as directory:
        memory = NodeState(state, ContributionStore(Path(directory), run=7))
        memory.channel()
        memory.keep_plan(json.dumps(PLAN), "d" * 64, 8, 1)
        memory.spend(1)
    memory.join(1, 4, joined)
    memory.keep(b"secrets")
    return _packed(state.config_records[RECORD])


def _unproved() -> Callable[[bytes], object]:
    """`Plan.from_json` in a copy of its module that proves no claim: parsing and the checks of the fields."""
    spec = importlib.util.spec_from_file_location("fuzzed_plan", plans.__file__)
    module = sys.modules["fuzzed_plan"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.privacy_report = lambda *args, **named: SimpleNamespace(epsilon=0.0)
    module.central_multiplier = lambda *args: 1.0
    return module.Plan.from_json


PLAN = {
    "format": 1,
    "target": {"epsilon": 3.0, "delta": 1e-5},
    "cohort": {
        "kind": "cohort",
        "expected": 10,
        "population": 10,
        "dropout_tolerance": 0.0,
        "colluding": 0,
        "sampling": "none",
    },
    "rounds": 1,
    "alignment": 1.0,
    "mechanism": {
        "name": "skellam",
        "dimension": 8,
        "bits": 16,
        "scale": 64.0,
        "clip_norm": 1.0,
        "total_noise": 40000.0,
        "shares": 10,
        "rotation_seed": "00" * 32,
        "rotate": True,
        "keep": None,
        "clip_slack": 0.0,
    },
    "bound": "paper",
    "slack": 0.0,
    "epsilon": 3.0,
}

DECODERS = {
    decoder.name: decoder
    for decoder in (
        Decoder(
            "messages",
            _any_message,
            tuple(map(messages.encode, EXAMPLES.values())),
            (ProtocolError,),
            lambda data: (
                data[: -messages.CHECKSUM_BYTES] + messages._checksum(data[: -messages.CHECKSUM_BYTES])
            ),
        ),
        Decoder(
            "client-state",
            _restore,
            (Client(5, CHANNEL).secret_state(), _joined_state()),
            (CorruptState,),
            lambda data: stored.with_digest(data[: -stored.DIGEST_BYTES]),
        ),
        Decoder(
            "packed",
            lambda data: (
                unpack(data[1:], 8 * len(data[1:]) // (1 + data[0] % 32), 1 + data[0] % 32) if data else None
            ),
            (b"\x04" + pack(np.arange(8), 5), b"\x07abc"),
            (InvalidInput,),
        ),
        Decoder("plan", Plan.from_json, (json.dumps(PLAN).encode(),), (SkelmixError,)),
        Decoder("plan-fields", _unproved(), (json.dumps(PLAN).encode(),), (SkelmixError,)),
        Decoder(
            "flower-request",
            _request,
            (
                _packed(Request("d" * 64, {"share": b"s", "unmask": b"u"}, "{}", b"g" * 64).to_record()),
                _packed(Request("d" * 64, {"advertise": b"a"}).to_record()),
            ),
            (ProtocolError, NotARecord),
        ),
        Decoder(
            "flower-answer",
            _answer,
            (_packed(Answer({"share": b"s"}, {"masked": "policy: no"}).to_record()),),
            (NotARecord,),
        ),
        Decoder("flower-memory", _memory, (_node_state(),), (CorruptState, NotARecord)),
        Decoder(
            "ledger",
            partial(_file, ".jsonl", open_ledger),
            (ledger_text(0), ledger_text(3)),
            (CorruptState,),
            seal_ledger,
        ),
        Decoder(
            "contributions",
            partial(_file, ".json", read_contributions),
            (contributions_text(),),
            (CorruptState,),
            seal_contributions,
        ),
        Decoder("idx", parse_idx, (_idx(), _idx(3), _idx(1, 9)), (CorruptState,)),
        Decoder(
            "idx-file", partial(_file, ".idx", read_idx), (_idx(), gzip.compress(_idx())), (CorruptState,)
        ),
        Decoder(
            "csv",
            partial(_file, ".csv", open_rows),
            (b"1,2\n3.5,-4e3\n", b"1\n2\n3\n", b'"1",2\r\n3,"4"\r\n'),
            (InvalidInput,),
        ),
        Decoder(
            "npy",
            partial(_file, ".npy", open_rows),
            (_npy(np.eye(3)), _npy(np.arange(6).reshape(2, 3))),
            (InvalidInput,),
        ),
        Decoder("parquet", partial(_file, ".parquet", open_rows), (_parquet(),), (InvalidInput,)),
        Decoder(
            "results",
            partial(_file, ".csv", lambda path: read(path, ["a"])),
            (b"# made\na,b\n1,2.5\n2,x\n",),
            (CorruptState,),
        ),
    )
}
