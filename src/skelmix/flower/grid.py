"""The server side: a `Grid` whose training rounds are secure and differentially private.

`strategy.start(grid=SecureGrid(grid, plan), ...)`. The strategy proposes nodes and a model as ever; it gets
back one reply: the model moved by (sum of the clipped, noisy updates)/(expected contributions), with
weight 1, which every averaging strategy passes on unchanged. Evaluation and query messages go through as
they are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from skelmix.errors import InvalidInput, RoundFailed
from skelmix.flower.arrays import dtypes, moved, only_arrays, recast
from skelmix.flower.coordinator import Coordinator
from skelmix.flower.round_log import RoundLog, server_round
from skelmix.flower.waves import Waiting
from skelmix.planning import Plan
from skelmix.rounds.ledger import Ledger
from skelmix.secagg.keys import Identity
from skelmix.validation import positive
from skelmix.wording import counted


class PlanFile(Protocol):
    """A file that holds a plan: a path, or package data of `importlib.resources`."""

    def read_text(self, encoding: str | None = None) -> str: ...


@dataclass(frozen=True)
class RoundRecord:
    """What may be known of a round: its number, who started, who is in the sum, its waves and seconds.

    round: its place in plan and ledger, from 0. server_round: the number that Flower's log has for it.

    With an adaptive clip also the round's clip norm, and the released estimate of the fraction of updates
    that were within it.

    Example:

        >>> from skelmix.flower import RoundRecord
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
    clip_norm: float | None = None
    within: float | None = None
    server_round: int = 0


