"""Plans that a node refuses: too costly, too weak, changed on the way."""

from __future__ import annotations

import json

import pytest
from flwr.app import Message, RecordDict

from skelmix.errors import InvalidInput, PolicyViolation
from skelmix.flower import ClientPolicy, SecureGrid
from skelmix.secagg.keys import Identity


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
