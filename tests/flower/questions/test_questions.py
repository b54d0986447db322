"""Questions to parties on other machines: what is answered and charged, what is refused and in what words."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from flwr.app import Message, RecordDict

import skelmix as sk
from helpers.parties import QUICK, text_of
from skelmix.errors import PolicyViolation
from skelmix.flower import SecureGrid
from skelmix.flower.mod import UNTOLD
from skelmix.flower.question_server import ask_parties, print_result, read_result, unpacked
from skelmix.statistics import Parties, parse_question, plan_statistics
from skelmix.statistics.asked import AskedSum
from skelmix.statistics.releases import answers_from
from skelmix.statistics.row_sums import plan_row_sum, row_sum_answers


def test_the_decoded_sum_is_the_ideal_one_and_the_answers_are_near_the_truth(parties, plan, sent):
    total = parties().total(plan)
    mechanism = plan.plan.mechanism
    ideal = sum(vector.astype(np.int64) for vector in sent) % mechanism.modulus
    assert len(sent) == 3
    assert np.array_equal(total, mechanism.decode(ideal, round=0))
    count, mean, histogram = answers_from(total, plan).answers
    assert abs(count.estimates.value - 900) < 6 * count.estimates.standard_error
    assert 40 < mean.estimates.value < 60
    assert abs(histogram.estimates["A"].value - 450) < 150


def test_every_answer_is_charged_to_every_party(parties, plan):
    group = parties()
    group.total(plan)
    assert group.charges() == [1, 1, 1]


def test_the_same_question_twice_is_refused_when_the_budget_is_spent(parties, plan, sent):
    group = parties(in_all=1.5)
    group.total(plan)
    group.next_run()
    refused = group.ask(plan)
    assert "3 of 3 parties refuse" in refused["failed"]
    assert all("has answered as much as it allows" in text for text in refused["refusals"].values())
    assert len(sent) == 3, "nobody answered a second time"
    assert group.charges() == [1, 1, 1]


def test_control_a_larger_budget_answers_twice(parties, plan):
    group = parties(in_all=2.0)
    group.total(plan)
    group.next_run()
    group.total(plan)
    assert group.charges() == [2, 2, 2]


def test_a_budget_spent_between_the_check_and_the_answer_is_refused_before_the_file_is_read(
    parties, plan, monkeypatch, unrehearsed
):
    from skelmix.flower.desk import Desk
    from skelmix.statistics import asked

    group = parties(in_all=1.5)
    group.total(plan)
    group.next_run()
    monkeypatch.setattr(Desk, "check", lambda *_: None)  # as if two runs had passed it at the same time
    monkeypatch.setattr(asked, "party_sum", lambda *_, **__: pytest.fail("the file was read"))
    refused = group.ask(plan)
    assert "total" not in refused
    assert all("has answered as much as it allows" in text for text in refused["refusals"].values())


def test_the_cost_is_on_disk_before_the_file_is_read(parties, plan, monkeypatch, unrehearsed):
    from skelmix.statistics import asked

    group = parties()
    seen = []
    original = asked.party_sum

    def watched(*args, **options):
        seen.append(group.charges())
        return original(*args, **options)

    monkeypatch.setattr(asked, "party_sum", watched)
    group.total(plan)
    assert seen == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_nodes_that_restart_answer_no_question_of_a_run_twice(parties, plan, sent):
    group = parties(in_all=3.0)
    group.total(plan)
    group.restart()
    again = group.ask(plan)
    assert "round 0 was asked for" in next(iter(again["refusals"].values()))
    assert len(sent) == 3
    assert group.charges() == [1, 1, 1]


@pytest.mark.parametrize("content", [b"", b"no table", b"age,age\n1,2\n", b"\xff\xfe\x00", "missing"])
def test_a_bad_file_is_an_empty_party_to_others_and_an_error_in_its_own_log(
    parties, plan, sent, caplog, content
):
    honest, broken = parties(), parties()
    file = broken.homes[2] / "stays.csv"
    file.unlink() if content == "missing" else file.write_bytes(content)
    views = []
    for group in (honest, broken):
        replies = []
        original = group.nodes.pull_messages

        def pull(ids, original=original, replies=replies):
            found = list(original(ids))
            replies.extend(found)
            return found

        group.nodes.pull_messages = pull
        with caplog.at_level(logging.ERROR, "flwr.skelmix"):
            total = group.total(plan)
        views.append([sizes(reply) for reply in replies])
    assert views[0] == views[1], "the same parts and sizes, whatever the file holds"
    assert "counts as empty until this is repaired" in caplog.text
    assert str(file) in caplog.text
    count = answers_from(total, plan).answers[0].estimates
    assert abs(count.value - 600) < 6 * count.standard_error
    assert broken.charges() == [1, 1, 1]


@pytest.mark.parametrize("asked", [AskedSum(("age", "stay")), "statistics"])
def test_bad_records_cost_no_second_pass_before_the_answer(parties, plan, sent, monkeypatch, caplog, asked):
    """One bad record among many must show neither in the time of the answer nor in the others' sum."""
    for place in ("skelmix.statistics.party.csv_problems", "skelmix.statistics.arrow.not_numbers"):
        monkeypatch.setattr(place, lambda *_: pytest.fail("records were looked for while others wait"))
    group = parties()
    with (group.homes[2] / "stays.csv").open("a") as file:
        file.write(f"p9,old,F,{'A' * 200_000},1\n")
        file.write("p9,1\n")
    release = plan.plan
    text = text_of(plan)
    if asked != "statistics":
        release = plan_row_sum(asked, sk.PrivacyTarget(1.0, 1e-6), Parties(3, 900), clip_norm=150.0)
        text = asked.to_text()
    with caplog.at_level(logging.ERROR, "flwr.skelmix"):
        result = ask_parties(group.nodes, release, text, QUICK)
    assert "total" in result
    assert "empty" not in caplog.text
    if asked == "statistics":
        count = answers_from(unpacked(result["total"]), plan).answers[0].estimates
        assert abs(count.value - 901) < 6 * count.standard_error


