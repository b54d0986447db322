"""A malicious server gives the target one plan and everyone else another, each valid alone.

On the target's fine grid the others' noise, made for a coarse one, is next to nothing. Played against the
strictest clients: identities, trusted keys, a full roster, a pinned server.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Message, RecordDict

import skelmix as sk
from helpers.dishonest_server import DishonestServer
from skelmix.errors import RoundFailed
from skelmix.flower import ClientPolicy
from skelmix.flower.records import RECORD, Answer, Request
from skelmix.rounds.context import round_context
from skelmix.secagg import checks, messages
from skelmix.secagg import settings as rules
from skelmix.secagg.keys import Identity
from skelmix.secagg.settings import Settings

RUN, NODES, TARGET = 7, 12, 1
COHORT = sk.Cohort(NODES, NODES, dropout_tolerance=0.25, sampling="none")


class TwoPlans:
    """The server of the attack. Each node gets its own plan; what it says of the round is up to `shown`."""

    def __init__(self, fleet, plans, trainer, arrays, identity):
        self.fleet, self.plans, self.arrays, self.identity = fleet, plans, arrays, identity
        self.refusals: dict[int, str] = {}
        identities = {node: Identity.generate() for node in fleet.apps}
        trusted = {node: own.public for node, own in identities.items()}
        for node, own in identities.items():
            policy = ClientPolicy(
                max_epsilon=8.0,
                max_delta=1e-5,
                max_epsilon_aggregator=8.0,
                min_cohort=NODES,
                mechanisms=("ddg",),
                server_identity=identity.public,
                identity=own,
                trusted=trusted,
            )
            fleet.apps[node] = trainer(policy, fleet.calls)

    def ask(self, node, phase, data):
        """The node's answer, or None when it refuses."""
        plan = self.plans[node]
        request = Request(plan.digest(), {phase: data}, plan.to_json()).signed_by(self.identity, RUN, node)
        content = RecordDict({"arrays": self.arrays, RECORD: request.to_record()})
        message = Message(content, dst_node_id=node, message_type="train")
        reply = self.fleet.apps[node](message, self.fleet.contexts[node])
        answer = Answer({}, {phase: reply.error.reason}) if reply.has_error() else None
        answer = answer or Answer.from_content(reply.content)
        if phase in answer.refused:
            self.refusals.setdefault(node, f"{phase}: {answer.refused[phase]}")
        return answer.parts.get(phase)

    def exchange(self, server, phase, requests):
        for node, data in requests.items():
            if (answer := self.ask(node, phase, data)) is not None:
                getattr(server, phase)(answer)

    def play(self, shown):
        """The sum, or None. shown: node -> the plan that its share request is made for."""
        mechanism = self.plans[TARGET].mechanism
        context = round_context(self.plans[TARGET + 1].digest(), 0, RUN)
        settings = Settings(
            mechanism.padded_dimension, mechanism.bits, NODES - 2, malicious=True, context=context
        )
        server = DishonestServer(settings)
        for node in self.plans:
            server.advertise(self.ask(node, "advertise", b""))
        requests = {}
        for node, data in server.close_advertise().items():
            request = messages.decode(data, messages.ShareRequest, 10**6)
            own = round_context(shown[node].digest(), 0, RUN)
            requests[node] = messages.encode(replace(request, context=own))
        try:
            self.exchange(server, "share", requests)
            self.exchange(server, "masked", server.close_share())
            self.exchange(server, "consistency", server.close_masked())
            self.exchange(server, "unmask", server.close_consistency())
            return server.close_unmask(), server.survivors
        except RoundFailed:
            return None, ()


@pytest.fixture(scope="module")
def fine_and_coarse():
    """Two plans with the same ε, dimension, bits and cohort: on the wire nothing tells them apart."""
    return tuple(
        sk.plan(
            sk.PrivacyTarget(8.0, 1e-5),
            dimension=16,
            cohort=COHORT,
            rounds=3,
            bits=20,
            mechanism="ddg",
            bound="paper",
            scale=scale,
        )
        for scale in (2000.0, 20.0)
    )


@pytest.fixture
def attack(fleet, fine_and_coarse, trainer, arrays):
    fine, coarse = fine_and_coarse

    def make(target=fine, others=coarse):
        plans = {node: target if node == TARGET else others for node in range(1, NODES + 1)}
        return TwoPlans(fleet(NODES), plans, trainer, arrays, Identity.generate())

    return make


VIEWS = {
    "each its own": lambda attack, node: attack.plans[node],
    "all the target's": lambda attack, node: attack.plans[TARGET],
    "all the others'": lambda attack, node: attack.plans[TARGET + 1],
}


@pytest.mark.parametrize("view", VIEWS)
def test_no_sum_with_the_target_in_it_opens(attack, view):
    played = attack()
    _, survivors = played.play({node: VIEWS[view](played, node) for node in played.plans})
    assert TARGET not in survivors
    assert TARGET in played.refusals or len(played.refusals) == NODES - 1


def test_control_one_plan_for_all_opens_a_sum(attack, fine_and_coarse):
    played = attack(others=fine_and_coarse[0])
    total, survivors = played.play(played.plans)
    assert total is not None
    assert survivors == tuple(range(1, NODES + 1))
    assert played.refusals == {}


def test_control_without_the_binding_the_sum_opens_and_holds_a_fraction_of_the_noise(
    attack, fine_and_coarse, encoded, monkeypatch
):
    monkeypatch.setattr(checks, "same_context", lambda request, own: None)
    original = rules.transcript
    monkeypatch.setattr(
        rules, "transcript", lambda settings, *rest: original(replace(settings, context=b""), *rest)
    )
    played = attack()
    total, survivors = played.play(played.plans)
    assert played.refusals == {}
    assert survivors == tuple(range(1, NODES + 1))
    sent = sum(vector.astype(np.int64) for _, _, vector in encoded)
    assert (total == sent % (1 << 20)).all()
    fine, coarse = (plan.mechanism for plan in fine_and_coarse)
    shares = COHORT.shares(NODES)
    variance = fine.participant_law(shares).variance + (NODES - 1) * coarse.participant_law(shares).variance
    accounted = fine.total_law(COHORT.min_survivors(NODES), shares).variance
    assert variance < 0.12 * accounted, "the target's ε is that of its own noise alone"


def test_a_restarted_node_is_not_talked_into_another_plan(attack, fine_and_coarse):
    """Nor does it help to have the node started anew between the two plans."""
    played = attack(others=fine_and_coarse[0])
    assert played.ask(TARGET, "advertise", b"") is not None
    played.fleet.contexts[TARGET].state = RecordDict()
    played.plans[TARGET] = fine_and_coarse[1]
    assert played.ask(TARGET, "advertise", b"") is None
    assert "changed the plan" in played.refusals[TARGET]
