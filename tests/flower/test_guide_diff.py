"""The guide's diffs, as printed, make an app in the shape of Flower's quickstart private."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

import skelmix as sk
from skelmix.errors import InvalidInput, RoundFailed
from skelmix.flower import SecureGrid
from skelmix.flower.grid import _read_plan
from skelmix.flower.round_log import RoundLog
from skelmix.mechanisms.silo import SiloMechanism

torch = pytest.importorskip("torch")

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "flower.md"
STOCK = Path(__file__).parent / "quickstart_app"
CONFIG = {
    "num-server-rounds": 3,
    "fraction-evaluate": 0.5,
    "local-epochs": 1,
    "learning-rate": 0.1,
    "batch-size": 16,
}


def applied(text: str, diff: list[str]) -> str:
    """The text after a diff without line numbers: lines that it keeps or drops must be there, in order."""
    lines, at = text.splitlines(), 0
    for line in diff:
        mark, content = line[0], line[1:]
        if mark == "+":
            lines.insert(at, content)
            at += 1
            continue
        at = lines.index(content, at)
        if mark == "-":
            del lines[at]
        else:
            at += 1
    return "\n".join(lines) + "\n"


def diffs(silos: bool) -> dict[str, list[str]]:
    """The guide's diff of each file, for participants or for silos."""
    text = GUIDE.read_text(encoding="utf-8").split("\n## Silos")[silos]
    found = re.findall(r"```diff\n--- (\S+)\n(.*?)```", text, re.DOTALL)
    assert {name for name, _ in found} == {
        "pyproject.toml", "pytorchexample/client_app.py", "pytorchexample/server_app.py",
    }  # fmt: skip
    return {name: diff.splitlines() for name, diff in found}


@pytest.fixture
def changed_app(tmp_path, monkeypatch):
    """Applies the guide's diff to the stock app and gives its two modules, client and server."""

    def change(silos: bool):
        place = tmp_path / "app"
        shutil.copytree(STOCK, place, ignore=shutil.ignore_patterns("__pycache__"))
        for name, diff in diffs(silos).items():
            (place / name).write_text(applied((place / name).read_text(), diff))
        monkeypatch.syspath_prepend(str(place))
        monkeypatch.chdir(tmp_path)
        return (importlib.import_module(f"pytorchexample.{side}_app") for side in ("client", "server"))

    yield change
    for name in [name for name in sys.modules if name.startswith("pytorchexample")]:
        del sys.modules[name]


def train(fleet, changed_app, silos):
    """Run the changed app over ten nodes."""
    client, server = changed_app(silos)
    nodes = fleet(10)
    nodes.apps = dict.fromkeys(nodes.apps, client.app)
    for context in nodes.contexts.values():
        context.run_config.update(CONFIG)
        context.node_config["num-partitions"] = 10
    server.app(nodes, Context(7, 0, {}, RecordDict(), CONFIG))


def test_the_quickstart_trains_privately_after_the_guides_diff(changed_app, fleet, tmp_path, caplog):
    caplog.set_level("INFO")
    train(fleet, changed_app, silos=False)
    task = importlib.import_module("pytorchexample.task")
    model = task.Net()
    model.load_state_dict(torch.load(tmp_path / "final_model.pt", weights_only=True))
    said = [record.getMessage() for record in caplog.records if record.name == "flwr.skelmix"]
    rounds = [line for line in said if line.startswith("round ")]
    assert [line.split(":")[0] for line in rounds] == ["round 1", "round 2", "round 3"], "as Flower counts"
    assert "ε " in rounds[0]
    assert " spent, " in rounds[0]
    assert rounds[0].endswith("2 rounds left")
    assert rounds[1].endswith("1 round left")
    assert sum("withheld" in line for line in said) == 1


def test_the_quickstart_protects_records_after_ten_changed_lines(changed_app, fleet, monkeypatch, caplog):
    """At the guide's rate of 0.05, some 3 of each node's 64 images are drawn in a round."""
    added = [line for diff in diffs(silos=True).values() for line in diff if line.startswith("+")]
    assert len(added) == 10
    sums = []
    original = SiloMechanism.encode_silo
    monkeypatch.setattr(
        SiloMechanism,
        "encode_silo",
        lambda *given, **options: sums.append(given[1]) or original(*given, **options),
    )
    train(fleet, changed_app, silos=True)
    assert len(sums) == 30
    assert 30 < sum(silo.records for silo in sums) < 200
    assert sum(silo.broken for silo in sums) == 0
    assert "a silo without records" not in caplog.text


