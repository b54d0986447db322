"""The client side: a Flower mod that turns a train function's update into a noisy, masked vector.

`ClientApp(mods=[skelmix_mod])`. The app's own train function is called once per round, with the message as
the strategy made it. What leaves the node: public keys, sealed shares, the masked vector, shares for
unmasking, and metrics listed as public. A train message that does not follow the protocol is refused, so a
server cannot get an update without its noise by asking for it. Refusals depend on the server's messages and
on the plan, never on the data: whatever the app does, the reply has the same parts and sizes (`app_results`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict

from skelmix.errors import CorruptState, InvalidInput, PolicyViolation, ProtocolError, SkelmixError
from skelmix.flower.answer_time import fixed_time
from skelmix.flower.app_results import METRICS, call_app, encoded_or, public_metrics, update_vector
from skelmix.flower.arrays import dimension, only_arrays
from skelmix.flower.desk import Desk
from skelmix.flower.node_state import NodeState, PlanFacts, contribution_store
from skelmix.flower.policy import ClientPolicy, check_clip_norm
from skelmix.flower.records import (
    ADVERTISE,
    CONSISTENCY,
    MASKED,
    PARTS,
    POLICY_PREFIX,
    RECORD,
    REFUSED_CODE,
    SHARE,
    UNMASK,
    Answer,
    Request,
    bound_digest,
)
from skelmix.flower.silo import SiloRound
from skelmix.noise.entropy import system_entropy
from skelmix.rounds.coin_and_cap import sends_vector
from skelmix.rounds.context import round_context
from skelmix.rounds.contributions import ContributionStore
from skelmix.secagg import checks
from skelmix.secagg.client import Client
from skelmix.secagg.joined_rounds import JoinedRounds
from skelmix.secagg.messages import ShareRequest
from skelmix.secagg.settings import Phase

Call = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Call], Message]

log = logging.getLogger("flwr.skelmix")

UNTOLD = "the node could not answer; the reason is in its own log"
"""All that the server learns of a failure that is not about its request."""


def make_mod(policy: ClientPolicy) -> Mod:
    """A mod that takes part under `policy`, narrowed by the node's own configuration.

    Example: `app = ClientApp(mods=[make_mod(ClientPolicy(max_epsilon=2.0))])`.
    """

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        """Answer one message of the server; what the app does or fails to do shows in noise only."""
        if message.metadata.message_type.partition(".")[0] != "train":
            return _public_part(message, call_app(call_next, message, context), policy)
        return _answered(
            message, call_next, lambda: _Participant(policy.narrowed(context.node_config), context)
        )

    return mod


def question_mod(message: Message, context: Context, call_next: Call) -> Message:
    """The mod of a party that answers questions and nothing else, within its own policy file.

    Example: `app = ClientApp(mods=[question_mod])`.
    """

    def participant() -> _Participant:
        desk = Desk.opened(context.node_config)
        return _Participant(desk.client_policy, context, desk)

    return _answered(message, call_next, participant)


def skelmix_mod(message: Message, context: Context, call_next: Call) -> Message:
    """The mod under the default `ClientPolicy`.

    Example: `app = ClientApp(mods=[skelmix_mod])`.
    """
    return make_mod(ClientPolicy())(message, context, call_next)


def _answered(message: Message, call_next: Call, participant: Callable[[], _Participant]) -> Message:
    """The participant's answer, or the reason for its refusal; no deliberate error escapes."""
    try:
        return participant().answer(message, call_next)
    except SkelmixError as error:
        log.error("refused: %s", error)
        return Message(Error(REFUSED_CODE, _reason(error)), reply_to=message)


def _reason(error: SkelmixError) -> str:
    """The reason sent to the server: texts about its own request only; others name files and settings."""
    if isinstance(error, PolicyViolation):
        return POLICY_PREFIX + str(error)
    return str(error) if isinstance(error, ProtocolError) else UNTOLD


def _check_dimension(model: ArrayRecord, planned: int) -> None:
    """Check, before training, that the server's model has as many weights as the plan."""
    if dimension(model) != planned:
        raise PolicyViolation(
            f"the model has {dimension(model)} weights, the plan is for {planned}: "
            "make it with dimension=skelmix.flower.dimension(arrays)"
        )


