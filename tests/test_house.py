"""Rules of the house that no tool checks: names, and who may ask for the name of a mechanism or bound."""

import ast
from collections.abc import Iterator
from pathlib import Path

from skelmix.mechanisms.bounds import BOUNDS
from skelmix.mechanisms.registry import MECHANISMS

SOURCE = Path(__file__).parents[1] / "src" / "skelmix"

#: rooms that decide nothing about mechanisms; what studies and audits measure is listed by names
ASKING = (
    "accounting", "cli", "datasets", "display", "encoding", "explore", "federated", "flower", "noise",
    "planning", "rounds", "secagg", "statistics",
)  # fmt: skip


def sources(room: str = "") -> Iterator[tuple[Path, ast.Module]]:
    """(path within the package, syntax tree) of every file of a room."""
    for path in sorted((SOURCE / room).rglob("*.py")):
        yield path.relative_to(SOURCE), ast.parse(path.read_text(encoding="utf-8"))


def test_no_function_shares_the_name_of_a_module_beside_it():
    """`from package import name` would mean one or the other, depending on what was imported before."""
    shared = []
    for path, tree in sources():
        beside = {other.stem for other in (SOURCE / path).parent.iterdir()}
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        shared += [f"{path}: {name}" for name in names & beside - {"main"}]
    assert shared == []


def switches(tree: ast.AST) -> Iterator[str]:
    """Comparisons of a bound or mechanism with names, and questions of which class a mechanism is."""
    names = {"mechanism", "bound", "Mechanism", *(kind.__name__ for kind in MECHANISMS.values())}
    for node in ast.walk(tree):
        words = {
            word.id if isinstance(word, ast.Name) else word.attr
            for word in ast.walk(node)
            if isinstance(word, ast.Name | ast.Attribute)
        }
        if isinstance(node, ast.Compare) and words & names:
            constants = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
            if constants & {*MECHANISMS, *BOUNDS}:
                yield ast.unparse(node)
        asks = isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
        if asks and words & names and "mechanism" in ast.unparse(node.args[0]):
            yield ast.unparse(node)


def test_nobody_outside_asks_a_mechanism_or_bound_for_its_name_or_type():
    found = [f"{path}: {text}" for room in ASKING for path, tree in sources(room) for text in switches(tree)]
    assert found == []
    bad = ast.parse("bound in ('paper', 'rdp')\nisinstance(plan.mechanism, SkellamMixture)")
    assert len(list(switches(bad))) == 2, "the test would see one"