def sizes(reply):
    assert not reply.has_error()
    return {
        (name, key, len(value) if isinstance(value, bytes) else value)
        for name, record in reply.content.items()
        for key, value in record.items()
    }


def test_what_goes_wrong_at_a_party_is_not_told(parties, plan):
    group = parties()
    (group.homes[1] / "state").mkdir()
    (group.homes[1] / "state" / "spent.jsonl").write_text("damaged\n")
    (group.homes[2] / "policy.toml").write_text("data = 1")
    assert group.ask(plan)["refusals"] == {"1": UNTOLD, "2": UNTOLD}


def test_a_party_takes_no_part_in_training_and_training_nodes_answer_no_questions(
    parties, plan, fleet, arrays
):
    group = parties()
    messages = [
        Message(RecordDict({"arrays": arrays}), dst_node_id=n, message_type="train") for n in (1, 2, 3)
    ]
    training = sk.plan(
        sk.PrivacyTarget(1.0, 1e-6), dimension=16, bits=16, bound="gdp", cohort=sk.Silos(3, 900, 900)
    )
    with pytest.raises(PolicyViolation, match="takes no part in training"):
        SecureGrid(group.nodes, training, phase_timeout=5.0, patience=0.2, poll=0.01).send_and_receive(
            messages
        )
    refused = ask_parties(fleet(3), plan.plan, text_of(plan), QUICK)
    assert "this app trains: it answers no questions" in refused["refusals"]["1"]


def test_a_plain_sum_of_rows_goes_the_same_road(parties, sent):
    asked = AskedSum(("age", "stay"))
    plan = plan_row_sum(asked, sk.PrivacyTarget(1.0, 1e-6), Parties(3, 900), clip_norm=150.0)
    group = parties()
    result = ask_parties(group.nodes, plan, asked.to_text(), QUICK)
    ages, stays = row_sum_answers(unpacked(result["total"]), asked, plan).answers
    rows = [
        line.split(",")
        for home in group.homes.values()
        for line in (home / "stays.csv").read_text().split()[1:]
    ]
    true = [sum(float(row[k]) for row in rows if row[1]) for k in (1, 4)]
    for answer, truth in zip((ages, stays), true, strict=True):
        assert abs(answer.estimates.value - truth) < 6 * answer.estimates.standard_error
    assert str(ages.query) == "total(age)"
    assert len(sent) == 3
    assert group.charges() == [1, 1, 1]
    refused = AskedSum(("age", "diagnosis"))
    group.next_run()
    text = ask_parties(group.nodes, plan, refused.to_text(), QUICK)["refusals"]["1"]
    assert "sum of column 'diagnosis' may not be asked here" in text


@pytest.mark.parametrize("kind", ["statistics", "sum"])
def test_a_plan_with_zeros_behind_its_vectors_is_answered(parties, kind):
    group, many = parties(), Parties(3, 100_000_000)
    target = sk.PrivacyTarget(1.0, 1e-9)
    if kind == "sum":
        asked = AskedSum(("age",))
        plan = plan_row_sum(asked, target, many, clip_norm=110.0)
        total = unpacked(ask_parties(group.nodes, plan, asked.to_text(), QUICK)["total"])
        (answer,) = row_sum_answers(total, asked, plan).answers
        assert abs(answer.estimates.value - 900 * 53) < 6 * answer.estimates.standard_error + 900 * 5
    else:
        statistics = plan_statistics(parse_question("count"), target, many)
        plan = statistics.plan
        total = unpacked(ask_parties(group.nodes, plan, text_of(statistics), QUICK)["total"])
        (answer,) = answers_from(total, statistics).answers
        assert abs(answer.estimates.value - 900) < 6 * answer.estimates.standard_error
    assert plan.mechanism.dimension == 4096
    assert group.charges() == [1, 1, 1]


def test_a_long_result_is_read_back_from_the_log(capsys):
    result = {"total": "x" * 10_000, "parties": 3}
    print_result(result)
    log = capsys.readouterr().out
    assert max(map(len, log.splitlines())) < 5_000
    assert read_result(f"INFO : first\n{log}INFO : last\n") == result
    assert read_result("INFO : no result\n") is None