def _public_part(message: Message, content: RecordDict, policy: ClientPolicy) -> Message:
    """Evaluation and query answers have no noise: only one record of public metrics leaves.

    Its weight is 1 unless the weight is public.
    """
    metrics = public_metrics(content, policy, **{policy.weight_key: 1.0})
    return Message(RecordDict({METRICS: metrics}), reply_to=message)


class _Participant:
    """This node in this run, for the time of one message. All that outlives the message is in `NodeState`.

    desk: where a party decides about questions; None in training.
    """

    def __init__(self, policy: ClientPolicy, context: Context, desk: Desk | None = None) -> None:
        self.policy, self.context, self.desk = policy, context, desk
        if desk is None:
            store = contribution_store(context.node_config, context.run_id)
        else:
            store = ContributionStore(desk.policy.state, context.run_id)
        self.memory = NodeState(context.state, store)

    def answer(self, message: Message, call_next: Call) -> Message:
        """Handle the parts of a request in their order; the answer gives the outcome of each."""
        record = message.content.config_records.get(RECORD)
        if record is None:
            raise PolicyViolation(
                "a plain train message was refused: updates leave only through secure aggregation; "
                "wrap the server's grid, SecureGrid(grid, plan)"
            )
        request = Request.from_record(record)
        if self.policy.server_identity is not None:
            request.check_signature(self.policy.server_identity, self.context.run_id, self.context.node_id)
        self._accept_plan(request)
        parts: dict[str, bytes] = {}
        refused: dict[str, str] = {}
        content = RecordDict()
        for name in PARTS:
            if name not in request.parts:
                continue
            try:
                if name == MASKED:
                    with fixed_time(self.policy.answer_seconds):
                        parts[name], public = self._masked(request.parts[name], message, call_next)
                    content[METRICS] = public
                else:
                    parts[name] = self._simple(name, request)
            except SkelmixError as error:
                log.error("%s refused: %s", name, error)
                refused[name] = _reason(error)
        content[RECORD] = Answer(parts, refused).to_record()
        return Message(content, reply_to=message)

    def _accept_plan(self, request: Request) -> None:
        """Prove and check the first plan of a run; from then on it is the only one."""
        known = self.memory.plan_digest
        if known:
            if request.digest != known:
                raise PolicyViolation("the server changed the plan in the middle of the run")
            return
        if not request.plan:
            raise ProtocolError("the request names a plan that this client was not given; advertise first")
        from skelmix.planning import (
            Plan,  # the proof loads all of the accounting: once per run, not once per message
        )

        try:
            plan = Plan.from_json(request.plan)
        except InvalidInput as error:  # it is about the server's own text, so the server may see it
            raise ProtocolError(str(error)) from error
        if bound_digest(plan.digest(), request.question) != request.digest:
            raise ProtocolError(
                "the request names another plan than it carries, or another question: refused"
            )
        if bool(request.question) != (self.desk is not None):
            raise PolicyViolation(
                "this app trains: it answers no questions"
                if self.desk is None
                else "this party answers questions: it takes no part in training"
            )
        if self.desk is not None:
            self.desk.check(request.question, plan)
        self.policy.check_plan(plan)
        if self.desk is not None:
            self.desk.rehearse(request.question, plan)
        self.memory.keep_plan(
            plan.to_json(),
            request.digest,
            plan.mechanism.coordinates,
            plan.fewest_at_start,
            request.question,
        )

    def _simple(self, name: str, request: Request) -> bytes:
        """Answer every phase but the one that trains."""
        if name == ADVERTISE:
            return self._client().advertise()
        if name == SHARE:
            return self._share(request.parts[name], request.clip_norm)
        client = self._restored()
        answer = {CONSISTENCY: client.consistency, UNMASK: client.unmask}[name](request.parts[name])
        self.memory.claim(name)  # before the answer leaves: another message may have the same secrets
        if client.phase is Phase.DONE:
            self.memory.erase()
        else:
            self.memory.keep(client.secret_state())
        return answer

    def _share(self, data: bytes, clip_norm: float | None) -> bytes:
        """Join a round.

        What was left of an earlier one is forgotten: its masks were never used, or have been taken off.
        """
        facts = self.memory.plan_facts()
        joined_before = self.memory.joined_rounds()
        client = self._client(joined_before)
        joined = (-1, 0)

        def accept(asked: ShareRequest) -> None:
            nonlocal joined
            check_clip_norm(facts.adaptive_clip, clip_norm, asked.round)
            own = round_context(self.memory.plan_digest, asked.round, self.context.run_id, clip_norm)
            checks.same_context(asked, own)
            checks.same_noise(asked, facts.removable_noise)
            if (asked.dimension, asked.bits) != (facts.words, facts.bits):
                raise PolicyViolation(
                    f"the round is for {asked.dimension} words of {asked.bits} bits, the plan is not"
                )
            if not self.memory.last_round < asked.round < facts.rounds:
                raise PolicyViolation(
                    f"round {asked.round} was asked for: the last one that this client has spent is "
                    f"{self.memory.last_round}, and the plan pays for {facts.rounds}, counted from 0; give "
                    "SuperNodes on one machine different node-configs, or a skelmix-state directory each"
                )
            if asked.participants < facts.fewest:
                raise PolicyViolation(
                    f"{asked.participants} participants in the round: this plan's noise is proved for "
                    f"{facts.fewest} that start; wait for all of them, or plan with mechanism='smm'"
                )
            joined = asked.round, self.policy.check_round(asked, facts.cohort)

        answer = client.share(data, accept)
        self.memory.join(*joined, joined_before, clip_norm)
        self.memory.keep(client.secret_state())
        return answer

    def _masked(self, data: bytes, message: Message, call_next: Call) -> tuple[bytes, MetricRecord]:
        """Train, encode, mask.

        The round is marked as spent before anything is sent, and cannot be asked for again. Training changes
        the vector and nothing else; so do the node's coin and its cap, and the app trains whatever they say.
        """
        client = self._restored()
        facts = self.memory.plan_facts()
        (round_number, size), clip_norm = self.memory.open_round, self.memory.clip_norm
        spent = self.memory.spend(round_number)
        self.memory.erase()  # these masks are not used again, whatever goes wrong from here on
        before = self._model(message, facts)
        message.content = RecordDict(
            {name: value for name, value in message.content.items() if name != RECORD}
        )
        mechanism, joint = facts.mechanism(), facts.joint(clip_norm)
        shares = facts.cohort.encoding_shares(mechanism.total_noise, size)
        if facts.silos is None:
            reply = call_app(call_next, message, self.context)
            # with an adaptive clip, long enough to count as beyond the clip norm
            longest = mechanism.clip_norm if joint is None else 2 * clip_norm
            vector = update_vector(reply, before, facts.dimension, longest)
            vector *= np.float32(sends_vector(facts.cohort, spent, system_entropy()))
            nothing = np.zeros(mechanism.dimension, np.float32)
            encoded = encoded_or(
                lambda: mechanism.encode(nothing, round=round_number, shares=shares),
                lambda: mechanism.encode(
                    vector if joint is None else joint.of_one(vector), round=round_number, shares=shares
                ),
            )
        else:
            silo = SiloRound(
                mechanism,
                facts.silos,
                round=round_number,
                model=before,
                joint=joint,
                question=self.memory.question,
            )
            with silo.opened():
                call_app(call_next, message, self.context)
            encoded = encoded_or(
                lambda: mechanism.encode_silo(mechanism.silo_sum(round=round_number), shares=shares),
                lambda: mechanism.encode_silo(silo.taken(), shares=shares),
            )
            reply = RecordDict()  # a silo's metrics are data of its records: none leaves
        answer = client.masked(data, encoded, participants=size)
        self.memory.reopen(round_number, size)
        self.memory.keep(client.secret_state())
        return answer, public_metrics(reply, self.policy)

    def _model(self, message: Message, facts: PlanFacts) -> ArrayRecord:
        """The model that the server sent; none for a question, whose cost is charged here instead."""
        if self.desk is not None:
            self.desk.charge(self.memory.question, *self.memory.plan_cost())
            return ArrayRecord()
        _, before = only_arrays(message.content, "the server's message")
        _check_dimension(before, facts.dimension)
        return ArrayRecord(dict(before.items()))  # the app may change the record that it is given

    def _client(self, joined_rounds: JoinedRounds | None = None) -> Client:
        return Client(
            self.context.node_id,
            self.memory.channel(),
            identity=self.policy.identity,
            trusted=self.policy.trusted,
            joined_rounds=joined_rounds,
        )

    def _restored(self) -> Client:
        state = self.memory.secrets
        if not state:
            raise CorruptState("this client holds no open round: it has finished, failed or was never joined")
        client = self._client()
        client.restore(state)
        return client
