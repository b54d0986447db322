"""What is loaded, and when."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

HEAVY = ("numba", "scipy", "torch", "flwr", "matplotlib", "plotly", "dp_accounting", "flint")


def loaded_after(code: str) -> set[str]:
    program = (
        f"import sys\n{code}\nprint(' '.join(m for m in {HEAVY!r} if m in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "import skelmix",
        "import skelmix; skelmix.__version__; dir(skelmix)",
        "from skelmix.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass",
    ],
)
def test_a_light_start_loads_nothing_heavy(code):
    assert loaded_after(code) == set()


@pytest.mark.parametrize(
    "command",
    [
        "plan",
        "account",
        "sum",
        "stats",
        "ask",
        "party",
        "train",
        "data",
        "reproduce",
        "bench",
        "audit",
        "explore",
    ],
)
def test_help_of_a_command_loads_nothing_heavy(command):
    code = f"from skelmix.cli.main import main\ntry: main(['{command}', '--help'])\nexcept SystemExit: pass"
    assert loaded_after(code) == set()


def test_planning_and_summing_need_neither_torch_nor_flwr_nor_plots():
    names = (
        "skelmix.planning.planner, skelmix.rounds.summation, skelmix.secagg.in_memory, skelmix.secagg.server"
    )
    assert loaded_after(f"import {names}") & {"torch", "flwr", "matplotlib", "plotly"} == set()


ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "{extra}":
            raise ModuleNotFoundError("No module named {extra}", name="{extra}")
sys.meta_path.insert(0, Absent())
"""


@pytest.mark.parametrize(
    ("extra", "name"),
    [("torch", "federated.Trainer"), ("torch", "federated.Clients"), ("flwr", "flower.SecureGrid")],
)
def test_a_name_whose_extra_is_missing_says_what_to_install(extra, name):
    package, _, attribute = name.partition(".")
    code = ABSENT.format(extra=extra) + f"from skelmix.{package} import {attribute}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    remedy = "flower" if extra == "flwr" else extra
    last = done.stderr.splitlines()[-1]
    assert last == f"skelmix.errors.MissingExtra: {extra} is not installed: pip install 'skelmix[{remedy}]'"


@pytest.mark.parametrize("package", ["federated", "flower", "secagg", "statistics", "audit", "datasets"])
def test_importing_a_package_loads_nothing_heavy(package):
    assert loaded_after(f"import skelmix.{package}") == set()


def test_plan_is_a_function_whatever_was_imported_before():
    import skelmix.planning

    assert skelmix.plan is skelmix.planning.plan


@pytest.mark.parametrize(("package", "room"), [("torch", "federated"), ("flwr", "flower")])
def test_the_contract_about_an_extra_names_every_other_room(package, room):
    source = Path(__file__).parents[1]
    contracts = tomllib.loads((source / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [one for one in contracts if one.get("forbidden_modules") == [package]]
    rooms = {
        f"skelmix.{path.stem}"
        for path in (source / "src/skelmix").iterdir()
        if (path / "__init__.py").exists() or (path.suffix == ".py" and not path.stem.startswith("__"))
    }
    assert set(contract["source_modules"]) == rooms - {f"skelmix.{room}", "skelmix.studies"}


PEERS = {"tensorflow", "tensorflow_probability", "opendp"}  # measured beside us where they happen to be


def test_every_package_that_is_imported_is_declared():
    source = Path(__file__).parents[1]
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    declared = {re.match(r"[\w-]+", line)[0].replace("_", "-").lower() for line in lines}
    homes, known = packages_distributions(), {"skelmix", *sys.stdlib_module_names, *PEERS}
    for path in (source / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for package in {name.partition(".")[0] for name in names} - known:
                owners = {name.replace("_", "-").lower() for name in homes[package]}
                assert owners & declared, (path, package)