class SecureGrid(Grid):
    """A grid whose train rounds are private sums under `plan`: a `Plan`, its JSON text, or a file of it.

    A file is a path, or something with `read_text`, such as package data by `importlib.resources.files`. The
    ServerApp runs in a process of the SuperLink, from a copy of the app: a relative path is not that of
    whoever typed `flwr run`.

    ledger: a `Ledger`, or the path of its file; by default it is kept in memory. Every round is charged
      before a client is asked to train, opened or not, and where cohorts are sampled before its cohort is
      drawn: what becomes of a cohort may reveal who is in it, so each one drawn counts as a round. With a
      ledger file a new run goes on where the last one stopped; `BudgetExhausted` is raised when the plan's
      rounds are used up. The file is locked until `close` or the end of the process: a second server with
      the same ledger fails at once.
    identity: the server's signing key, for clients that pinned its public half.
    malicious: secure the rounds against a malicious aggregator too: one more wave per round; every client
      needs an identity and the others' public keys.
    sparse: let 100 and more participants share masks along a sparse graph; clients need `full_roster=False`.
    phase_timeout, patience, poll: see `Waiting`; the training wave has the strategy's own timeout. Where
      cohorts are sampled, ε for observers assumes that who is too late does not depend on who else was drawn:
      give enough patience for all who answer at all.
    weight_key: the strategy's `weighted_by_key`.
    clip_norm: with an adaptive clip, that of the first round here, when the run goes on where an earlier one
      stopped (`history[-1].clip_norm` there); by default the plan's start.

    `history` has one `RoundRecord` per round. A round with too few survivors is skipped: the strategy sees no
    replies and keeps its model, the ledger keeps the charge. When clients refuse the plan, so that no round
    can succeed, `PolicyViolation` is raised. When as many rounds as the plan pays for were tried and none was
    opened, `RoundFailed` ends the run, so that no untrained model is taken for its result; `with
    SecureGrid(...) as secure:` does so after fewer rounds, too.

    Example: `strategy.start(grid=SecureGrid(grid, plan), initial_arrays=arrays, num_rounds=plan.rounds)`.
    """

    def __init__(
        self,
        grid: Grid,
        plan: Plan | PlanFile | str,
        *,
        ledger: Ledger | Path | str | None = None,
        identity: Identity | None = None,
        malicious: bool = False,
        sparse: bool = False,
        phase_timeout: float = 120.0,
        patience: float = 10.0,
        poll: float = 0.25,
        weight_key: str = "num-examples",
        clip_norm: float | None = None,
    ) -> None:
        positive(phase_timeout=phase_timeout, patience=patience, poll=poll)
        plan = _read_plan(plan)
        if not plan.mechanism.distributed:
            raise InvalidInput(
                f"mechanism {plan.mechanism.name!r} is central: secure aggregation needs integers, use 'smm'"
            )
        if malicious and not plan.cohort.roster.opens_by_majority(plan.target.delta, plan.rounds):
            raise InvalidInput(
                "malicious = True: at the plan's dropout rate a round may miss its majority, which reveals "
                "who was sampled, and δ does not pay for that; plan with larger cohorts or fewer dropouts"
            )
        self.grid, self.plan = grid, plan
        self._coordinator = Coordinator(
            grid,
            plan,
            identity=identity,
            malicious=malicious,
            sparse=sparse,
            waiting=Waiting(phase_timeout, patience, poll),
        )
        if clip_norm is not None:
            if plan.adaptive_clip is None:
                raise InvalidInput(f"clip_norm = {clip_norm}: the plan has a fixed one; leave it out")
            self._coordinator.clip.continue_from(clip_norm)
        if not isinstance(ledger, Ledger):
            path = None if ledger is None else Path(ledger)
            ledger = Ledger(path, plan_digest=self._coordinator.digest, budget=plan.rounds)
        self.ledger = ledger
        self.history: list[RoundRecord] = []
        self._log, self._most = RoundLog(plan), ledger.remaining
        self._weight_key = weight_key
        self._dtypes: dict[str, str] = {}

    def close(self) -> None:
        """Release the ledger's file for another server; no more rounds are run here."""
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None:
            self._raise_if_none_opened()

    def _raise_if_none_opened(self) -> None:
        if self.history and not any(record.opened for record in self.history):
            raise RoundFailed(
                f"none of {counted(len(self.history), 'round')} was opened, so the model is not trained; "
                f"{counted(self.ledger.charged, 'round')} of the plan's {self.plan.rounds} stay charged. The "
                f"last one: {self.history[-1].reason}"
            )

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
        coordinator, before, template = self._coordinator, self._coordinator.waves, messages[0]
        start = time.monotonic()
        arrays_key, model = _common_model(messages)
        self._dtypes = self._dtypes or dtypes(model)
        model = recast(model, self._dtypes)
        wanted = {message.metadata.dst_node_id: message for message in messages}
        everyone = set(self.get_node_ids()) <= set(wanted)
        round_number = self._next_round(set(wanted))
        cohort, survivors, reason, clip_norm, within = 0, 0, "", None, None
        reply: list[Message] = []
        try:
            prepared = coordinator.keys_for(round_number, set(wanted), template, self.ledger.charge)
            cohort, clip_norm = len(prepared.roster), prepared.secure.clip_norm
            if self.ledger.charged == round_number:
                self.ledger.charge(round_number)
            secure, metrics = coordinator.upload(prepared, wanted, {arrays_key: model}, timeout)
            survivors = len(secure.survivors)
            following = self.ledger.charged if everyone and self.ledger.remaining else None
            total = coordinator.open(secure, following, template, self.ledger.charge)
            decoded = self.plan.mechanism.decode(total, round=round_number)
            summed, within = coordinator.clip.take(decoded, clip_norm)
            step = summed / self.plan.cohort.divisor
            content = RecordDict({arrays_key: moved(model, step), "metrics": self._metrics(metrics)})
            reply = [Message(content, reply_to=template)]
        except RoundFailed as error:
            reasons = (f"node {node}: {text}" for node, text in coordinator.refusals.items())
            reason = "; ".join([str(error), *reasons])
        waves, seconds = coordinator.waves - before, time.monotonic() - start
        record = RoundRecord(
            round_number, cohort, survivors, bool(reply), waves, seconds, reason, clip_norm, within,
            server_round(template, round_number + 1),
        )  # fmt: skip
        self.history.append(record)
        charged = min(self.ledger.charged, round_number + 1)  # without the next one, if it was drawn ahead
        if reply:
            self._log.opened(record, charged, reply[0].content.metric_records["metrics"])
        else:
            self._log.skipped(record, charged, charged=charged > round_number)
            if len(self.history) >= self._most:
                self._raise_if_none_opened()
        return reply

    def _next_round(self, nodes: set[int]) -> int:
        """The number of the round to run: one whose cohort was drawn, and charged, ahead, or the next one.

        Raises `BudgetExhausted`, before anyone is bothered, when the plan pays for no more.
        """
        ahead = self._coordinator.round_ahead(nodes)
        if ahead is None and not self.ledger.remaining:
            self.ledger.charge(self.ledger.charged)
        return self.ledger.charged if ahead is None else ahead

    def _metrics(self, records: dict[int, MetricRecord]) -> MetricRecord:
        """The plain mean of each public metric over the nodes that sent it, and the weight 1."""
        values: dict[str, list[float]] = {}
        for record in records.values():
            for name, value in record.items():
                if isinstance(value, int | float):
                    values.setdefault(name, []).append(float(value))
        return MetricRecord(
            {**{name: float(np.mean(numbers)) for name, numbers in values.items()}, self._weight_key: 1.0}
        )


def _read_plan(plan: Plan | PlanFile | str) -> Plan:
    if isinstance(plan, Plan):
        return plan
    if isinstance(plan, str) and plan.lstrip().startswith("{"):
        return Plan.from_json(plan)
    file = Path(plan) if isinstance(plan, str) else plan
    try:
        return Plan.from_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(
            f"plan = {str(plan)!r}: cannot be read ({error.strerror}) from {Path.cwd()}, where the "
            "ServerApp runs. Put the file into the app's package and pass importlib.resources.files(package) "
            "/ 'plan.json', or pass the plan's JSON text"
        ) from error


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
