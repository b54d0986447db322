"""`skelmix bench`: what reaches the benchmarks, and what happens without the extras."""

import importlib
import json
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer itself imports what click deprecates
    from skelmix.cli.main import main


def run(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(["bench", *words])
    shown = capsys.readouterr()
    return end.value.code, shown.out, shown.err


@pytest.mark.parametrize("name", ["noise", "encode", "secagg", "train"])
def test_each_name_runs_its_own_benchmark(capsys, monkeypatch, name):
    module = importlib.import_module(f"skelmix.studies.benchmarks.{name}")
    monkeypatch.setattr(module, "run", lambda: {"ran": name})
    monkeypatch.setattr(module, "table", lambda result: f"table of {result['ran']}")
    code, out, _ = run(capsys, name, "--json")
    assert (code, json.loads(out)) == (0, {"ran": name})
    assert run(capsys, name)[1].strip() == f"table of {name}"


@pytest.mark.parametrize(
    ("words", "nodes"),
    [((), (3,)), (("--clients", "10"), (10,)), (("--clients", "3", "--clients", "5"), (3, 5))],
)
def test_flower_measures_as_many_clients_as_are_named(capsys, monkeypatch, words, nodes):
    module = pytest.importorskip("skelmix.studies.benchmarks.flower")
    monkeypatch.setattr(module, "run", lambda nodes: {"nodes": nodes})
    monkeypatch.setattr(module, "table", str)
    code, out, _ = run(capsys, "flower", *words, "--json")
    assert (code, json.loads(out)) == (0, {"nodes": list(nodes)})


def test_two_clients_are_fewer_than_a_node_joins(capsys):
    code, out, err = run(capsys, "flower", "--clients", "2")
    assert (code, out) == (2, "")
    assert "x>=3" in err


@pytest.mark.parametrize(
    ("name", "module", "package", "extra"),
    [
        ("flower", "studies.benchmarks.flower", "flwr", "flower"),
        ("train", "studies.benchmarks.train", "torch", "torch"),
    ],
)
def test_a_missing_extra_is_named_with_its_remedy(capsys, monkeypatch, name, module, package, extra):
    def absent(wanted):
        assert wanted == f"skelmix.{module}"
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr("skelmix.cli.bench.import_module", absent)
    code, out, err = run(capsys, name)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"pip install 'skelmix[{extra}]'" in err
