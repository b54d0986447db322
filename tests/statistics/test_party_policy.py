"""A party's policy file: what it says, and what is wrong with one that says it badly."""

import pytest

from skelmix.errors import InvalidInput
from skelmix.statistics.party_policy import EXAMPLE, PartyPolicy


def write(tmp_path, text):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return path


def test_the_example_is_a_policy(tmp_path):
    policy = PartyPolicy.read(write(tmp_path, EXAMPLE))
    assert policy.data == tmp_path / "stays.csv"
    assert policy.state == tmp_path / "state"
    assert (policy.parties, policy.owner, policy.colluding, policy.count) == (5, None, 0, True)
    assert policy.answer_seconds == 10, "time shows the data unless it is the same every time"
    assert policy.per_question.epsilon == 1.0
    assert policy.in_all.epsilon == 3.0
    assert policy.columns["sex"] == {"histogram", "crosstab"}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('data = "stays.csv"', "", "data is missing"),
        ('data = "stays.csv"', "data = 3", "data = 3: must be text in quotes"),
        ("parties = 5", "parties = 1", "parties = 1"),
        ("parties = 5", "partys = 5", "unknown key 'partys'"),
        ("count = true", "count = 1", "write true or false"),
        ("[budget]", "[budgets]", "unknown key 'budgets'"),
        ("epsilon_in_all = 3.0", "", "epsilon_in_all is missing"),
        ("epsilon_in_all = 3.0", "epsilon_in_all = inf", "epsilon_in_all = inf"),
        ("delta_in_all = 3e-6", "delta_in_all = 2.0", "delta_in_all = 2.0"),
        ('"top"]', '"median"]', "columns.diagnosis"),
        ("[columns]", "[columns", "not TOML"),
        ('# owner = "patient"', "owner = 3", "owner = 3"),
        ("answer_seconds = 10", "answer_seconds = 0", "answer_seconds = 0"),
    ],
)
def test_a_policy_that_cannot_be_kept_to_is_refused_with_the_key(tmp_path, before, after, message):
    assert before in EXAMPLE
    with pytest.raises(InvalidInput, match=r"policy\.toml") as raised:
        PartyPolicy.read(write(tmp_path, EXAMPLE.replace(before, after)))
    assert message in str(raised.value)


def test_a_policy_that_is_not_there_is_said(tmp_path):
    with pytest.raises(InvalidInput, match="name a policy file"):
        PartyPolicy.read(tmp_path / "policy.toml")
