"""What a server may ask for, and what a client does not let itself be talked into."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

import skelmix as sk
from skelmix.errors import PolicyViolation
from skelmix.flower import ClientPolicy, SecureGrid
from skelmix.flower.mod import UNTOLD
from skelmix.flower.records import RECORD
from skelmix.rounds.contributions import ContributionStore
from skelmix.secagg import messages, sets
from skelmix.secagg.keys import Identity


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
        reason = server.ask(1, {"advertise": b""})
        reason = reason if isinstance(reason, str) else reason.refused["advertise"]
        assert reason == UNTOLD
        assert "private-name" in caplog.text


def test_a_plain_train_message_gets_no_update(fleet, arrays):
    nodes = fleet()
    message = Message(RecordDict({"arrays": arrays}), dst_node_id=1, message_type="train")
    reply = nodes.apps[1](message, nodes.contexts[1])
    assert "plain train message" in reply.error.reason
    assert nodes.calls == []


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


@pytest.mark.parametrize("factor", [0, 0.5, 2])
def test_another_noise_than_the_plans_is_refused(hostile, plan, factor):
    """Survivors would make up for dropouts with less noise than was accounted for, or with none."""
    server = hostile()
    _, requests = server.server(server.keys(), noise=factor * plan.noise_in_sum)
    assert "the sum would hold too little noise" in server.ask(1, {"share": requests[1]}).refused["share"]
    assert "secrets" not in server.fleet.contexts[1].state[RECORD]


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
    other = messages.encode(replace(fewer, survivors=sets.bitmap({0, 1}, 4)))
    assert "unmask" in server.ask(1, {"unmask": other}).refused


def unmasked_for_two_sets(server):
    """Flower gives two messages of a run that it handles at the same time the same state of the node."""
    round, mask = server.shared(server.keys())
    for node in mask:
        round.masked(server.ask(node, {"masked": mask[node]}).parts["masked"])
    whole = round.close_masked()[1]
    fewer = replace(messages.decode(whole, messages.UnmaskRequest, 10**5), survivors=sets.bitmap({0, 1}, 4))
    context = server.fleet.contexts[1]
    snapshot = dict(context.state[RECORD])
    answers = []
    for request in (whole, messages.encode(fewer)):
        context.state = RecordDict({RECORD: ConfigRecord(dict(snapshot))})
        answers.append(server.ask(1, {"unmask": request}))
    return answers


def test_messages_that_overlap_unmask_for_one_set_of_survivors(hostile, caplog):
    first, second = unmasked_for_two_sets(hostile())
    assert "unmask" in first.parts
    assert (second.parts, second.refused) == ({}, {"unmask": UNTOLD})
    assert "already unmasked" in caplog.text


def test_control_without_the_claim_on_disk_both_sets_are_unmasked_for(hostile, monkeypatch):
    monkeypatch.setattr(ContributionStore, "claim", lambda *_: None)
    assert all("unmask" in answer.parts for answer in unmasked_for_two_sets(hostile()))


def signed_for_two_sets(hostile, trainer, plan):
    """The same, a phase earlier, by a malicious server: node 1 is shown all survivors, and three of four."""
    identities = {node: Identity.generate() for node in range(1, 5)}
    trusted = {node: identity.public for node, identity in identities.items()}
    server = hostile(the_plan=plan)
    for node, identity in identities.items():
        policy = ClientPolicy(min_cohort=2, identity=identity, trusted=trusted)
        server.fleet.apps[node] = trainer(policy, server.fleet.calls)
    round, mask = server.shared(server.keys(), threshold=3, malicious=True)
    for node in mask:
        round.masked(server.ask(node, {"masked": mask[node]}).parts["masked"])
    context = server.fleet.contexts[1]
    snapshot = dict(context.state[RECORD])
    answers = []
    for survivors in ({0, 1, 2, 3}, {0, 1, 2}):
        context.state = RecordDict({RECORD: ConfigRecord(dict(snapshot))})
        shown = messages.ConsistencyRequest(round.session, 0, sets.bitmap(survivors, 4))
        answers.append(server.ask(1, {"consistency": messages.encode(shown)}))
    return answers


@pytest.fixture
def guarded_plan(planned):
    return planned(cohort=sk.Cohort(4, 4, dropout_tolerance=0.25, sampling="none"))


def test_messages_that_overlap_sign_one_set_of_survivors(hostile, trainer, guarded_plan, caplog):
    first, second = signed_for_two_sets(hostile, trainer, guarded_plan)
    assert "consistency" in first.parts
    assert (second.parts, second.refused) == ({}, {"consistency": UNTOLD})
    assert "already signed" in caplog.text


def test_control_without_the_claim_on_disk_both_sets_are_signed(hostile, trainer, guarded_plan, monkeypatch):
    monkeypatch.setattr(ContributionStore, "claim", lambda *_: None)
    answers = signed_for_two_sets(hostile, trainer, guarded_plan)
    assert all("consistency" in answer.parts for answer in answers)


def test_secrets_are_erased_when_the_round_is_over(hostile):
    server = hostile()
    round, mask = server.shared(server.keys())
    state = server.fleet.contexts[1].state[RECORD]
    assert len(state["secrets"]) > 0
    for node in mask:
        round.masked(server.ask(node, {"masked": mask[node]}).parts["masked"])
    unmask = round.close_masked()
    server.ask(1, {"unmask": unmask[1]})
    kept = {"channel", "plan", "digest", "words", "fewest", "attendance", "last-round", "spent-rounds"}
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
