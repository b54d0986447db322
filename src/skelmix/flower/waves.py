"""One wave: a message to each of some nodes, and as many answers as the round needs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from flwr.app import Message, MetricRecord
from flwr.serverapp import Grid

from skelmix.flower.records import POLICY_PREFIX, Answer

log = logging.getLogger("flwr.skelmix")

Enough = Callable[[set[int]], bool]


@dataclass(frozen=True)
class Waiting:
    """How long a wave lasts.

    It ends when every node has answered, or after `timeout` seconds; and, once `enough` have answered,
    after as long again as they took, but at least `patience` seconds. poll: seconds between two looks.
    """

    timeout: float
    patience: float
    poll: float


@dataclass
class Outcome:
    """The outcome of a wave. `silent`: asked, no answer in time. `refusals`: reasons, one per line."""

    answers: dict[int, Answer] = field(default_factory=dict)
    metrics: dict[int, MetricRecord] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    refusals: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def policy_refusals(self) -> dict[int, str]:
        """Refusals for reasons of policy: asking again does not help."""
        return {
            node: reason.removeprefix(POLICY_PREFIX)
            for node, reason in self.refusals.items()
            if reason.startswith(POLICY_PREFIX)
        }


def exchange(grid: Grid, messages: Iterable[Message], enough: Enough, waiting: Waiting) -> Outcome:
    """Send the messages, one per node, and collect answers.

    Late answers, to this wave or an earlier one, are never looked at.
    """
    asked = list(messages)
    start = time.monotonic()
    outcome = Outcome()
    open_ids: dict[str, int] = {}
    for message, message_id in zip(asked, grid.push_messages(asked), strict=True):
        node = message.metadata.dst_node_id
        if message_id:
            open_ids[message_id] = node
        else:
            outcome.refusals[node] = "the SuperLink did not take the message"
    end, satisfied = start + waiting.timeout, False
    while open_ids:
        for reply in grid.pull_messages(list(open_ids)):
            answered = open_ids.pop(reply.metadata.reply_to_message_id, None)
            if answered is not None:
                _take(outcome, answered, reply)
        now = time.monotonic()
        if not satisfied and enough(set(outcome.answers)):
            satisfied = True
            end = min(end, now + max(waiting.patience, now - start))
        if open_ids:
            if now >= end:
                break
            time.sleep(min(waiting.poll, max(0.0, end - now)))
    outcome.silent = set(open_ids.values())
    outcome.seconds = time.monotonic() - start
    for node, reason in outcome.refusals.items():
        log.warning("node %d: %s", node, reason)
    if outcome.silent:
        silent = len(outcome.silent)
        log.warning("%d of %d nodes did not answer within %.0f s", silent, len(asked), outcome.seconds)
    return outcome


def _take(outcome: Outcome, node: int, reply: Message) -> None:
    if reply.has_error():
        outcome.refusals[node] = reply.error.reason or f"error {reply.error.code}"
        return
    answer = Answer.from_content(reply.content)
    if not answer.parts and not answer.refused:
        outcome.refusals[node] = "the reply is not skelmix's: is ClientApp(mods=[skelmix_mod]) set?"
        return
    if answer.refused:
        outcome.refusals[node] = "; ".join(
            sorted(answer.refused.values(), key=lambda text: not text.startswith(POLICY_PREFIX))
        )
    outcome.answers[node] = answer
    outcome.metrics[node] = reply.content.metric_records.get("metrics", MetricRecord())
