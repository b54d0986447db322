"""What the page may ask: checked field by field, and the same plan as a command and as a program."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from skelmix.cli.main import main
from skelmix.display.json_text import plain_data
from skelmix.explore.answers import answer
from skelmix.explore.settings import FIELDS, BadFields, Settings, errors_of

SMALL = {
    "dimension": 200,
    "rounds": 3,
    "rate": 12,
    "population": 500,
    "cohort": 50,
    "records": 500,
    "batch": 50,
}


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"epsilon": "abc"}, "epsilon", "not a number"),
        ({"epsilon": "0"}, "epsilon", "outside"),
        ({"delta": "nan"}, "delta", "outside"),
        ({"rounds": "2.5"}, "rounds", "whole number"),
        ({"rounds": "1e9"}, "rounds", "outside"),
        ({"mechanism": "laplace"}, "mechanism", "choose one of"),
        ({"who": "nobody"}, "who", "choose"),
        ({"epsilon": {"a": 1}}, "epsilon", "not a number"),
    ],
)
def test_what_is_wrong_is_said_of_its_field(given: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(BadFields) as caught:
        Settings.read(given)
    assert set(caught.value.errors) == {field}
    assert says in caught.value.errors[field]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"cohort": 500, "population": 60}, "cohort"),
        ({"who": "silos", "batch": 600, "records": 500}, "batch"),
    ],
)
def test_the_planners_refusal_stands_beside_the_field_that_it_names(
    given: dict[str, Any], field: str
) -> None:
    found = answer(Settings.read(SMALL | given))
    assert "plan" not in found
    assert set(errors_of(found["refused"])) == {field}, found["refused"]


def test_a_refusal_that_names_no_field_is_kept() -> None:
    assert errors_of("no noise reaches this target") == {"": "no noise reaches this target"}


@pytest.mark.parametrize("who", ["cohort", "silos"])
def test_page_command_and_program_give_the_same_plan(who: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings.read(SMALL | {"who": who, "dropouts": 0.1, "coin": 0.5})
    shown = answer(settings)["plan"]["summary"]
    with pytest.raises(SystemExit) as ended:
        main([*shlex.split(settings.command())[1:], "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out) == shown
    space: dict[str, Any] = {}
    exec(settings.python(), space)
    assert plain_data(space["plan"].summary()) == shown


def test_every_default_lies_on_its_slider() -> None:
    for field in FIELDS.values():
        assert field.least <= field.low <= field.default <= field.high <= field.most
