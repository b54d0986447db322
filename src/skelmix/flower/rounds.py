"""One round of secure aggregation as the grid runs it: requests and answers by node, and who is still in."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skelmix.errors import InvalidInput, ProtocolError, RoundFailed
from skelmix.flower.waves import Outcome
from skelmix.planning import Cohort, Plan
from skelmix.rounds.context import round_context
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings
from skelmix.wording import counted

log = logging.getLogger("flwr.skelmix")


class SecureRound:
    """A round around the aggregator's `Server`; `requests` holds what is to be sent next, by node.

    clip_norm: that of this round, where the plan's clip is adaptive.
    """

    def __init__(
        self,
        server: Server,
        roster: tuple[int, ...],
        requests: dict[int, bytes],
        cohort: Cohort,
        clip_norm: float | None = None,
    ) -> None:
        self._server, self.roster, self.requests, self.clip_norm = server, roster, requests, clip_norm
        self._cohort = cohort

    @classmethod
    def start(
        cls,
        plan: Plan,
        round_number: int,
        keys: Mapping[int, bytes],
        *,
        digest: str,
        session: bytes,
        run: int,
        clip_norm: float | None,
        malicious: bool,
        sparse: bool,
    ) -> SecureRound:
        """A round among the nodes that advertised `keys`; `RoundFailed` when so few cannot make one.

        digest: what all of them must have accepted, the plan's with the question in it (`bound_digest`).
        """
        count = len(keys)
        if count == 0:
            raise RoundFailed(
                "no node answered: see the nodes' logs; where they start slowly, give them longer with "
                "SecureGrid(phase_timeout=…)"
            )
        if count < plan.fewest_at_start:
            raise RoundFailed(
                f"{counted(count, 'node')} advertised keys: the noise of {plan.mechanism.name} is proved for "
                f"{plan.fewest_at_start} that start a round; wait for all, or plan with mechanism='smm'"
            )
        cohort, mechanism = plan.cohort.roster, plan.mechanism
        threshold = cohort.min_survivors(count, malicious=malicious, sparse=sparse)
        if count < 2 or cohort.shares(count) == 0 or threshold > count:
            raise RoundFailed(
                f"{counted(count, 'node')} advertised keys: too few for a sum that hides anyone"
            )
        settings = Settings(
            mechanism.coordinates,
            mechanism.bits,
            threshold,
            cohort.colluding,
            malicious,
            full_graph=not sparse,
            context=round_context(digest, round_number, run, clip_norm),
            noise=plan.removable_noise,
            dropout_rate=cohort.assumed_dropout_rate,
        )
        server = Server(settings, round=round_number, session=session)
        for node, data in keys.items():
            try:
                server.advertise(data, node)
            except ProtocolError as error:
                log.warning("node %d: %s", node, error)
        try:
            requests = server.close_advertise()
        except InvalidInput as error:
            raise RoundFailed(f"{counted(count, 'node')} cannot make a round: {error}") from error
        return cls(server, tuple(requests), requests, cohort, clip_norm)

    @property
    def round(self) -> int:
        return self._server.round

    @property
    def threshold(self) -> int:
        return self._server.settings.threshold

    @property
    def survivors(self) -> tuple[int, ...]:
        return self._server.survivors

    def enough(self, answered: set[int]) -> bool:
        """Whether no more than the tolerated fraction of the nodes asked in the current phase is missing.

        Fewer may be enough to open the sum: nobody is cut off as soon as the threshold is reached.
        """
        awaited = self._cohort.tolerated_survivors(len(self.requests))
        return len(answered & set(self.requests)) >= max(self.threshold, awaited)

    def take(self, phase: str, outcome: Outcome) -> set[int]:
        """Hand the answers of a phase to the server; returns the nodes whose answer it accepted.

        All others count as silent.
        """
        accept = getattr(self._server, phase)
        taken = set()
        for node in self.requests:
            data = outcome.answers[node].parts.get(phase) if node in outcome.answers else None
            if data is None:
                continue
            try:
                accept(data, node)
            except ProtocolError as error:
                log.warning("node %d, %s: %s", node, phase, error)
            else:
                taken.add(node)
        return taken

    def close_share(self) -> Prepared:
        self.requests = self._server.close_share()
        return Prepared(self, self.roster, frozenset(self.requests))

    def close_masked(self) -> None:
        self.requests = self._server.close_masked()

    def close_consistency(self) -> None:
        self.requests = self._server.close_consistency()

    def close_unmask(self) -> Any:
        """The sum modulo 2^bits; `RoundFailed` when too few unmasked."""
        return self._server.close_unmask()


@dataclass(frozen=True)
class Prepared:
    """A round whose keys are shared and whose training can start."""

    secure: SecureRound
    roster: tuple[int, ...]
    sharers: frozenset[int]

    def usable(self, nodes: set[int]) -> bool:
        """Whether enough of those who shared are among the nodes that the strategy proposes now."""
        return len(self.sharers & nodes) >= self.secure.threshold
