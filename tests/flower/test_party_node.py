"""A party's SuperNode runs the party's own code; the commands say what is wrong before anything is asked."""

import json
import signal
import subprocess
from importlib import import_module

import pytest
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND, TaskType
from flwr.supercore.superexec.executor import ExecutionSpec
from flwr.supercore.superexec.executor.types import LaunchResultStatus

from helpers.command import skelmix
from skelmix.errors import InvalidInput, PolicyViolation, RoundFailed, SkelmixError
from skelmix.flower import ask, party_node, party_programs
from skelmix.flower.party_node import supernode
from skelmix.flower.question_client import app
from skelmix.statistics.party_policy import EXAMPLE

ASKED = ["ask", "--parties", 3, "--records", 9, "--superlink"]


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "home of data" / "policy.toml"
    path.parent.mkdir()
    path.write_text(EXAMPLE)
    return path


def test_every_program_of_flowers_that_runs_an_app_is_replaced(policy):
    command, environment = supernode(policy, "127.0.0.1:1", 2, ("--insecure",))
    scripts = policy.parent / "state" / "programs"
    assert environment["PATH"] == str(scripts), "no other program can be found"
    names = {script.name for script in scripts.iterdir()}
    assert names == {*TASK_TYPE_TO_COMMAND.values(), "flower-superexec"}
    assert f'skelmix-policy="{policy}"' in command
    done = subprocess.run([scripts / "flwr-clientapp"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "other apps are refused" in done.stderr
    for name in TASK_TYPE_TO_COMMAND.values():
        assert "refuse_app()" in (scripts / name).read_text()


@pytest.mark.parametrize("line", ["#!/nowhere/python -I", "#!/bin/echo", "no program"])
def test_a_party_whose_programs_cannot_be_run_does_not_start(policy, monkeypatch, line):
    script = party_node._SCRIPT.replace("#!{python} -I", line)
    monkeypatch.setattr(party_node, "_SCRIPT", script)
    with pytest.raises(SkelmixError, match="the party does not start"):
        supernode(policy, "127.0.0.1:1", 2, ("--insecure",))


def test_a_state_directory_that_would_be_two_places_is_refused(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(EXAMPLE.replace('state = "state"', 'state = "a:b"'))
    with pytest.raises(InvalidInput, match="rename it"):
        supernode(path, "127.0.0.1:1", 2, ())


@pytest.fixture
def flowers(monkeypatch):
    """Flower's modules, whose own functions must not be used; what is put in their place is taken back."""
    runtime = import_module("flwr.supernode.runtime.run_clientapp")
    executor = import_module("flwr.supercore.superexec.executor.subprocess_executor").SubprocessExecutor
    for name in ("install_from_fab", "get_load_client_app_fn", "install_app_dependencies"):
        monkeypatch.setattr(runtime, name, lambda *_, **__: pytest.fail("the server's code was used"))
    monkeypatch.setattr(executor, "launch", lambda *_: pytest.fail("Flower's program was started"))
    monkeypatch.setattr("flwr.supercore.cli.flower_superexec", lambda: None)
    before = signal.getsignal(signal.SIGCHLD)
    yield runtime, executor
    signal.signal(signal.SIGCHLD, before)


def test_the_code_that_comes_with_a_message_is_neither_installed_nor_loaded(flowers):
    party_programs.run_party_apps()
    runtime, _ = flowers
    assert runtime.install_from_fab(b"anything", skip_prompt=True) is None
    load = runtime.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
    assert load("publisher/app", "1.0.0", "hash") is app
    with pytest.raises(SkelmixError, match="installs nothing"):
        runtime.install_app_dependencies("path")


@pytest.mark.parametrize("kind", [kind for kind in TaskType if kind is not TaskType.CLIENT_APP])
def test_tasks_of_other_kinds_are_refused(flowers, kind):
    party_programs.run_party_apps()
    spec = ExecutionSpec(kind, "127.0.0.1:1", "token", True, None, False, None, False, 1)
    assert flowers[1]().launch(spec).status is LaunchResultStatus.FAILED


def test_apps_that_would_install_something_are_refused(flowers):
    party_programs.run_party_apps()
    spec = ExecutionSpec(TaskType.CLIENT_APP, "127.0.0.1:1", "token", True, None, True, None, False, 1)
    assert flowers[1]().launch(spec).status is LaunchResultStatus.FAILED


def test_a_flower_that_works_in_another_way_is_refused(flowers, monkeypatch):
    monkeypatch.delattr(flowers[0], "install_from_fab")
    with pytest.raises(SkelmixError, match="has no install_from_fab"):
        party_programs.run_party_apps()


def test_a_path_that_cannot_be_passed_on_is_refused(tmp_path):
    path = tmp_path / 'po"licy.toml'
    path.write_text(EXAMPLE)
    with pytest.raises(InvalidInput, match="rename it"):
        supernode(path, "127.0.0.1:1", 2, ())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["party"], "name the policy file"),
        (["party", "nowhere.toml"], "cannot be read"),
        (["party", "policy.toml", "--superlink", "example.org:1", "--insecure"], "only on 127.0.0.1"),
        ([*ASKED, "example.org:1", "--insecure", "--ask", "count"], "only on 127.0.0.1"),
        ([*ASKED, "127.0.0.1:1"], "give the question once"),
        ([*ASKED, "127.0.0.1:1", "--ask", "count", "--sum", "a"], "--sum: leave out --ask"),
        ([*ASKED, "127.0.0.1:1", "--ask", "count", "--clip-norm", 1], "belongs to --sum"),
    ],
)
def test_what_is_wrong_with_a_command_is_said(tmp_path, words, message):
    (tmp_path / "policy.toml").write_text(EXAMPLE)
    done = skelmix(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_the_error_of_a_plain_sum_is_known_before_anybody_is_asked(tmp_path):
    rows = ["--sum", "age, stay", "--clip-norm", 120]
    done = skelmix(*ASKED, "127.0.0.1:1", "--insecure", *rows, "--plan-only", "--json", cwd=tmp_path)
    plan = json.loads(done.stdout)
    ages, stays = plan["expected"]
    assert (ages["query"], stays["query"]) == ("total(age)", "total(stay)")
    assert ages["standard_error"] == pytest.approx(plan["predicted"]["deviation"], rel=0.01)
    assert ages["relative_error"] == pytest.approx(ages["standard_error"] / (9 * 120))
    done = skelmix(*ASKED, "127.0.0.1:1", "--insecure", *rows, "--seconds", 10, cwd=tmp_path)
    assert "  total(age): standard error about " in done.stdout
    assert "is the SuperLink there?" in done.stderr


def test_a_superlink_that_is_not_there_is_said(tmp_path):
    link = ["--superlink", "127.0.0.1:1", "--insecure", "--parties", 3, "--records", 900]
    done = skelmix("ask", *link, "--ask", "count", "--seconds", 10, cwd=tmp_path)
    assert done.returncode == 2
    assert "flwr run failed; is the SuperLink there?" in done.stderr


def test_refusals_and_failures_are_told_apart():
    refused = {"failed": "2 of 3 refuse", "refusals": {"1": "policy: no", "2": "policy: no"}}
    with pytest.raises(PolicyViolation, match=r"2 of 3 refuse; parties 1, 2: no$"):
        ask._total(refused, "")
    refused = {"failed": "no", "refusals": {"1": "policy: a", "2": "b", "3": "policy: a"}}
    with pytest.raises(RoundFailed, match=r"no; parties 1, 3: a; party 2: b$"):
        ask._total(refused, "")
    with pytest.raises(RoundFailed, match="nobody came"):
        ask._total({"failed": "nobody came", "refusals": {}}, "")
    with pytest.raises(RoundFailed, match="ended without a result"):
        ask._total(None, "log")
