"""The server side: a `Grid` that turns a strategy's train messages into one secure, differentially private
round.

`strategy.start(grid=SecureGrid(grid, plan), ...)`. The strategy proposes nodes and a model as ever; it gets
back one reply: the model moved by (sum of the clipped, noisy updates)/(expected cohort), with weight 1,
which every averaging strategy passes on unchanged. Evaluation and query messages go through as they are.

Waves. A round needs key sharing, then training and upload, then unmasking. Key sharing does not depend on
the model, so that of round t + 1 travels in the same messages as the unmasking of round t: two waves a
round, after one wave in which the nodes advertise their long-lived keys and check the plan, and one for the
keys of the first round.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from skelmix.errors import InvalidInput, PolicyViolation, RoundFailed
from skelmix.federated.ledger import Ledger
from skelmix.flower.arrays import dtypes, moved, only_arrays, recast
from skelmix.flower.draw import draw
from skelmix.flower.records import ADVERTISE, CONSISTENCY, MASKED, RECORD, SHARE, UNMASK, Request, plan_digest
from skelmix.flower.rounds import Prepared, SecureRound
from skelmix.flower.waves import Enough, Outcome, Waiting, exchange
from skelmix.noise.entropy import system_entropy
from skelmix.plan import Plan
from skelmix.secagg.keys import Identity
from skelmix.secagg.messages import SESSION_BYTES
from skelmix.validation import positive

log = logging.getLogger("flwr.skelmix")

Parts = dict[int, dict[str, bytes]]


@dataclass(frozen=True)
class RoundRecord:
    """What can be told of a round: its number, who started and who is in the sum, waves and seconds it
    took.
    """

    round: int
    cohort: int
    survivors: int
    opened: bool
    waves: int
    seconds: float
    reason: str = ""


class SecureGrid(Grid):
    """A grid whose train rounds are private sums under `plan`: a `Plan`, or the path of its JSON.

    ledger: a `Ledger`, or the path of its file; by default it is kept in memory. Every round is charged
      before a client is asked to train, opened or not. With a ledger file a new run goes on where the last
      one stopped; `BudgetExhausted` is raised when the plan's rounds are used up.
    identity: the server's signing key, for clients that pinned its public half.
    malicious: secure the rounds against a malicious aggregator too: one more wave a round; every client
      needs an identity and the others' public keys.
    sparse: let 100 and more participants share masks along a sparse graph; clients need `full_roster=False`.
    phase_timeout, patience, poll: see `Waiting`; the training wave has the strategy's own timeout.
    weight_key: the strategy's `weighted_by_key`.

    `history` has one `RoundRecord` a round. A round with too few survivors is skipped: the strategy sees no
    replies and keeps its model, the ledger keeps the charge. When clients refuse the plan, so that no round
    can succeed, `PolicyViolation` is raised.

    Example: `strategy.start(grid=SecureGrid(grid, plan), initial_arrays=arrays, num_rounds=plan.rounds)`.
    """

    def __init__(
        self,
        grid: Grid,
        plan: Plan | Path | str,
        *,
        ledger: Ledger | Path | str | None = None,
        identity: Identity | None = None,
        malicious: bool = False,
        sparse: bool = False,
        phase_timeout: float = 120.0,
        patience: float = 10.0,
        poll: float = 0.25,
        weight_key: str = "num-examples",
    ) -> None:
        positive(phase_timeout=phase_timeout, patience=patience, poll=poll)
        if not isinstance(plan, Plan):
            plan = Plan.from_json(Path(plan).read_text())
        if not hasattr(plan.mechanism, "modulus"):
            raise InvalidInput(
                f"mechanism {plan.mechanism.name!r} is central: secure aggregation needs integers, say 'smm'"
            )
        self.grid, self.plan = grid, plan
        self._text = plan.to_json()
        self._digest = plan_digest(self._text)
        if not isinstance(ledger, Ledger):
            path = None if ledger is None else Path(ledger)
            ledger = Ledger(path, plan_digest=self._digest, budget=plan.rounds)
        self.ledger = ledger
        self.history: list[RoundRecord] = []
        self._identity, self._malicious, self._sparse = identity, malicious, sparse
        self._waiting = Waiting(phase_timeout, patience, poll)
        self._weight_key = weight_key
        self._keys: dict[int, bytes] = {}  # node -> its advertisement
        self._prepared: Prepared | None = None
        self._dtypes: dict[str, str] = {}
        self._session = b""
        self._quiet: set[int] = set()
        self._refusals: dict[int, str] = {}  # of the last wave
        self._waves = 0

    # what a strategy calls

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Train messages become one secure round and at most one reply; all others pass through."""
        asked = list(messages)
        train = [message for message in asked if _is_train(message)]
        if not train:
            return self.grid.send_and_receive(asked, timeout=timeout)
        if len(train) < len(asked):
            raise InvalidInput("train messages were mixed with others: send them apart")
        return self._train(train, 3600.0 if timeout is None else timeout)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As the wrapped grid, but for train messages: they need `send_and_receive`."""
        asked = list(messages)
        if any(_is_train(message) for message in asked):
            raise InvalidInput(
                "train messages cannot be pushed one by one: use send_and_receive, which runs a secure round"
            )
        return self.grid.push_messages(asked)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self.grid.pull_messages(message_ids)

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids()

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self.grid.create_message(*args, **kwargs)

    def set_run(self, run: Any) -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        return self.grid.run

    # one round

    def _train(self, messages: list[Message], timeout: float) -> list[Message]:
        round_number, start = self.ledger.charged, time.monotonic()
        if not self.ledger.remaining:
            self.ledger.charge(round_number)  # raises BudgetExhausted, before anyone is bothered
        arrays_key, model = _common_model(messages)
        self._dtypes = self._dtypes or dtypes(model)
        model = recast(model, self._dtypes)
        wanted = {message.metadata.dst_node_id: message for message in messages}
        self._waves, cohort, survivors, reason = 0, 0, 0, ""
        reply: list[Message] = []
        try:
            prepared = self._keys_for(round_number, set(wanted), messages[0])
            cohort = len(prepared.roster)
            self.ledger.charge(round_number)
            secure, metrics = self._upload(prepared, wanted, {arrays_key: model}, timeout)
            survivors = len(secure.survivors)
            total = self._open(
                secure, everyone=len(wanted) >= len(list(self.get_node_ids())), like=messages[0]
            )
            step = self.plan.mechanism.decode(total, round=round_number) / self.plan.cohort.expected
            content = RecordDict({arrays_key: moved(model, step), "metrics": self._metrics(metrics)})
            reply = [Message(content, reply_to=messages[0])]
        except RoundFailed as error:
            reason = "; ".join([str(error), *(f"node {n}: {text}" for n, text in self._refusals.items())])
            charged = (
                "its cost stays charged" if self.ledger.charged > round_number else "nothing was charged"
            )
            log.warning("round %d is skipped, %s: %s", round_number, charged, reason)
        seconds = time.monotonic() - start
        self.history.append(
            RoundRecord(round_number, cohort, survivors, bool(reply), self._waves, seconds, reason)
        )
        if reply:
            log.info(
                "round %d: sum of %d of %d nodes in %d waves, %.1f s",
                round_number,
                survivors,
                cohort,
                self._waves,
                seconds,
            )
        return reply

    def _keys_for(self, round_number: int, nodes: set[int], like: Message) -> Prepared:
        """A cohort among `nodes` that has shared keys: the one prepared with the last round, or a new one."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.usable(round_number, nodes):
            return prepared
        if unknown := nodes - set(self._keys):
            self._advertise({node: {ADVERTISE: b""} for node in unknown}, like)
        self._session = system_entropy().bytes(SESSION_BYTES)  # no client joins a round of a session twice
        secure = self._new_round(round_number, draw(self.plan.cohort, nodes) & set(self._keys))
        outcome = self._wave(
            {node: {SHARE: data} for node, data in secure.requests.items()}, like, secure.enough
        )
        return self._shared(secure, outcome)

    def _advertise(self, parts: Parts, like: Message) -> None:
        need = self.plan.cohort.min_survivors(len(parts))
        outcome = self._wave(parts, like, lambda answered: len(answered) >= need)
        self._learn_keys(outcome)
        refusals = outcome.policy_refusals
        if len(parts) - len(refusals) < need:
            node, reason = next(iter(refusals.items()))
            raise PolicyViolation(
                f"{len(refusals)} of {len(parts)} nodes refuse the plan; node {node}: {reason}"
            )

    def _learn_keys(self, outcome: Outcome) -> None:
        self._quiet = outcome.silent - set(self._keys)
        for node, answer in outcome.answers.items():
            if ADVERTISE in answer.parts:
                self._keys[node] = answer.parts[ADVERTISE]

    def _forget_keys(self, nodes: set[int], outcome: Outcome) -> None:
        """Of those who answered, but not as they should: such a node may have been started anew, and must
        advertise again. A silent one keeps its place."""
        for node in nodes & set(outcome.refusals):
            self._keys.pop(node, None)

    def _new_round(self, round_number: int, cohort: set[int]) -> SecureRound:
        keys = {node: self._keys[node] for node in cohort}
        return SecureRound.start(
            self.plan,
            round_number,
            keys,
            session=self._session,
            malicious=self._malicious,
            sparse=self._sparse,
        )

    def _shared(self, secure: SecureRound, outcome: Outcome) -> Prepared:
        asked = set(secure.requests)
        self._forget_keys(asked - secure.take(SHARE, outcome), outcome)
        return secure.close_share()

    def _upload(
        self,
        prepared: Prepared,
        wanted: dict[int, Message],
        model: dict[str, ArrayRecord],
        timeout: float,
    ) -> tuple[SecureRound, dict[int, MetricRecord]]:
        """The training wave: the app's own message and the shares of the others to each sharer that is
        still there.
        """
        secure = prepared.secure
        parts = {node: {MASKED: data} for node, data in secure.requests.items() if node in wanted}
        waiting = Waiting(timeout, self._waiting.patience, self._waiting.poll)
        records = {node: {**wanted[node].content, **model} for node in parts}
        like = next(iter(wanted.values()))
        outcome = self._wave(parts, like, secure.enough, waiting=waiting, records=records)
        sent = secure.take(MASKED, outcome)
        self._forget_keys(set(parts) - sent, outcome)
        secure.close_masked()
        return secure, {node: outcome.metrics[node] for node in sent}

    def _open(self, secure: SecureRound, *, everyone: bool, like: Message) -> Any:
        """Unmask this round, and in the same wave share keys for the next when its cohort can be drawn by
        now.
        """
        if self._malicious:
            requests = secure.requests
            outcome = self._wave(
                {node: {CONSISTENCY: data} for node, data in requests.items()}, like, secure.enough
            )
            secure.take(CONSISTENCY, outcome)
            secure.close_consistency()
        parts: Parts = {node: {UNMASK: data} for node, data in secure.requests.items()}
        following = self._following(secure) if everyone and self.ledger.remaining else None
        if following is not None:
            for node, data in following.requests.items():
                parts.setdefault(node, {})[SHARE] = data
        for node in self._newcomers():
            parts.setdefault(node, {})[ADVERTISE] = b""

        def enough(answered: set[int]) -> bool:
            return secure.enough(answered) and (following is None or following.enough(answered))

        outcome = self._wave(parts, like, enough)
        secure.take(UNMASK, outcome)
        self._learn_keys(outcome)
        if following is not None:
            try:
                self._prepared = self._shared(following, outcome)
            except RoundFailed as error:
                log.warning("keys for round %d could not be shared ahead: %s", following.round, error)
        return secure.close_unmask()

    def _following(self, secure: SecureRound) -> SecureRound | None:
        """The next round, joined by a cohort drawn now; None when that must wait for the strategy's proposal.

        Nodes that fell silent in this very round sit the next one out: waiting for them would hold up all.
        """
        lost = set(secure.roster) - set(secure.survivors)
        there = set(self.get_node_ids()) & set(self._keys) - lost
        try:
            return self._new_round(self.ledger.charged, draw(self.plan.cohort, there))
        except RoundFailed:
            return None

    def _newcomers(self) -> set[int]:
        """Nodes whose keys are not known, but for those that were asked last time and kept quiet."""
        return set(self.get_node_ids()) - set(self._keys) - self._quiet

    def _wave(
        self,
        parts: Parts,
        like: Message,
        enough: Enough,
        *,
        waiting: Waiting | None = None,
        records: dict[int, dict[str, Any]] | None = None,
    ) -> Outcome:
        """Send each node its parts, beside the app's own `records` when it trains. The plan goes along with
        ADVERTISE."""
        self._waves += 1
        waiting = waiting or self._waiting
        messages = []
        for node, some in sorted(parts.items()):
            text = self._text if ADVERTISE in some else ""
            request = Request(self._digest, some, text).signed_by(self._identity, like.metadata.run_id, node)
            messages.append(
                Message(
                    RecordDict({**(records[node] if records else {}), RECORD: request.to_record()}),
                    dst_node_id=node,
                    message_type=like.metadata.message_type,
                    ttl=waiting.timeout + 60,
                    group_id=like.metadata.group_id,
                )
            )
        outcome = exchange(self.grid, messages, enough, waiting)
        self._refusals = outcome.refusals
        return outcome

    def _metrics(self, found: dict[int, MetricRecord]) -> MetricRecord:
        """The plain mean of each public metric over the nodes that sent it, and the weight 1."""
        values: dict[str, list[float]] = {}
        for record in found.values():
            for name, value in record.items():
                if isinstance(value, int | float):
                    values.setdefault(name, []).append(float(value))
        return MetricRecord(
            {**{name: float(np.mean(some)) for name, some in values.items()}, self._weight_key: 1.0}
        )


def _is_train(message: Message) -> bool:
    return message.metadata.message_type.partition(".")[0] == "train"


def _common_model(messages: list[Message]) -> tuple[str, ArrayRecord]:
    """The one model that all messages carry: a sum of differences to several models would mean nothing."""
    key, model = only_arrays(messages[0].content, "the strategy's train message")
    for message in messages[1:]:
        _, other = only_arrays(message.content, "the strategy's train message")
        if other is not model and {k: v.data for k, v in other.items()} != {
            k: v.data for k, v in model.items()
        }:
            raise InvalidInput(
                "the strategy sends different models to different nodes: their updates cannot be summed"
            )
    if len({message.metadata.dst_node_id for message in messages}) < len(messages):
        raise InvalidInput("the strategy sends two train messages to one node: each may be in the sum once")
    return key, model
