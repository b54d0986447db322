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
from skelmix.flower.node_state import NodeState, contribution_store
from skelmix.flower.policy import ClientPolicy
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
)
from skelmix.flower.silo import SiloRound
from skelmix.noise.entropy import system_entropy
from skelmix.rounds.coin_and_cap import sends_vector
from skelmix.rounds.context import round_context
from skelmix.secagg import checks
from skelmix.secagg.client import Client
from skelmix.secagg.joined_rounds import JoinedRounds
from skelmix.secagg.messages import ShareRequest
from skelmix.secagg.settings import Phase

Call = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Call], Message]

log = logging.getLogger("flwr.skelmix")

UNTOLD = "the node could not answer; the reason is in its own log"
"""All that the server is told of a failure that is not about its request."""


def make_mod(policy: ClientPolicy) -> Mod:
    """A mod that takes part under `policy`, narrowed by the node's own configuration.

    Example: `app = ClientApp(mods=[make_mod(ClientPolicy(max_epsilon=2.0))])`.
    """

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        """Answer one message of the server; what the app does or fails to do shows in noise only."""
        if message.metadata.message_type.partition(".")[0] != "train":
            return _public_part(message, call_app(call_next, message, context), policy)
        try:
            return _Participant(policy, context).answer(message, call_next)
        except SkelmixError as error:
            log.error("refused: %s", error)
            return Message(Error(REFUSED_CODE, _reason(error)), reply_to=message)

    return mod


def skelmix_mod(message: Message, context: Context, call_next: Call) -> Message:
    """The mod under the default `ClientPolicy`.

    Example: `app = ClientApp(mods=[skelmix_mod])`.
    """
    return make_mod(ClientPolicy())(message, context, call_next)


def _reason(error: SkelmixError) -> str:
    """What the server is told: texts about its own request only, since others name files and settings."""
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
    """This node in this run, for the time of one message. All that outlives the message is in `NodeState`."""

    def __init__(self, policy: ClientPolicy, context: Context) -> None:
        self.policy = policy.narrowed(context.node_config)
        self.context = context
        self.memory = NodeState(context.state, contribution_store(context.node_config, context.run_id))

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
                    parts[name] = self._simple(name, request.parts[name])
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
        except InvalidInput as error:  # it is about the server's text, and may be told
            raise ProtocolError(str(error)) from error
        if plan.digest() != request.digest:
            raise ProtocolError("the request names another plan than it carries: refused")
        self.policy.check_plan(plan)
        self.memory.keep_plan(plan.to_json(), plan.digest(), plan.mechanism.coordinates)

    def _simple(self, name: str, data: bytes) -> bytes:
        """Answer every phase but the one that trains."""
        if name == ADVERTISE:
            return self._client().advertise()
        if name == SHARE:
            return self._share(data)
        client = self._restored()
        answer = {CONSISTENCY: client.consistency, UNMASK: client.unmask}[name](data)
        if client.phase is Phase.DONE:
            self.memory.erase()
        else:
            self.memory.keep(client.secret_state())
        return answer

    def _share(self, data: bytes) -> bytes:
        """Join a round.

        What was left of an earlier one is forgotten: its masks were never used, or have been taken off.
        """
        facts = self.memory.plan_facts()
        attendance = self.memory.attendance()
        client = self._client(attendance)
        joined = (-1, 0)

        def accept(asked: ShareRequest) -> None:
            nonlocal joined
            own = round_context(self.memory.plan_digest, asked.round, self.context.run_id)
            checks.same_context(asked, own)
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
            joined = asked.round, self.policy.check_round(asked, facts.cohort)

        answer = client.share(data, accept)
        self.memory.join(*joined, attendance)
        self.memory.keep(client.secret_state())
        return answer

    def _masked(self, data: bytes, message: Message, call_next: Call) -> tuple[bytes, MetricRecord]:
        """Train, encode, mask.

        The round is marked as spent before anything is sent, and cannot be asked for again. Training changes
        the vector and nothing else; so do the node's coin and its cap, and the app trains whatever they say.
        """
        client = self._restored()
        facts = self.memory.plan_facts()
        round_number, size = self.memory.open_round
        spent = self.memory.spend(round_number)
        self.memory.erase()  # whatever goes wrong from here on, these masks are not used again
        _, before = only_arrays(message.content, "the server's message")
        _check_dimension(before, facts.dimension)
        before = ArrayRecord(dict(before.items()))  # the app may change the record that it is given
        message.content = RecordDict(
            {name: value for name, value in message.content.items() if name != RECORD}
        )
        mechanism = facts.mechanism()
        shares = facts.cohort.shares(size)
        if facts.silos is None:
            reply = call_app(call_next, message, self.context)
            vector = update_vector(reply, before, facts.dimension, mechanism.clip_norm)
            vector *= np.float32(sends_vector(facts.cohort, spent, system_entropy()))
            encoded = encoded_or(
                lambda: mechanism.encode(np.zeros_like(vector), round=round_number, shares=shares),
                lambda: mechanism.encode(vector, round=round_number, shares=shares),
            )
        else:
            silo = SiloRound(
                mechanism, facts.silos, digest=self.memory.plan_digest, round=round_number, model=before
            )
            with silo.opened():
                reply = call_app(call_next, message, self.context)
            encoded = encoded_or(
                lambda: mechanism.encode_silo(mechanism.silo_sum(round=round_number), shares=shares),
                lambda: mechanism.encode_silo(silo.redeem(reply), shares=shares),
            )
            reply = RecordDict()  # a silo's metrics are data of its records: none leaves
        answer = client.masked(data, encoded)
        self.memory.reopen(round_number, size)
        self.memory.keep(client.secret_state())
        return answer, public_metrics(reply, self.policy)

    def _client(self, attendance: JoinedRounds | None = None) -> Client:
        return Client(
            self.context.node_id,
            self.memory.channel(),
            identity=self.policy.identity,
            trusted=self.policy.trusted,
            attendance=attendance,
        )

    def _restored(self) -> Client:
        state = self.memory.secrets
        if not state:
            raise CorruptState("this client holds no open round: it has finished, failed or was never joined")
        client = self._client()
        client.restore(state)
        return client
