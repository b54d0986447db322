"""What travels in a Flower message: one `ConfigRecord` beside the app's own records.

A wave is one message to each of some nodes and their answers. A request may carry several parts of secure
aggregation at once (the unmasking of one round and the key sharing of the next); a client answers them one
by one, in the order of `PARTS`, so that a refused part does not take an answered one with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from flwr.app import ConfigRecord, RecordDict

from skelmix.errors import ProtocolError
from skelmix.planning.digest import json_digest
from skelmix.secagg.keys import Identity, framed, number, verify

RECORD = "skelmix"
VERSION = 2
ADVERTISE, CONSISTENCY, UNMASK, SHARE, MASKED = "advertise", "consistency", "unmask", "share", "masked"
PARTS = (ADVERTISE, CONSISTENCY, UNMASK, SHARE, MASKED)
"""The phases, in the order in which a client handles them when they come in one message."""

REFUSED_CODE = 4501
"""Code of the Flower `Error` with which a client refuses a whole message."""

POLICY_PREFIX = "policy: "


def bound_digest(plan_digest: str, question: str = "") -> str:
    """The name under which nodes join: the plan's digest, bound to the question where one is asked.

    Nodes that were given different questions, or the same one with other weights, share no key.
    """
    return json_digest("question", {"plan": plan_digest, "question": question}) if question else plan_digest


@dataclass(frozen=True)
class Request:
    """The server's request to a client.

    `digest`: the plan's, with the question in it (`bound_digest`). `parts`: phase -> the server's message of
    that phase. `plan`, and `question` where one is asked, only when the client may not have them. clip_norm:
    that of the round whose keys are shared, where the plan's clip is adaptive.
    """

    digest: str
    parts: dict[str, bytes] = field(default_factory=dict)
    plan: str = ""
    signature: bytes = b""
    clip_norm: float | None = None
    question: str = ""

    def signed_by(self, identity: Identity | None, run: int, node: int) -> Request:
        """The request with the server's signature for this run and node; unchanged without an identity."""
        if identity is None:
            return self
        signature = identity.sign(b"flower request", *self._signed_parts(run, node))
        return replace(self, signature=signature)

    def check_signature(self, public: bytes, run: int, node: int) -> None:
        """Raise `NotAuthentic` unless the holder of `public` signed this request for this run and node."""
        verify(public, self.signature, b"flower request", *self._signed_parts(run, node))

    def _signed_parts(self, run: int, node: int) -> tuple[bytes, ...]:
        parts = framed(*(item for name, data in sorted(self.parts.items()) for item in (name.encode(), data)))
        clip = () if self.clip_norm is None else (self.clip_norm.hex().encode(),)
        return number(run), number(node), self.digest.encode(), self.plan.encode(), parts, *clip

    def to_record(self) -> ConfigRecord:
        record = ConfigRecord({"version": VERSION, "digest": self.digest, **self.parts})
        if self.plan:
            record["plan"] = self.plan
        if self.question:
            record["question"] = self.question
        if self.signature:
            record["signature"] = self.signature
        if self.clip_norm is not None:
            record["clip-norm"] = self.clip_norm
        return record

    @classmethod
    def from_record(cls, record: ConfigRecord) -> Request:
        """The inverse of `to_record`; anything else raises `ProtocolError`."""
        values = dict(record)
        version, digest = values.pop("version", None), values.pop("digest", None)
        plan, signature = values.pop("plan", ""), values.pop("signature", b"")
        clip_norm = values.pop("clip-norm", None)
        question = values.pop("question", "")
        if type(version) is not int or version != VERSION:
            raise ProtocolError(
                f"the server speaks version {version!r}, this client {VERSION}: update the older one"
            )
        if type(digest) is not str or type(plan) is not str or type(signature) is not bytes:
            raise ProtocolError("the server's request is malformed")
        if clip_norm is not None and type(clip_norm) is not float:
            raise ProtocolError("the server's request is malformed")
        if type(question) is not str:
            raise ProtocolError("the server's request has a malformed question")
        parts = {}
        for name, data in values.items():
            if name not in PARTS or type(data) is not bytes:
                raise ProtocolError(f"the server's request has an unknown part {name!r}")
            parts[name] = data
        return cls(digest, parts, plan, signature, clip_norm, question)


@dataclass(frozen=True)
class Answer:
    """The client's answer: for each phase asked for, its message or the reason for a refusal."""

    parts: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def to_record(self) -> ConfigRecord:
        reasons = {f"refused-{name}": reason for name, reason in self.refused.items()}
        return ConfigRecord({"version": VERSION, **self.parts, **reasons})

    @classmethod
    def from_content(cls, content: RecordDict) -> Answer:
        """The inverse of `to_record`; fields of another type are left out, as if not answered."""
        record = content.config_records.get(RECORD, ConfigRecord())
        parts, refused = {}, {}
        for name in PARTS:
            data, reason = record.get(name), record.get(f"refused-{name}")
            if isinstance(data, bytes):
                parts[name] = data
            elif isinstance(reason, str):
                refused[name] = reason[:500]
        return cls(parts, refused)
