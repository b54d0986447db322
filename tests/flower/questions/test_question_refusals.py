"""Questions that a party refuses, and in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flwr.app import Message, RecordDict

import skelmix as sk
from helpers.parties import ASK, QUICK, planned, text_of
from skelmix.errors import RoundFailed
from skelmix.flower.coordinator import Coordinator
from skelmix.flower.question_server import ask_parties
from skelmix.flower.records import RECORD, bound_digest
from skelmix.statistics import Owners
from skelmix.statistics.releases import answers_from

REFUSED = {
    "a column that is not allowed": (planned("sum(patient, 0..1)"), "column 'patient' may not be asked here"),
    "a kind that is not allowed": (
        planned("variance(age, 0..110)"),
        "variance of column 'age' may not be asked",
    ),
    "several": (
        planned("sum(x, 0..1); mean(stay, 0..60)"),
        "'stay' may not be asked here; column 'x' may not",
    ),
    "too much ε": (planned(epsilon=1.2), "costs ε = 1.2, this party allows 1"),
    "too much δ": (planned(delta=1e-5), "costs δ = 1e-05, this party allows 1e-06"),
    "owners": (planned(owners=Owners("patient", 3)), "protects each record by itself: ask without an owner"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_policy_does_not_allow_is_refused_in_words_that_do_not_depend_on_the_data(parties, name):
    plan, reason = REFUSED[name]
    texts = []
    for content in (None, b"", b"no table", b"age\n1\n2\n", "missing"):
        group = parties()
        for home in group.homes.values():
            if content == "missing":
                (home / "stays.csv").unlink()
            elif content is not None:
                (home / "stays.csv").write_bytes(content)
        result = group.ask(plan)
        assert "total" not in result
        assert group.charges() == [0, 0, 0]
        texts.append(result)
    assert reason in texts[0]["refusals"]["1"].replace("mean of column ", "")
    assert all(text == texts[0] for text in texts)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ('owner = "patient"', "protects all records of one 'patient' together: ask with that owner"),
        ("colluding = 1", "guards against 0 colluding parties, this one wants 1"),
        ("count = false", "count may not be asked here"),
    ],
)
def test_a_party_may_insist_on_more(parties, plan, more, reason):
    assert reason in parties(more=more).ask(plan)["refusals"]["1"]


def test_a_party_that_insists_on_owners_answers_questions_that_protect_them(parties):
    plan = planned(owners=Owners("patient", 3))
    count = answers_from(parties(more='owner = "patient"').total(plan), plan).answers[0].estimates
    assert abs(count.value - 900) < 6 * count.standard_error


def test_questions_for_too_few_parties_are_refused(parties):
    group = parties(parties=5)
    assert "3 parties are asked, this one answers among 5 or more" in group.ask(planned())["refusals"]["1"]


def test_a_round_with_fewer_parties_than_the_plan_says_is_refused(parties, sent):
    """The plan is for five, as the policy wants it; the server makes a round of three."""
    group, plan = parties(parties=5), planned(parties=5)
    coordinator = Coordinator(
        group.nodes, plan.plan, question=text_of(plan), identity=None, malicious=False, sparse=False,
        waiting=QUICK,
    )  # fmt: skip
    messages = {n: Message(RecordDict(), dst_node_id=n, message_type="train") for n in group.nodes.apps}
    with pytest.raises(RoundFailed):
        coordinator.keys_for(0, set(messages), messages[1], pytest.fail)
    roster = plan.plan.cohort.roster
    coordinator._plan = replace(
        plan.plan, cohort=replace(plan.plan.cohort, count=3)
    )  # the server's own settings
    assert roster.expected == 5
    with pytest.raises(RoundFailed):
        coordinator.keys_for(0, set(messages), messages[1], pytest.fail)
    assert "3 participants in the round, this node joins 5 or more" in coordinator.refusals[1]
    assert not sent
    assert group.charges() == [0, 0, 0]


def tampered(group, node, change):
    """The server changes what one party is sent, before it goes out."""
    original = group.nodes.push_messages

    def push(messages):
        asked = list(messages)
        for message in asked:
            record = message.content.config_records[RECORD]
            if message.metadata.dst_node_id == node and "question" in record:
                change(record)
        return original(asked)

    group.nodes.push_messages = push


@pytest.mark.parametrize(
    "other", ["count", ASK.replace("count", "count importance 16"), ASK.replace("110", "100")]
)
def test_parties_do_not_answer_different_questions_under_one_plan(parties, plan, other):
    """Another question, other weights, other bounds: the plan is the same, the name of the round is not."""
    group = parties(parties=2)
    text = text_of(planned(other))

    def swap(record):
        record["question"] = text

    tampered(group, 2, swap)
    refused = group.ask(plan)
    assert "another plan than it carries, or another question" in refused["refusals"]["2"]
    assert "1 of 3 parties refuse; nobody was charged, and you may ask the other 2" in refused["failed"]
    assert group.charges() == [0, 0, 0]


def test_a_party_that_was_told_another_question_consistently_shares_no_key_with_the_others(
    parties, plan, sent
):
    group = parties()
    text = text_of(planned(ASK.replace("count", "count importance 16")))
    digest = bound_digest(plan.plan.digest(), text)
    original = group.nodes.push_messages

    def push(messages):
        asked = list(messages)
        for message in asked:
            if message.metadata.dst_node_id == 2:
                record = message.content.config_records[RECORD]
                record["digest"] = digest
                if "question" in record:
                    record["question"] = text
        return original(asked)

    group.nodes.push_messages = push
    refused = group.ask(plan)
    assert "total" not in refused
    assert not sent, "nobody got as far as an answer"
    assert group.charges() == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "not a question"),
        ("{}", "not a question"),
        ('{"kind": "statistics", "ask": "count", "owner": null, "layout": 2, "x": 1}', "malformed"),
        ('{"kind": "statistics", "ask": "cuont", "owner": null, "layout": 2}', "expected one of count"),
        (
            '{"kind": "statistics", "ask": "mean(age, 0..5e-324)", "owner": null, "layout": 2}',
            "by 1e-100 or more",
        ),
        ('{"kind": "statistics", "ask": "count", "owner": null, "layout": 1}', "another version of skelmix"),
        ('{"kind": "sum", "columns": "age"}', "must be a list of names"),
        (
            '{"kind": "statistics", "ask": "count", "owner": null, "layout": 2}',
            "the plan is for 7 numbers, the question asks 1",
        ),
    ],
)
def test_a_question_that_does_not_fit_is_refused_with_the_reason(parties, plan, text, reason):
    group = parties()
    assert reason in group.ask(plan, text)["refusals"]["1"]
    assert group.charges() == [0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rounds": 2}, "several rounds, or samples"),
        ({"cohort": sk.Silos(3, 900, 300)}, "several rounds, or samples"),
        ({"cohort": sk.Silos(3, 900, 900, unit="owner")}, "protects one owner, the question another unit"),
        ({"cohort": sk.Silos(3, 900, 900, dropout_tolerance=0.34)}, "the plan tolerates dropouts"),
        ({"cohort": sk.Cohort.everyone(3)}, "protects participants"),
        ({"clip": "adaptive"}, "moves its clip norm from round to round"),
        ({"keep": 0.5}, "clips each record after rotating it"),
    ],
)
def test_a_plan_that_is_not_one_sum_of_all_records_is_refused(parties, plan, changes, reason):
    given = {"dimension": 7, "bits": 16, "bound": "gdp", "cohort": sk.Silos(3, 900, 900)} | changes
    other = sk.plan(sk.PrivacyTarget(1.0, 1e-6), **given)
    result = ask_parties(parties().nodes, other, text_of(plan), QUICK)
    assert reason in result["refusals"]["1"]


def test_a_party_that_refuses_cannot_keep_the_others_from_answering(parties, sent):
    """Its budget is spent, say: the question is asked again for the two that are left."""
    group, plan = parties(parties=2), planned(parties=2)
    policy = group.homes[3] / "policy.toml"
    policy.write_text(policy.read_text().replace("epsilon_per_question = 1.0", "epsilon_per_question = 0.1"))
    count = answers_from(group.total(plan), plan).answers[0].estimates
    assert abs(count.value - 600) < 6 * count.standard_error
    assert len(sent) == 2
    assert group.charges() == [1, 1, 0]


def test_a_party_that_falls_silent_after_it_agreed_leaves_nothing_to_open(parties, plan, sent):
    """Whether all answer or none is what keeps a server from having two sets of survivors unmasked."""
    group = parties()
    group.nodes.behave = lambda node, parts: "silent" if (node, "masked" in parts) == (2, True) else "ok"
    assert "total" not in group.ask(plan)
    assert group.charges() == [1, 0, 1]


def test_too_few_or_too_many_parties_are_said_and_nothing_is_asked(parties, plan):
    group = parties()
    quick = replace(QUICK, timeout=0.1)
    assert (
        "3 of 4 parties are connected"
        in ask_parties(group.nodes, planned(parties=4).plan, text_of(plan), quick)["failed"]
    )
    assert group.nodes.sent == []
    two = planned(parties=2)
    assert (
        "3 parties agree to answer, the question is for 2: ask it for 3"
        in ask_parties(parties(parties=2).nodes, two.plan, text_of(two), quick)["failed"]
    )
