"""What a server may ask for, and what a client does not let itself be talked into."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

import skelmix as sk
from skelmix.errors import InvalidInput, PolicyViolation
from skelmix.flower import ClientPolicy, SecureGrid
from skelmix.flower.mod import UNTOLD
from skelmix.flower.records import RECORD, Answer, Request
from skelmix.rounds.context import round_context
from skelmix.secagg import messages
from skelmix.secagg.keys import Identity
from skelmix.secagg.server import Server
from skelmix.secagg.settings import Settings

RUN = 7


@pytest.fixture
def hostile(fleet, plan, arrays):
    """A server that speaks to the nodes of a fleet directly."""

    class Hostile:
        def __init__(self, nodes=4, policy=None, the_plan=plan):
            self.fleet = fleet(nodes, policy)
            self.plan, self.text = the_plan, the_plan.to_json()
            self.identity = None

        def ask(self, node, parts, *, text=None, digest=None, raw=None):
            text = self.text if text is None else text
            digest = self.digest_of(text) if digest is None else digest
            request = Request(digest, parts, text).signed_by(self.identity, RUN, node)
            content = RecordDict({"arrays": arrays})
            content[RECORD] = request.to_record() if raw is None else raw
            message = Message(content, dst_node_id=node, message_type="train")
            reply = self.fleet.apps[node](message, self.fleet.contexts[node])
            if reply.has_error():
                return reply.error.reason
            return Answer.from_content(reply.content)

        def digest_of(self, text):
            try:
                return sk.Plan.from_json(text).digest()
            except InvalidInput:
                return self.plan.digest()

        def keys(self, count=4):
            return {
                node: self.ask(node, {"advertise": b""}).parts["advertise"] for node in range(1, count + 1)
            }

        def server(self, keys, *, round=0, threshold=2, **changes):
            settings = Settings(
                self.plan.mechanism.coordinates,
                self.plan.mechanism.bits,
                threshold,
                full_graph=changes.pop("full_graph", True),
                context=round_context(self.plan.digest(), round, RUN),
                **changes,
            )
            server = Server(settings, round=round)
            for data in keys.values():
                server.advertise(data)
            return server, server.close_advertise()

        def shared(self, keys, **changes):
            server, requests = self.server(keys, **changes)
            for node, data in requests.items():
                server.share(self.ask(node, {"share": data}).parts["share"])
            return server, server.close_share()

    return Hostile


def test_the_server_reads_nothing_of_the_nodes_disk_or_settings(hostile, tmp_path, caplog):
    (tmp_path / "private-name").write_text("no directory")
    for key, value in [
        ("skelmix-max-epsilon", "private-name"),
        ("skelmix-private-name", 1),
        ("skelmix-state", str(tmp_path / "private-name")),
    ]:
        server = hostile()
        server.fleet.contexts[1].node_config[key] = value
        caplog.clear()
        told = server.ask(1, {"advertise": b""})
        told = told if isinstance(told, str) else told.refused["advertise"]
        assert told == UNTOLD
        assert "private-name" in caplog.text


def test_a_plain_train_message_gets_no_update(fleet, arrays):
    nodes = fleet()
    message = Message(RecordDict({"arrays": arrays}), dst_node_id=1, message_type="train")
    reply = nodes.apps[1](message, nodes.contexts[1])
    assert "plain train message" in reply.error.reason
    assert nodes.calls == []


def test_a_plan_that_costs_too_much_is_refused_by_all_and_the_run_ends(fleet, plan, arrays):
    nodes = fleet(policy=ClientPolicy(max_epsilon=2.0))
    content = RecordDict({"arrays": arrays})
    asked = [Message(content, dst_node_id=node, message_type="train") for node in range(1, 5)]
    with pytest.raises(PolicyViolation, match=r"4 of 4 nodes refuse the plan.*this node allows 2"):
        SecureGrid(nodes, plan).send_and_receive(asked)
    assert nodes.calls == []


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (ClientPolicy(max_epsilon=7.9), "allows 7.9"),
        (ClientPolicy(max_delta=1e-6), "δ"),
        (ClientPolicy(max_epsilon_aggregator=7.9), "against the aggregator"),
        (ClientPolicy(mechanisms=("smm",)), "mechanism 'skellam'"),
    ],
)
def test_each_limit_on_plans_is_checked(hostile, policy, reason):
    assert reason in hostile(policy=policy).ask(1, {"advertise": b""})


def test_the_operator_of_a_node_may_narrow_the_policy_and_not_widen_it(hostile):
    server = hostile()
    server.fleet.contexts[1].node_config["skelmix-max-epsilon"] = 1.0
    server.fleet.contexts[2].node_config["skelmix-max-epsilon"] = 1e6
    assert "allows 1" in server.ask(1, {"advertise": b""})
    server.fleet.contexts[2].node_config["skelmix-min-cohort"] = 5
    keys = {n: server.ask(n, {"advertise": b""}).parts["advertise"] for n in (2, 3, 4)}
    _, requests = server.server(keys)
    assert "joins 5 or more" in server.ask(2, {"share": requests[2]}).refused["share"]
    policy = ClientPolicy(max_epsilon=3.0).narrowed({"skelmix-max-epsilon": 9, "skelmix-min-cohort": 1})
    assert (policy.max_epsilon, policy.min_cohort) == (3.0, 3)
    policy = policy.narrowed({"skelmix-max-epsilon-aggregator": "7.5", "other-app": 1})
    assert policy.max_epsilon_aggregator == 7.5
    assert policy.narrowed({"skelmix-max-epsilon-aggregator": 9}).max_epsilon_aggregator == 7.5


@pytest.mark.parametrize(
    "config",
    [
        {"skelmix-max-epsilom": 1.0},
        {"skelmix-max-epsilon": "nan"},
        {"skelmix-max-epsilon": "abc"},
        {"skelmix-max-delta": -1},
        {"skelmix-min-cohort": "many"},
        {"skelmix-server-identity": "xyz"},
    ],
)
def test_a_nodes_limit_that_is_misspelt_is_not_missed(config):
    with pytest.raises(InvalidInput):
        ClientPolicy().narrowed(config)


def test_a_plan_that_states_less_than_it_costs_is_refused(hostile):
    server = hostile()
    lie = json.loads(server.text)
    lie["mechanism"]["total_noise"] /= 100
    answer = server.ask(1, {"advertise": b""}, text=json.dumps(lie))
    assert "its mechanism gives" in answer


def test_another_plan_in_the_middle_of_a_run_is_refused(hostile, planned):
    server = hostile()
    server.keys()
    other = planned(rounds=2)
    assert "changed the plan" in server.ask(1, {"advertise": b""}, text=other.to_json())


def test_a_request_that_names_another_plan_than_it_carries_is_refused(hostile, planned):
    server = hostile()
    other = planned(rounds=2)
    answer = server.ask(1, {"advertise": b""}, text=other.to_json(), digest=server.plan.digest())
    assert "another plan than it carries" in answer


def test_a_request_without_a_known_plan_is_refused(hostile):
    server = hostile()
    assert "was not given" in server.ask(1, {"advertise": b""}, text="", digest="0" * 64)


def test_a_cohort_below_the_least_is_refused(hostile):
    server = hostile(policy=ClientPolicy(min_cohort=4))
    keys = server.keys()
    del keys[4]
    _, requests = server.server(keys)
    assert "joins 4 or more" in server.ask(1, {"share": requests[1]}).refused["share"]


def test_a_threshold_that_would_let_noise_go_missing_is_refused(hostile, planned):
    plan = planned(cohort=sk.Cohort(4, 4, dropout_tolerance=0.25, sampling="none"))
    server = hostile(the_plan=plan)
    _, requests = server.server(server.keys(), threshold=2)
    assert "plan needs 3 survivors" in server.ask(1, {"share": requests[1]}).refused["share"]


def test_an_inflated_number_of_participants_is_refused(hostile, planned):
    """More claimed participants mean less noise each: the client counts those it is shown."""
    plan = planned(nodes=400, scale=200.0)
    server = hostile(the_plan=plan)
    keys = server.keys()
    _, requests = server.server(keys, threshold=2)
    data = messages.decode(requests[1], messages.ShareRequest, 10**6)
    forged = messages.encode(replace(data, participants=400, threshold=200, share_threshold=200))
    assert "share" in server.ask(1, {"share": forged}).refused
    assert "secrets" not in server.fleet.contexts[1].state[RECORD]


def test_a_sparse_round_is_refused_unless_the_policy_allows_it(hostile, plan):
    """Along a sparse graph a client sees some of the others only, and their number is the server's word."""
    server = hostile()
    _, requests = server.server(server.keys())
    full = messages.decode(requests[1], messages.ShareRequest, 10**6)
    sparse = replace(full, neighbourhood=full.neighbourhood[:3])
    assert ClientPolicy().check_round(full, plan.cohort) == 4
    with pytest.raises(PolicyViolation, match="wants to see all"):
        ClientPolicy().check_round(sparse, plan.cohort)
    assert ClientPolicy(full_roster=False).check_round(sparse, plan.cohort) == 4


