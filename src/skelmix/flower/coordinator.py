"""Drives the waves of a run: who has advertised keys, which round is open, what goes into which message.

Waves. A round needs key sharing, then training and upload, then unmasking. Key sharing does not depend on the
model, so that of round t + 1 travels in the same messages as the unmasking of round t: two waves per round,
after one wave in which the nodes advertise their long-lived keys and check the plan, and one for the keys
of the first round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from skelmix.errors import InvalidInput, PolicyViolation, RoundFailed
from skelmix.flower.cohort_draw import draw
from skelmix.flower.records import (
    ADVERTISE,
    CONSISTENCY,
    MASKED,
    RECORD,
    SHARE,
    UNMASK,
    Request,
    bound_digest,
)
from skelmix.flower.rounds import Prepared, SecureRound
from skelmix.flower.waves import Enough, Outcome, Waiting, exchange
from skelmix.noise.entropy import system_entropy
from skelmix.planning import Plan
from skelmix.rounds.running_clip import RunningClip
from skelmix.secagg.keys import Identity
from skelmix.secagg.messages import SESSION_BYTES

log = logging.getLogger("flwr.skelmix")

Parts = dict[int, dict[str, bytes]]
Charge = Callable[[int], None]
"""Records that a round of this number has begun."""


class Coordinator:
    """The state of a run between rounds, and one method for each wave.

    `waves` counts those sent so far; `refusals` are the reasons given in the last one, by node. `clip` holds
    the clip norm that the next round to share keys is bound to: with an adaptive clip, nodes that were given
    different clip norms share no key.
    """

    def __init__(
        self,
        grid: Grid,
        plan: Plan,
        *,
        identity: Identity | None,
        malicious: bool,
        sparse: bool,
        waiting: Waiting,
        question: str = "",
    ) -> None:
        self._grid, self._plan = grid, plan
        self._text, self._question = plan.to_json(), question
        self.digest = bound_digest(plan.digest(), question)
        self._identity, self._malicious, self._sparse = identity, malicious, sparse
        self._waiting = waiting
        self.clip = RunningClip(plan)
        self._keys: dict[int, bytes] = {}  # node -> its advertisement
        self._quiet: set[int] = set()
        self._session = b""
        self._prepared: Prepared | None = None
        self.refusals: dict[int, str] = {}
        self.waves = 0

    def round_ahead(self, nodes: set[int]) -> int | None:
        """The round whose keys were shared ahead, if enough of the nodes that did so are among `nodes`."""
        if self._prepared is not None and not self._prepared.usable(nodes):
            self._prepared = None
        return None if self._prepared is None else self._prepared.secure.round

    def keys_for(self, round_number: int, nodes: set[int], template: Message, charge: Charge) -> Prepared:
        """A cohort among `nodes` that has shared keys: the one of `round_ahead`, or a new one.

        charge: called before a cohort is drawn whose members are secret, so that each is paid for, whatever
        becomes of it. Where everyone takes part there is no draw, and nothing is charged here.
        """
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.secure.round == round_number:
            return prepared
        if not nodes <= set(self._keys):
            self._advertise(nodes, template)
        self._session = system_entropy().bytes(SESSION_BYTES)  # no client joins a round of a session twice
        connected = len(nodes.union(self._grid.get_node_ids()))
        cohort = self._draw(nodes, lambda: charge(round_number), connected=connected)
        secure = self._new_round(round_number, cohort & set(self._keys), template)
        outcome = self._wave(
            {node: {SHARE: data} for node, data in secure.requests.items()},
            template,
            secure.enough,
            clip_norm=secure.clip_norm,
        )
        return self._shared(secure, outcome)

    def _advertise(self, nodes: set[int], template: Message) -> None:
        """Learn the keys of those among `nodes` that are new.

        Raises `PolicyViolation` when so many refuse the plan that the others cannot make a round.
        """
        parts: Parts = {node: {ADVERTISE: b""} for node in nodes - set(self._keys)}
        need = self._plan.cohort.roster.tolerated_survivors(len(nodes))
        known = len(nodes) - len(parts)
        outcome = self._wave(parts, template, lambda answered: known + len(answered) >= need)
        self._learn_keys(outcome)
        refusals = outcome.policy_refusals
        if refusals and len(nodes) - len(refusals) < max(2, need):
            node, reason = next(iter(refusals.items()))
            raise PolicyViolation(
                f"{len(refusals)} of {len(nodes)} nodes refuse the plan; node {node}: {reason}"
            )

    def _learn_keys(self, outcome: Outcome) -> None:
        self._quiet = outcome.silent - set(self._keys)
        for node, answer in outcome.answers.items():
            if ADVERTISE in answer.parts:
                self._keys[node] = answer.parts[ADVERTISE]

    def _forget_keys(self, nodes: set[int], outcome: Outcome) -> None:
        """Forget the keys of nodes that answered wrongly.

        Such a node may have restarted, and must advertise again. A silent one keeps its place.
        """
        for node in nodes & set(outcome.refusals):
            self._keys.pop(node, None)

    def _draw(self, nodes: set[int], charge: Callable[[], None], *, connected: int | None = None) -> set[int]:
        """The cohort of a round, charged for, if there are nodes enough to sample it from.

        Nodes that never advertised keys do not count: they are in no roster, which is no dropout by chance.
        connected: how many nodes are connected, of which the strategy may have chosen these.
        """
        plan, here = self._plan, len(nodes & set(self._keys))
        leak = plan.cohort.roster.membership_leak_probability(
            plan.rounds, nodes=here, malicious=self._malicious
        )
        if leak > plan.cohort.delta_for_small_cohorts(plan.target.delta, plan.rounds):
            raise RoundFailed(
                f"{here} of {plan.cohort.roster.population} nodes are here: a sample may be too small, "
                "or too large, to open, which reveals who was sampled; wait for more, or plan for this "
                "population"
            )
        return draw(plan.cohort.roster, nodes, charge=charge, connected=connected)

    def _new_round(self, round_number: int, cohort: set[int], template: Message) -> SecureRound:
        keys = {node: self._keys[node] for node in cohort}
        return SecureRound.start(
            self._plan,
            round_number,
            keys,
            digest=self.digest,
            session=self._session,
            run=self._run(template),
            clip_norm=self.clip.stated,
            malicious=self._malicious,
            sparse=self._sparse,
        )

    def _run(self, template: Message) -> int:
        """The run's number; in older versions of Flower a message does not know it until it is sent."""
        return int(template.metadata.run_id or self._grid.run.run_id)

    def _shared(self, secure: SecureRound, outcome: Outcome) -> Prepared:
        asked = set(secure.requests)
        self._forget_keys(asked - secure.take(SHARE, outcome), outcome)
        return secure.close_share()

    def upload(
        self,
        prepared: Prepared,
        wanted: dict[int, Message],
        model: dict[str, ArrayRecord],
        timeout: float,
    ) -> tuple[SecureRound, dict[int, MetricRecord]]:
        """The training wave, to each node that shared keys and is still there.

        It carries the app's own message and the others' shares.
        """
        secure = prepared.secure
        parts = {node: {MASKED: data} for node, data in secure.requests.items() if node in wanted}
        waiting = Waiting(timeout, self._waiting.patience, self._waiting.poll)
        records = {node: {**wanted[node].content, **model} for node in parts}
        template = next(iter(wanted.values()))
        outcome = self._wave(parts, template, secure.enough, waiting=waiting, records=records)
        sent = secure.take(MASKED, outcome)
        self._forget_keys(set(parts) - sent, outcome)
        secure.close_masked()
        return secure, {node: outcome.metrics[node] for node in sent}

    def open(self, secure: SecureRound, following: int | None, template: Message, charge: Charge) -> Any:
        """Unmask a round, and share keys for round `following` in the same wave; the sum modulo 2^bits.

        Keys are shared ahead only when that round's cohort can be drawn by now; charge: as in `keys_for`.
        """
        if self._malicious:
            requests = secure.requests
            outcome = self._wave(
                {node: {CONSISTENCY: data} for node, data in requests.items()}, template, secure.enough
            )
            secure.take(CONSISTENCY, outcome)
            secure.close_consistency()
        parts: Parts = {node: {UNMASK: data} for node, data in secure.requests.items()}
        ahead = None if following is None else self._ahead(following, secure, template, charge)
        if ahead is not None:
            for node, data in ahead.requests.items():
                parts.setdefault(node, {})[SHARE] = data
        for node in self._newcomers():
            parts.setdefault(node, {})[ADVERTISE] = b""

        def enough(answered: set[int]) -> bool:
            return secure.enough(answered) and (ahead is None or ahead.enough(answered))

        outcome = self._wave(parts, template, enough, clip_norm=None if ahead is None else ahead.clip_norm)
        secure.take(UNMASK, outcome)
        self._learn_keys(outcome)
        if ahead is not None:
            try:
                self._prepared = self._shared(ahead, outcome)
            except RoundFailed as error:
                log.warning("keys for round %d could not be shared ahead: %s", ahead.round, error)
        return secure.close_unmask()

    def _ahead(
        self, round_number: int, secure: SecureRound, template: Message, charge: Charge
    ) -> SecureRound | None:
        """The next round, for a cohort drawn now; None when that must wait for the strategy's proposal.

        Nodes that fell silent in this round are left out of the next one: waiting for them would delay
        everybody.
        """
        lost = set(secure.roster) - set(secure.survivors)
        there = set(self._grid.get_node_ids()) & set(self._keys) - lost
        try:
            cohort = self._draw(there, lambda: charge(round_number))
            return self._new_round(round_number, cohort, template)
        except (RoundFailed, InvalidInput):
            return None

    def _newcomers(self) -> set[int]:
        """Nodes whose keys are not known, except those that were asked last time and did not answer."""
        return set(self._grid.get_node_ids()) - set(self._keys) - self._quiet

    def _wave(
        self,
        parts: Parts,
        template: Message,
        enough: Enough,
        *,
        waiting: Waiting | None = None,
        records: dict[int, dict[str, Any]] | None = None,
        clip_norm: float | None = None,
    ) -> Outcome:
        """Send each node its parts, beside the app's own `records` when it trains.

        Plan and question go along with ADVERTISE, an adaptive clip's norm with SHARE.
        """
        self.waves += 1
        waiting = waiting or self._waiting
        messages = []
        for node, node_parts in sorted(parts.items()):
            request = Request(self.digest, node_parts, clip_norm=clip_norm if SHARE in node_parts else None)
            if ADVERTISE in node_parts:
                request = replace(request, plan=self._text, question=self._question)
            request = request.signed_by(self._identity, self._run(template), node)
            messages.append(
                Message(
                    RecordDict({**(records[node] if records else {}), RECORD: request.to_record()}),
                    dst_node_id=node,
                    message_type=template.metadata.message_type,
                    ttl=waiting.timeout + 60,
                    group_id=template.metadata.group_id,
                )
            )
        outcome = exchange(self._grid, messages, enough, waiting)
        self.refusals = outcome.refusals
        return outcome