def test_a_run_without_any_opened_round_raises_at_its_end(fleet, planned, arrays):
    from flwr.serverapp.strategy import FedAvg

    def start(nodes, rounds, plan):
        with SecureGrid(nodes, plan, phase_timeout=0.2, patience=0.05, poll=0.01) as secure:
            FedAvg(min_available_nodes=4, fraction_evaluate=0.0).start(
                grid=secure, initial_arrays=arrays, num_rounds=rounds, timeout=0.2
            )

    for silent, rounds, charged in (("masked", 2, 2), ("share", 2, 0), ("masked", 1, 1)):
        nodes = fleet()
        nodes.behave = lambda node, parts, name=silent: "silent" if node > 1 and name in parts else "ok"
        with pytest.raises(RoundFailed, match=rf"none of {rounds} round.*; {charged} round"):
            start(nodes, rounds, planned(rounds=2))


@pytest.mark.parametrize(("silent", "says"), [("masked", "skipped, charged: "), ("share", "not charged: ")])
def test_a_skipped_round_says_whether_it_was_charged_and_nothing_else(
    fleet, plan, arrays, caplog, silent, says
):
    from flwr.serverapp.strategy import FedAvg

    nodes = fleet()
    nodes.behave = lambda node, parts: "silent" if node > 1 and silent in parts else "ok"
    grid = SecureGrid(nodes, plan, phase_timeout=0.2, patience=0.05, poll=0.01)
    FedAvg(min_available_nodes=4, fraction_evaluate=0.0).start(
        grid=grid, initial_arrays=arrays, num_rounds=1, timeout=0.2
    )
    said = [record.getMessage() for record in caplog.records if record.name == "flwr.skelmix"]
    (line,) = (line for line in said if "skipped" in line)
    assert line.startswith("round 1: skipped, ")
    assert says in line
    assert line.count("charged") == 1
    assert "spent, " in line
    assert "as spent" not in line


def test_a_round_that_no_node_answered_says_so_and_names_the_time_to_give(fleet, plan, arrays, caplog):
    from flwr.serverapp.strategy import FedAvg

    nodes = fleet()
    nodes.behave = lambda node, parts: "silent"
    with (
        pytest.raises(RoundFailed, match=r"no node answered.*SecureGrid\(phase_timeout="),
        SecureGrid(nodes, plan, phase_timeout=0.2, patience=0.05, poll=0.01) as secure,
    ):
        FedAvg(min_available_nodes=4, fraction_evaluate=0.0).start(
            grid=secure, initial_arrays=arrays, num_rounds=1, timeout=0.2
        )
    assert "nodes did not answer within 0 s" in caplog.text


def test_a_plan_is_taken_as_text_or_package_data_and_a_missing_file_says_where_it_was_looked_for(
    plan, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text(plan.to_json())
    for given in (plan, plan.to_json(), "plan.json", tmp_path / "plan.json"):
        assert _read_plan(given) == plan
    with pytest.raises(InvalidInput, match=f"from {re.escape(str(tmp_path))}, where the ServerApp runs"):
        _read_plan("nowhere.json")


def test_the_guides_table_of_clients_has_the_planners_numbers():
    """Noise of the mean update in clip norms, deviation · √d / n, to two digits."""
    rows = re.findall(
        r"^\| ([\d,]+)(?: \(.*?\))? \| ([\d,]+) \| ([\d.]+): ",
        GUIDE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(rows) == 5
    for weights, clients, stated in rows:
        d, n = int(weights.replace(",", "")), int(clients.replace(",", ""))
        plan = sk.plan(
            sk.PrivacyTarget(8.0, 1e-3 if n < 1_000 else 1e-4), dimension=d, rounds=3, bits=16,
            cohort=sk.Cohort.everyone(n, dropout_tolerance=0.2),
        )  # fmt: skip
        assert float(f"{plan.predicted.deviation * d**0.5 / n:.2g}") == float(stated)


def test_the_guides_log_states_what_the_diffs_plan_spends_in_its_first_round():
    plan = sk.plan(
        sk.PrivacyTarget(8.0, 1e-3), dimension=62_006, rounds=3, bits=16,
        cohort=sk.Cohort.everyone(10, dropout_tolerance=0.2),
    )  # fmt: skip
    assert f"; {RoundLog(plan)._spent(1)}\n" in GUIDE.read_text(encoding="utf-8")


def test_the_guide_states_the_noise_of_the_quickstarts_silos():
    plan = sk.plan(
        sk.PrivacyTarget(3.0, 1e-5), dimension=62_006, rounds=3, cohort=sk.Silos(10, 40_000, 2_000)
    )
    stated = re.search(r"gets noise of length ([\d.]+) clip norms", GUIDE.read_text(encoding="utf-8"))
    assert f"{plan.predicted.deviation * 62_006**0.5 / 2_000:.2f}" == stated[1]