def test_colluders_that_the_plan_counts_must_be_counted_by_the_round(hostile, planned):
    plan = planned(cohort=sk.Cohort(4, 4, dropout_tolerance=0.25, colluding=1, sampling="none"))
    server = hostile(the_plan=plan)
    _, requests = server.server(server.keys(), threshold=3, colluding=0)
    assert "against 1" in server.ask(1, {"share": requests[1]}).refused["share"]


def test_no_round_is_answered_twice(hostile):
    server = hostile()
    keys = server.keys()
    _, mask = server.shared(keys)
    first = server.ask(1, {"masked": mask[1]})
    assert "masked" in first.parts
    assert "masked" in server.ask(1, {"masked": mask[1]}).refused, "the same request again"
    _, again = server.server(keys)
    assert "round 0 was asked for" in server.ask(1, {"share": again[1]}).refused["share"], (
        "or the same round anew"
    )
    assert server.fleet.calls == [1]


def test_no_more_rounds_than_the_plan_pays_for(hostile):
    server = hostile()
    _, requests = server.server(server.keys(), round=3)
    assert "pays for 3" in server.ask(1, {"share": requests[1]}).refused["share"]


def test_only_one_set_of_survivors_is_unmasked_for(hostile):
    server = hostile()
    round, mask = server.shared(server.keys())
    for node in mask:
        round.masked(server.ask(node, {"masked": mask[node]}).parts["masked"])
    unmask = round.close_masked()
    fewer = messages.decode(unmask[1], messages.UnmaskRequest, 10**5)
    assert "unmask" in server.ask(1, {"unmask": unmask[1]}).parts
    other = messages.encode(replace(fewer, survivors=messages.bitmap({0, 1}, 4)))
    assert "unmask" in server.ask(1, {"unmask": other}).refused


