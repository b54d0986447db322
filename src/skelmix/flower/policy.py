"""What a participant insists on, whatever the server asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from skelmix.encoding.indicator import AdaptiveClip
from skelmix.errors import InvalidInput, PolicyViolation
from skelmix.flower.plan_limits import check_plan
from skelmix.mechanisms.names import DISTRIBUTED
from skelmix.planning import Cohort
from skelmix.secagg.graph import Graph, opens
from skelmix.secagg.keys import KEY_BYTES, Identity
from skelmix.secagg.messages import ShareRequest
from skelmix.validation import positive, probability, whole

if TYPE_CHECKING:
    from skelmix.planning import Plan

_NODE_KEYS = {
    "skelmix-answer-seconds",
    "skelmix-max-epsilon",
    "skelmix-max-epsilon-aggregator",
    "skelmix-max-epsilon-round",
    "skelmix-max-contribute",
    "skelmix-max-delta",
    "skelmix-max-participations",
    "skelmix-max-population",
    "skelmix-min-cohort",
    "skelmix-server-identity",
    "skelmix-state",
}

_NUMBERS = ("max_epsilon", "max_epsilon_aggregator", "max_epsilon_round", "max_delta", "max_contribute")


def check_clip_norm(adaptive: AdaptiveClip | None, clip_norm: float | None, round: int) -> None:
    """Raise `PolicyViolation` unless the server's clip norm for this round is one that the plan can have.

    It moves by at most one step per round. Whatever it is, privacy is the same, since the noise scales with
    it.
    """
    if adaptive is None:
        if clip_norm is not None:
            raise PolicyViolation(f"clip norm {clip_norm:g} was asked for: the plan has a fixed one")
    elif clip_norm is None or not adaptive.reachable(clip_norm, round):
        raise PolicyViolation(
            f"clip norm {clip_norm} was asked for in round {round}: from the plan's start of "
            f"{adaptive.start:g} its steps do not lead there"
        )


def _check_mechanisms(names: tuple[str, ...]) -> None:
    """Raise `InvalidInput` for names that are not those of distributed mechanisms."""
    if not set(names) - set(DISTRIBUTED):
        return
    from skelmix.mechanisms.registry import MECHANISMS  # loads slowly, and is rarely needed here

    known = [name for name, kind in MECHANISMS.items() if kind.distributed]
    if unknown := set(names) - set(known):
        raise InvalidInput(
            f"mechanisms has {sorted(unknown)}: those for secure aggregation are {', '.join(known)}"
        )


@dataclass(frozen=True)
class ClientPolicy:
    """The conditions under which this node takes part.

    A plan or a round outside them is refused before any training.

    Of the plan, once in a run, with ε and δ as this node has proved them again:

    max_epsilon, max_delta: the most that the whole plan may cost against everyone who sees the models. δ must
      also be below 1/population.
    max_epsilon_aggregator: the most that it may cost against the aggregator, who knows who took part, over
      all rounds (`PrivacyReport.epsilon_aggregator`). Without a cap it
      holds for cohorts drawn as agreed only: an aggregator that picks this node in every round gets
      `epsilon_every_round`, which has no limit here. `max_participations` bounds that.
    max_participations: the most rounds of a run that this node contributes to; plans that could ask for more
      are refused. The node counts itself, so ε against the aggregator then holds whatever cohorts it picks.
    max_contribute: the largest probability with which this node sends its vector, by its own coin; 0.1 wants
      plans with `Cohort(contribute=0.1)` or less.
    max_epsilon_round: the most that one round may cost, at the plan's δ, for a vector (in silos a record)
      that is certainly in the sum: a minimum of noise per round, without sampling, coin or draw of records.
    max_population: the most participants there are, as the node's operator knows; plans for more are refused.
      By default the number of `trusted` keys. With neither, nothing is known of the population, and sampling
      is not believed in: `max_epsilon` then limits what the plan costs without sampling, all rounds
      together.
    mechanisms: the names that are allowed.
    allow_modelled: whether ε may rest on a model (`PrivacyReport.modelled`), as it does in sampled plans of
      other mechanisms than smm and skellam, and in those with cohorts of a fixed size and a cap. Of such a
      plan `max_epsilon` limits a modelled number; what is proved is limited by `max_epsilon_round` and
      `max_epsilon_aggregator`. A plan that proves neither is refused in any case.

    Of every round, as the server announces it:

    min_cohort: the fewest participants of a round.
    full_roster: insist on seeing every participant of a round, so that their number is counted and not
      believed.
    server_identity: the server's Ed25519 public key; train requests that it did not sign are then refused.
      Signed are the plan and the parts of secure aggregation, for this run and node. The model is not
      signed, nor are evaluate and query messages: anyone who can send those gets public metrics.
    identity, trusted: this node's signing key, and every participant's public key by node id, from a source
      that the server does not control. With them only rounds secured against a malicious server are
      accepted, and nobody can be invented.

    Of every reply, so that its shape shows nothing:

    public_metrics: metrics of the app that may leave the node, as single numbers without noise; all others
      are dropped. Each reply has all of them, 0 where the app gave none. In training under a plan for silos
      all of them are 0: nothing but the noised sum may depend on a record.
    weight_key: the metric by which strategies weight; where it is not public it is sent as 1.
    answer_seconds: the time that every answer to a training message takes, by waiting for the rest of it. A
      silo's work depends on how many records it drew, so choose more than the largest draw needs; an answer
      that takes longer is logged on the node. None: answers leave as soon as they are ready.

    Not enforced: that cohorts are really drawn at random, and that dropouts are as rare and independent as
    the plan states (`max_epsilon` rests on both; `max_epsilon_round` on neither), and anything across runs: ε
    is per run.

    Example:

        >>> ClientPolicy(max_epsilon=2.0).narrowed({"skelmix-max-epsilon": 1.5}).max_epsilon
        1.5
    """

    max_epsilon: float = 10.0
    max_delta: float = 1e-3
    max_epsilon_aggregator: float = 100.0
    max_epsilon_round: float = 12.0
    max_participations: int | None = None
    max_contribute: float = 1.0
    max_population: int | None = None
    min_cohort: int = 3
    mechanisms: tuple[str, ...] = DISTRIBUTED
    allow_modelled: bool = False
    server_identity: bytes | None = None
    identity: Identity | None = None
    trusted: Mapping[int, bytes] | None = None
    full_roster: bool = True
    public_metrics: tuple[str, ...] = ()
    weight_key: str = "num-examples"
    answer_seconds: float | None = None

    def __post_init__(self) -> None:
        positive(max_epsilon=self.max_epsilon, max_epsilon_aggregator=self.max_epsilon_aggregator)
        positive(max_epsilon_round=self.max_epsilon_round)
        probability(max_delta=self.max_delta)
        whole(2, min_cohort=self.min_cohort)
        positive(max_contribute=self.max_contribute)
        for name in ("max_population", "max_participations"):
            if (most := getattr(self, name)) is not None:
                whole(1, **{name: most})
        if self.answer_seconds is not None:
            positive(answer_seconds=self.answer_seconds)
        _check_mechanisms(self.mechanisms)
        if self.server_identity is not None and len(self.server_identity) != KEY_BYTES:
            raise InvalidInput(
                f"server_identity has {len(self.server_identity)} bytes: an Ed25519 key has {KEY_BYTES}"
            )
        if (self.identity is None) != (self.trusted is None):
            raise InvalidInput("identity and trusted belong together: give both or neither")

    def narrowed(self, node_config: Mapping[str, Any]) -> ClientPolicy:
        """The policy made stricter by the node's own operator, through `flower-supernode --node-config`.

        Keys: skelmix-max-epsilon, skelmix-max-epsilon-aggregator, skelmix-max-epsilon-round,
        skelmix-max-delta, skelmix-max-participations, skelmix-max-contribute, skelmix-max-population,
        skelmix-min-cohort, skelmix-server-identity (hexadecimal), skelmix-answer-seconds (the longer of both
        holds), and skelmix-state, the directory in which the node keeps which rounds it has answered. The
        population is the operator's to state, where the app states none. Another key that begins with
        skelmix-, or a value that is not valid, raises `InvalidInput`, so that no limit is lost to a typing
        error.
        """
        asked = {key: value for key, value in node_config.items() if key.startswith("skelmix-")}
        if unknown := asked.keys() - _NODE_KEYS:
            raise InvalidInput(
                f"node-config has {', '.join(sorted(unknown))}: there is {', '.join(sorted(_NODE_KEYS))}"
            )
        try:
            return self._narrowed(asked)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidInput(f"node-config of skelmix: {error}; correct the value") from error

    def _narrowed(self, node_config: Mapping[str, Any]) -> ClientPolicy:
        policy = self
        for name in _NUMBERS:
            if (limit := node_config.get(f"skelmix-{name.replace('_', '-')}")) is not None:
                policy = replace(policy, **{name: min(float(limit), getattr(policy, name))})
        for name in ("max_population", "max_participations"):
            if (limit := node_config.get(f"skelmix-{name.replace('_', '-')}")) is not None:
                stated = math.floor(float(limit))
                least: Any = min(stated, getattr(policy, name) or stated)
                policy = replace(policy, **{name: least})
        if (cohort := node_config.get("skelmix-min-cohort")) is not None:
            policy = replace(policy, min_cohort=max(policy.min_cohort, math.ceil(float(cohort))))
        if (seconds := node_config.get("skelmix-answer-seconds")) is not None:
            policy = replace(policy, answer_seconds=max(float(seconds), policy.answer_seconds or 0.0))
        if (identity := node_config.get("skelmix-server-identity")) is not None:
            policy = replace(policy, server_identity=bytes.fromhex(str(identity)))
        return policy

    @property
    def stated_population(self) -> int | None:
        """The largest possible population, as the operator or the trusted keys state it; None if unknown."""
        known = [self.max_population, None if self.trusted is None else len(self.trusted)]
        return min((count for count in known if count is not None), default=None)

    def check_plan(self, plan: Plan) -> None:
        """Raise `PolicyViolation` unless the plan, whose claim was proved before, keeps every limit."""
        check_plan(self, plan)

    def check_round(self, request: ShareRequest, cohort: Cohort) -> int:
        """The number of participants of a round; `PolicyViolation` unless its settings fit the plan.

        A sum that `threshold` survivors open must hold all the noise that was accounted for. Threshold and
        noise share both follow from the number of participants, so the client takes that from the roster it
        is shown, not from a claim. A sparse graph must open as the plan counts on, under its law of dropouts
        if it states one.
        """
        seen = len(request.neighbourhood)
        if self.full_roster and seen != request.participants:
            raise PolicyViolation(
                f"{seen} of {request.participants} participants are shown: this node wants to see all"
            )
        count = request.participants
        if count < self.min_cohort:
            raise PolicyViolation(
                f"{count} participants in the round, this node joins {self.min_cohort} or more"
            )
        if count > cohort.population:
            raise PolicyViolation(
                f"{count} participants in the round, the plan knows {cohort.population} in all"
            )
        sparse = request.degree < count - 1
        need = cohort.min_survivors(count, malicious=request.malicious, sparse=sparse)
        if cohort.shares(count) == 0 or request.threshold < need:
            raise PolicyViolation(
                f"threshold {request.threshold} of {count} participants: the plan needs {need} survivors, or "
                "the sum would hold too little noise"
            )
        graph = Graph(count, request.degree, request.share_threshold)
        if not opens(graph, request.threshold, cohort.assumed_dropout_rate):
            raise PolicyViolation(
                f"{graph.degree} neighbours, {graph.share_threshold} of whom must answer: rounds would open "
                "less often than the plan counts on"
            )
        if request.colluding < cohort.colluding:
            raise PolicyViolation(
                f"the round guards against {request.colluding} colluders, the plan against {cohort.colluding}"
            )
        if self.trusted is not None and not request.malicious:
            raise PolicyViolation(
                "this node joins only rounds secured against a malicious server: SecureGrid(malicious=True)"
            )
        return count
