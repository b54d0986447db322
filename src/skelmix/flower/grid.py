"""The server side: a `Grid` whose training rounds are secure and differentially private.

`strategy.start(grid=SecureGrid(grid, plan), ...)`. The strategy proposes nodes and a model as ever; it gets
back one reply: the model moved by (sum of the clipped, noisy updates)/(expected contributions), with
weight 1, which every averaging strategy passes on unchanged. Evaluation and query messages go through as
they are.
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

from skelmix.errors import InvalidInput, RoundFailed
from skelmix.flower.arrays import dtypes, moved, only_arrays, recast
from skelmix.flower.coordinator import Coordinator
from skelmix.flower.waves import Waiting
from skelmix.planning import Plan
from skelmix.rounds.ledger import Ledger
from skelmix.secagg.keys import Identity
from skelmix.validation import positive

log = logging.getLogger("flwr.skelmix")


@dataclass(frozen=True)
class RoundRecord:
    """What may be known of a round: its number, who started, who is in the sum, its waves and seconds.

    Example:

        >>> from skelmix.flower.grid import RoundRecord
        >>> RoundRecord(round=0, cohort=3, survivors=3, opened=True, waves=4, seconds=17.4).opened
        True
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
      one stopped; `BudgetExhausted` is raised when the plan's rounds are used up. The file is locked until
      `close` or the end of the process: a second server with the same ledger fails at once.
    identity: the server's signing key, for clients that pinned its public half.
    malicious: secure the rounds against a malicious aggregator too: one more wave per round; every client
      needs an identity and the others' public keys.
    sparse: let 100 and more participants share masks along a sparse graph; clients need `full_roster=False`.
    phase_timeout, patience, poll: see `Waiting`; the training wave has the strategy's own timeout.
    weight_key: the strategy's `weighted_by_key`.

    `history` has one `RoundRecord` per round. A round with too few survivors is skipped: the strategy sees no
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
                f"mechanism {plan.mechanism.name!r} is central: secure aggregation needs integers, use 'smm'"
            )
        self.grid, self.plan = grid, plan
        self._conductor = Coordinator(
            grid,
            plan,
            identity=identity,
            malicious=malicious,
            sparse=sparse,
            waiting=Waiting(phase_timeout, patience, poll),
        )
        if not isinstance(ledger, Ledger):
            path = None if ledger is None else Path(ledger)
            ledger = Ledger(path, plan_digest=self._conductor.digest, budget=plan.rounds)
        self.ledger = ledger
        self.history: list[RoundRecord] = []
        self._weight_key = weight_key
        self._dtypes: dict[str, str] = {}

    def close(self) -> None:
        """Release the ledger's file for another server; no more rounds are run here."""
        self.ledger.close()

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
        """Push messages as the wrapped grid does, except train messages: they need `send_and_receive`."""
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
        """One round, recorded in the history; no reply when it failed."""
        round_number, start = self.ledger.charged, time.monotonic()
        if not self.ledger.remaining:
            self.ledger.charge(round_number)  # raises BudgetExhausted, before anyone is bothered
        conductor, before, like = self._conductor, self._conductor.waves, messages[0]
        arrays_key, model = _common_model(messages)
        self._dtypes = self._dtypes or dtypes(model)
        model = recast(model, self._dtypes)
        wanted = {message.metadata.dst_node_id: message for message in messages}
        everyone = set(self.get_node_ids()) <= set(wanted)
        cohort, survivors, reason = 0, 0, ""
        reply: list[Message] = []
        try:
            prepared = conductor.keys_for(round_number, set(wanted), like)
            cohort = len(prepared.roster)
            self.ledger.charge(round_number)
            secure, metrics = conductor.upload(prepared, wanted, {arrays_key: model}, timeout)
            survivors = len(secure.survivors)
            following = self.ledger.charged if everyone and self.ledger.remaining else None
            total = conductor.open(secure, following, like)
            step = self.plan.mechanism.decode(total, round=round_number) / self.plan.cohort.divisor
            content = RecordDict({arrays_key: moved(model, step), "metrics": self._metrics(metrics)})
            reply = [Message(content, reply_to=like)]
        except RoundFailed as error:
            reasons = (f"node {node}: {text}" for node, text in conductor.refusals.items())
            reason = "; ".join([str(error), *reasons])
            cost = "its cost stays charged" if self.ledger.charged > round_number else "nothing was charged"
            log.warning("round %d is skipped, %s: %s", round_number, cost, reason)
        waves, seconds = conductor.waves - before, time.monotonic() - start
        self.history.append(RoundRecord(round_number, cohort, survivors, bool(reply), waves, seconds, reason))
        if reply:
            told = f"sum of {survivors} of {cohort} nodes in {waves} waves, {seconds:.1f} s"
            log.info("round %d: %s", round_number, told)
        return reply

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
    """The one model that all messages carry: differences to several models cannot be summed."""
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