def test_secrets_are_erased_when_the_round_is_over(hostile):
    server = hostile()
    round, mask = server.shared(server.keys())
    state = server.fleet.contexts[1].state[RECORD]
    assert len(state["secrets"]) > 0
    for node in mask:
        round.masked(server.ask(node, {"masked": mask[node]}).parts["masked"])
    unmask = round.close_masked()
    server.ask(1, {"unmask": unmask[1]})
    kept = {"channel", "plan", "digest", "words", "attendance", "last-round", "spent-rounds"}
    assert set(state) == kept, "numbers of rounds stay, secrets of a round do not"


def test_a_train_function_that_fails_is_answered_once_like_any_other(hostile):
    server = hostile()
    _, mask = server.shared(server.keys())
    app = server.fleet.apps[1]

    def broken(message, context):
        context.state.clear()
        raise ZeroDivisionError

    fresh = type(app)(mods=app._mods)
    fresh.train()(broken)
    server.fleet.apps[1] = fresh
    assert set(server.ask(1, {"masked": mask[1]}).parts) == {"masked"}
    server.fleet.apps[1] = app
    assert "masked" in server.ask(1, {"masked": mask[1]}).refused


def test_a_pinned_server_must_sign(hostile):
    pinned, other = Identity.generate(), Identity.generate()
    server = hostile(policy=ClientPolicy(min_cohort=2, server_identity=pinned.public))
    assert "does not verify" in server.ask(1, {"advertise": b""})
    server.identity = other
    assert "does not verify" in server.ask(1, {"advertise": b""})
    server.identity = pinned
    assert "advertise" in server.ask(1, {"advertise": b""}).parts


def test_a_signed_grid_serves_clients_that_pinned_it(fleet, plan, arrays):
    identity = Identity.generate()
    nodes = fleet(policy=ClientPolicy(min_cohort=2, server_identity=identity.public))
    content = RecordDict({"arrays": arrays})
    asked = [Message(content, dst_node_id=node, message_type="train") for node in range(1, 5)]
    assert SecureGrid(nodes, plan, identity=identity).send_and_receive(asked)


@pytest.mark.parametrize(
    "record",
    [
        ConfigRecord({}),
        ConfigRecord({"version": 3, "digest": "0"}),
        ConfigRecord({"version": 2, "digest": b"0"}),
        ConfigRecord({"version": 2, "digest": "0", "masked": "text"}),
        ConfigRecord({"version": 2, "digest": "0", "surprise": b""}),
    ],
)
def test_malformed_requests_are_refused(hostile, record):
    server = hostile()
    assert isinstance(server.ask(1, {}, raw=record), str)


def test_garbage_in_every_phase_is_refused_and_changes_nothing(hostile):
    server = hostile()
    server.keys()
    state = server.fleet.contexts[1].state[RECORD]
    before = dict(state)
    for phase in ("share", "masked", "consistency", "unmask"):
        assert phase in server.ask(1, {phase: b"garbage"}).refused
    assert dict(state) == before


def test_a_policy_with_nonsense_is_not_made():
    for wrong in (
        {"max_epsilon": 0},
        {"max_delta": 1.0},
        {"min_cohort": 1},
        {"mechanisms": ("gaussian",)},
        {"server_identity": b"short"},
        {"identity": Identity.generate()},
        {"max_epsilon_aggregator": -1.0},
    ):
        with pytest.raises(InvalidInput):
            ClientPolicy(**wrong)
